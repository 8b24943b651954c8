package cosi

import (
	"context"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/cosi-project/runtime/pkg/resource"
	coreconfig "github.com/siderolabs/talos/pkg/machinery/config"
	cluster "github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"github.com/siderolabs/talos/pkg/machinery/resources/secrets"
)

// derive shows what follows from the live machine config and from the known members: which cluster this is, where its
// API servers are, which kubelet it runs, and the secrets of the node.
func (s *Store) derive() {
	s.mu.Lock()
	live, members := s.live.config, slices.Clone(s.live.members)
	s.mu.Unlock()

	if live == nil || live.Cluster() == nil || live.Machine() == nil {
		s.Replace(k8s.EndpointType, endpoint(k8s.ControlPlaneDiscoveredEndpointsID, nil, nil))
		s.Replace(k8s.KubePrismEndpointsType)
		s.Replace(k8s.KubePrismConfigType)
		s.SetClusterInfo("", "")

		return
	}

	s.SetClusterInfo(live.Cluster().ID(), live.Cluster().Name())
	s.deriveEndpoints(live, members)
	s.deriveSecrets(live)
	s.deriveLinks(live)
	s.deriveDiscovery(live)
	s.deriveExtensions(live)

	kubelet := k8s.NewKubeletSpec(k8s.NamespaceName, k8s.KubeletID)
	kubelet.TypedSpec().Image = live.Machine().Kubelet().Image()
	kubelet.TypedSpec().Config = live.Machine().Kubelet().ExtraConfig()
	kubelet.TypedSpec().Args = Arguments(live.Machine().Kubelet().ExtraArgs())
	s.Replace(k8s.KubeletSpecType, kubelet)
}

// Arguments returns the extra arguments of a component of Kubernetes as they are on its command line.
func Arguments(extra map[string][]string) []string {
	var out []string

	for _, name := range slices.Sorted(maps.Keys(extra)) {
		for _, value := range extra[name] {
			out = append(out, "--"+name+"="+value)
		}
	}

	return out
}

func (s *Store) deriveEndpoints(live coreconfig.Config, members []Member) {
	var controlPlanes []netip.Addr

	for _, m := range members {
		if m.MachineType.IsControlPlane() {
			controlPlanes = append(controlPlanes, m.Addresses...)
		}
	}

	var (
		addresses []netip.Addr
		hosts     []string
		prism     []k8s.KubePrismEndpoint
	)

	if url := live.Cluster().Endpoint(); url != nil {
		if addr, err := netip.ParseAddr(url.Hostname()); err == nil {
			addresses = append(addresses, addr)
		} else {
			hosts = append(hosts, url.Hostname())
		}

		port, err := strconv.Atoi(url.Port())
		if err != nil {
			port = constants.DefaultControlPlanePort
		}

		prism = append(prism, k8s.KubePrismEndpoint{Host: url.Hostname(), Port: uint32(port)})
	}

	if live.Machine().Type().IsControlPlane() {
		prism = append(prism, k8s.KubePrismEndpoint{Host: "localhost", Port: constants.DefaultControlPlanePort})
	}

	for _, addr := range controlPlanes {
		prism = append(prism, k8s.KubePrismEndpoint{Host: addr.String(), Port: constants.DefaultControlPlanePort})
	}

	s.Replace(
		k8s.EndpointType,
		endpoint(k8s.ControlPlaneKubernetesEndpointsID, addresses, hosts),
		endpoint(k8s.ControlPlaneDiscoveredEndpointsID, controlPlanes, nil),
	)

	if !live.Machine().Features().KubePrism().Enabled() {
		s.Replace(k8s.KubePrismEndpointsType)
		s.Replace(k8s.KubePrismConfigType)

		return
	}

	endpoints := k8s.NewKubePrismEndpoints(k8s.NamespaceName, k8s.KubePrismEndpointsID)
	endpoints.TypedSpec().Endpoints = prism
	s.Replace(k8s.KubePrismEndpointsType, endpoints)

	balancer := k8s.NewKubePrismConfig(k8s.NamespaceName, k8s.KubePrismConfigID)
	*balancer.TypedSpec() = k8s.KubePrismConfigSpec{
		Host: "127.0.0.1", Port: live.Machine().Features().KubePrism().Port(), Endpoints: prism,
	}
	s.Replace(k8s.KubePrismConfigType, balancer)
}

func endpoint(id resource.ID, addresses []netip.Addr, hosts []string) *k8s.Endpoint {
	r := k8s.NewEndpoint(k8s.ControlPlaneNamespaceName, id)
	r.TypedSpec().Addresses = append([]netip.Addr{}, addresses...)
	r.TypedSpec().Hosts = append([]string{}, hosts...)

	return r
}

// deriveExtensions shows the configurations of services of extensions, whether the node has the services or not.
func (s *Store) deriveExtensions(live coreconfig.Config) {
	docs := live.ExtensionServiceConfigs()

	s.mu.Lock()
	owned := s.owned(runtime.ExtensionServiceConfigType)
	s.mu.Unlock()

	// Nearly no node has any, and a type that a node shows itself takes memory.
	if len(docs) == 0 && !owned {
		return
	}

	show(s, runtime.ExtensionServiceConfigType, slices.All(docs),
		func(_ int, doc cluster.ExtensionServiceConfig) resource.Resource {
			spec := runtime.ExtensionServiceConfigSpec{Environment: doc.Environment()}
			for _, file := range doc.ConfigFiles() {
				spec.Files = append(spec.Files, runtime.ExtensionServiceConfigFile{
					Content: file.Content(), MountPath: file.MountPath(),
				})
			}

			return withSpec(runtime.NewExtensionServiceConfigSpec(runtime.NamespaceName, doc.Name()), spec)
		})
	show(s, runtime.ExtensionServiceConfigStatusType, slices.All(docs),
		func(_ int, doc cluster.ExtensionServiceConfig) resource.Resource {
			return withSpec(runtime.NewExtensionServiceConfigStatusSpec(runtime.NamespaceName, doc.Name()),
				runtime.ExtensionServiceConfigStatusSpec{
					SpecVersion: s.versionOf(runtime.ExtensionServiceConfigType, doc.Name()),
				})
		})
}

// versionOf is the version of a resource; empty if another config has taken it away meanwhile.
func (s *Store) versionOf(typ resource.Type, id resource.ID) string {
	r, err := s.state.Get(context.Background(), pointer{typ, id}.metadata())
	if err != nil {
		return ""
	}

	return r.Metadata().Version().String()
}

// deriveSecrets shows the roots of the node's PKI as its config holds them.
func (s *Store) deriveSecrets(live coreconfig.Config) {
	root := secrets.NewOSRoot(secrets.OSRootID)
	root.TypedSpec().IssuingCA = live.Machine().Security().IssuingCA()
	root.TypedSpec().AcceptedCAs = live.Machine().Security().AcceptedCAs()
	root.TypedSpec().Token = live.Machine().Security().Token()
	root.TypedSpec().CertSANIPs = []netip.Addr{s.identity.Address.Addr()}

	for _, san := range live.Machine().Security().CertSANs() {
		if ip := net.ParseIP(san); ip == nil {
			root.TypedSpec().CertSANDNSNames = append(root.TypedSpec().CertSANDNSNames, san)
		} else if addr, ok := netip.AddrFromSlice(ip); ok {
			root.TypedSpec().CertSANIPs = append(root.TypedSpec().CertSANIPs, addr.Unmap())
		}
	}

	s.Set(root)

	if !live.Machine().Type().IsControlPlane() {
		return
	}

	etcdRoot := secrets.NewEtcdRoot(secrets.EtcdRootID)
	etcdRoot.TypedSpec().EtcdCA = live.Cluster().Etcd().CA()
	s.Set(etcdRoot)

	kubernetes := secrets.NewKubernetesRoot(secrets.KubernetesRootID)
	*kubernetes.TypedSpec() = secrets.KubernetesRootSpec{
		Name:                      live.Cluster().Name(),
		Endpoint:                  live.Cluster().Endpoint(),
		CertSANs:                  live.Cluster().CertSANs(),
		DNSDomain:                 live.Cluster().Network().DNSDomain(),
		IssuingCA:                 live.Cluster().IssuingCA(),
		AcceptedCAs:               live.Cluster().AcceptedCAs(),
		ServiceAccount:            live.Cluster().ServiceAccount(),
		AggregatorCA:              live.Cluster().AggregatorCA(),
		SecretboxEncryptionSecret: live.Cluster().SecretboxEncryptionSecret(),
		BootstrapTokenID:          live.Cluster().Token().ID(),
		BootstrapTokenSecret:      live.Cluster().Token().Secret(),
	}
	s.Set(kubernetes)
	s.deriveBootstrapToken(live.Cluster().Token())
	s.deriveProxy(live.Cluster().Proxy().Image())
}

// deriveBootstrapToken shows the token in the bootstrap manifests, in plain text and to every reader, as a real node
// does. It was taken out of the recordings.
func (s *Store) deriveBootstrapToken(token cluster.Token) {
	const secret = "00-kubelet-bootstrapping-token"

	s.Amend(k8s.ManifestType, secret, func(r resource.Resource) {
		manifest, ok := r.(*k8s.Manifest)
		if !ok {
			return
		}

		for _, item := range manifest.TypedSpec().Items {
			item.Object["metadata"] = map[string]any{"name": "bootstrap-token-" + token.ID(), "namespace": "kube-system"}
			item.Object["stringData"] = map[string]any{
				"token-id": token.ID(), "token-secret": token.Secret(),
				"usage-bootstrap-authentication": "true", "auth-extra-groups": "system:bootstrappers:nodes",
			}
		}
	})
}

// deriveProxy shows the image of kube-proxy that the config names, in the bootstrap manifests and in what they are made
// of. The other images of Kubernetes follow the API server, which gets a version before kube-proxy does.
func (s *Store) deriveProxy(image string) {
	s.Amend(k8s.ManifestType, "10-kube-proxy", func(r resource.Resource) {
		manifest, ok := r.(*k8s.Manifest)
		if !ok {
			return
		}

		for _, item := range manifest.TypedSpec().Items {
			if item.Object["kind"] == "DaemonSet" {
				item.Object["spec"] = withImage(item.Object["spec"], image)
			}
		}
	})
	s.Amend(k8s.BootstrapManifestsConfigType, k8s.BootstrapManifestsConfigID, func(r resource.Resource) {
		if c, ok := r.(*k8s.BootstrapManifestsConfig); ok {
			c.TypedSpec().ProxyImage = image
		}
	})
}

// withImage returns a copy with another image in each container. Copies of manifests share what is below their fields.
func withImage(node any, image string) any {
	switch node := node.(type) {
	case map[string]any:
		out := make(map[string]any, len(node))
		for name, child := range node {
			out[name] = withImage(child, image)
		}

		if _, ok := node["image"]; ok {
			out["image"] = image
		}

		return out
	case []any:
		out := make([]any, len(node))
		for i := range node {
			out[i] = withImage(node[i], image)
		}

		return out
	}

	return node
}

// kubernetesVersion is the tag that the recorded Kubernetes images are shown with.
func kubernetesVersion(live coreconfig.Config) string {
	if live == nil || live.Machine() == nil || live.Cluster() == nil {
		return ""
	}

	image := live.Machine().Kubelet().Image()
	if live.Machine().Type().IsControlPlane() {
		image = live.Cluster().APIServer().Image()
	}

	image, _, _ = strings.Cut(image, "@")

	if i := strings.LastIndexByte(image, ':'); i > strings.LastIndexByte(image, '/') {
		return image[i+1:]
	}

	return ""
}
