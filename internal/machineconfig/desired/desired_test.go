package desired_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/machineconfig"
	"github.com/talos-operator/talos-operator/internal/machineconfig/desired"
	"github.com/talos-operator/talos-operator/internal/machineconfig/kernel"
	"github.com/talos-operator/talos-operator/internal/machineconfig/keyref"
)

// TestExtensionServices: a service of a machine replaces that of its group as a whole, and the others of the group stay.
func TestExtensionServices(t *testing.T) {
	service := func(name, value string) v1alpha1.ExtensionService {
		return v1alpha1.ExtensionService{Name: name, Environment: []v1alpha1.ExtensionVariable{{Name: "OF", Value: value}}}
	}

	s := desired.Sources{
		ControlPlane: &v1alpha1.TalosControlPlane{}, Worker: &v1alpha1.TalosWorker{}, Machine: &v1alpha1.TalosMachine{},
	}
	s.Worker.Spec.ExtensionServices = []v1alpha1.ExtensionService{service("b", "group"), service("a", "group")}
	s.Machine.Spec.ExtensionServices = []v1alpha1.ExtensionService{service("c", "machine"), service("b", "machine")}

	want := []v1alpha1.ExtensionService{service("a", "group"), service("b", "machine"), service("c", "machine")}
	if diff := cmp.Diff(want, desired.ExtensionServices(s)); diff != "" {
		t.Errorf("of a worker (-want +got):\n%s", diff)
	}

	s.Worker, s.ControlPlane.Spec.ExtensionServices = nil, []v1alpha1.ExtensionService{service("b", "group")}

	if diff := cmp.Diff(want[1:], desired.ExtensionServices(s)); diff != "" {
		t.Errorf("of a control-plane machine (-want +got):\n%s", diff)
	}
}

// TestKubePrismFixed: patches of KubePrism are refused for a cluster whose state has its address.
func TestKubePrismFixed(t *testing.T) {
	cp := &v1alpha1.TalosControlPlane{}
	bundle := &clusterstate.Bundle{}

	for made, want := range map[string]bool{desired.BundleConfig(cp).KubePrism: true, "off": true, "": false} {
		s := desired.Sources{ControlPlane: cp, Machine: &v1alpha1.TalosMachine{}, State: &clusterstate.State{
			Bundle: bundle, BundleConfig: clusterstate.BundleConfig{KubePrism: made},
		}}
		if got := desired.Input(s).KubePrismFixed; got != want {
			t.Errorf("%q: %t", made, got)
		}
	}
}

// TestKernel: what a machine sets for the kernel replaces the same thing of its group, in whatever spelling.
func TestKernel(t *testing.T) {
	s := desired.Sources{ControlPlane: &v1alpha1.TalosControlPlane{}, Machine: &v1alpha1.TalosMachine{}}
	group, machine := &s.ControlPlane.Spec, &s.Machine.Spec

	group.Kernel = &v1alpha1.KernelOptions{Modules: []v1alpha1.KernelModule{{Name: "br_netfilter"}, {Name: "a"}}}
	group.Sysctls = map[string]string{"net.ipv4.ip_forward": "1", "vm.swappiness": "1"}
	group.Sysfs = map[string]string{"a.b": "group"}
	machine.Kernel = &v1alpha1.KernelOptions{Modules: []v1alpha1.KernelModule{
		{Name: "z"}, {Name: "br-netfilter", Parameters: []string{"c=d"}},
	}}
	machine.Sysctls = map[string]string{"net/ipv4/ip_forward": "0"}
	machine.Sysfs = map[string]string{"a/b": "machine", "c.d": "machine"}

	want := kernel.Settings{
		Modules: []v1alpha1.KernelModule{{Name: "br-netfilter", Parameters: []string{"c=d"}}, {Name: "a"}, {Name: "z"}},
		Sysctls: map[string]string{"net/ipv4/ip_forward": "0", "vm.swappiness": "1"},
		Sysfs:   map[string]string{"a/b": "machine", "c.d": "machine"},
	}
	if diff := cmp.Diff(want, desired.Kernel(s)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestVolumes: a volume of a machine replaces that of its group as a whole, and the others of the group stay.
func TestVolumes(t *testing.T) {
	s := desired.Sources{ControlPlane: &v1alpha1.TalosControlPlane{}, Machine: &v1alpha1.TalosMachine{}}
	if desired.Volumes(s) != nil {
		t.Error("there are volumes of nothing")
	}

	locked := &v1alpha1.StateVolume{Encryption: &v1alpha1.VolumeEncryption{}}
	cache, own := &v1alpha1.VolumeOptions{MinSize: "1GiB"}, &v1alpha1.VolumeOptions{MaxSize: "2GiB"}
	s.ControlPlane.Spec.Volumes = &v1alpha1.Volumes{Ephemeral: cache, State: locked, ImageCache: cache}

	if diff := cmp.Diff(s.ControlPlane.Spec.Volumes, desired.Volumes(s)); diff != "" {
		t.Errorf("of a group (-want +got):\n%s", diff)
	}

	user := func(name, size string) v1alpha1.UserVolume {
		return v1alpha1.UserVolume{Name: name, VolumeOptions: v1alpha1.VolumeOptions{MinSize: size}}
	}
	s.ControlPlane.Spec.Volumes.User = []v1alpha1.UserVolume{user("b", "1GiB"), user("a", "1GiB")}
	s.Machine.Spec.Volumes = &v1alpha1.Volumes{Ephemeral: own, User: []v1alpha1.UserVolume{user("b", "2GiB")}}

	want := &v1alpha1.Volumes{
		Ephemeral: own, State: locked, ImageCache: cache, User: []v1alpha1.UserVolume{user("a", "1GiB"), user("b", "2GiB")},
	}
	if diff := cmp.Diff(want, desired.Volumes(s)); diff != "" {
		t.Errorf("of a machine (-want +got):\n%s", diff)
	}
}

// TestStaticPods: a static pod of a machine replaces that of its group, and the others of the group stay.
func TestStaticPods(t *testing.T) {
	pod := func(name, of string) runtime.RawExtension {
		return runtime.RawExtension{Raw: []byte(`{"metadata":{"name":"` + name + `","labels":{"of":"` + of + `"}}}`)}
	}

	s := desired.Sources{ControlPlane: &v1alpha1.TalosControlPlane{}, Machine: &v1alpha1.TalosMachine{}}
	s.ControlPlane.Spec.StaticPods = []runtime.RawExtension{pod("b", "group"), pod("a", "group")}
	s.Machine.Spec.StaticPods = []runtime.RawExtension{pod("b", "machine")}

	want := []runtime.RawExtension{pod("a", "group"), pod("b", "machine")}
	if diff := cmp.Diff(want, desired.StaticPods(s)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestSharedHosts: a machine replaces a host of its group however its address is spelt, and keeps the order of its own where
// the group has none.
func TestSharedHosts(t *testing.T) {
	host := func(address, name string) v1alpha1.StaticHost {
		return v1alpha1.StaticHost{Address: address, Hostnames: []string{name}}
	}

	s := sourcesOf(t)
	s.Machine.Spec.Network = &v1alpha1.MachineNetwork{SharedNetwork: v1alpha1.SharedNetwork{
		Hosts: []v1alpha1.StaticHost{host("fd00:0::9", "own"), host("10.0.0.8", "own")},
	}}
	own := s.Machine.Spec.Network.Hosts

	s.ControlPlane.Spec.MachineNetwork = &v1alpha1.SharedNetwork{Nameservers: []string{"10.0.0.2"}}
	if diff := cmp.Diff(own, desired.Input(s).Machine.Hosts); diff != "" {
		t.Errorf("beside a group without hosts (-want +got):\n%s", diff)
	}

	s.ControlPlane.Spec.MachineNetwork.Hosts = []v1alpha1.StaticHost{host("fd00::9", "group"), host("10.0.0.7", "group")}
	want := []v1alpha1.StaticHost{host("10.0.0.7", "group"), host("10.0.0.8", "own"), host("fd00:0::9", "own")}

	if diff := cmp.Diff(want, desired.Input(s).Machine.Hosts); diff != "" {
		t.Errorf("beside a group with hosts (-want +got):\n%s", diff)
	}
}

// TestNodeAnnotations: a machine has the annotations of its group and its own, which take precedence.
func TestNodeAnnotations(t *testing.T) {
	s := sourcesOf(t)
	s.ControlPlane.Spec.NodeAnnotations = map[string]string{"a": "group", "b": "group"}
	s.Machine.Spec.NodeAnnotations = map[string]string{"b": "machine"}

	want := map[string]string{"a": "group", "b": "machine"}
	if diff := cmp.Diff(want, desired.Input(s).NodeAnnotations); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestNodeTaints: a taint of a machine replaces that of its group with the same key, as Talos knows one for each key.
func TestNodeTaints(t *testing.T) {
	s := sourcesOf(t)
	s.ControlPlane.Spec.NodeTaints = []corev1.Taint{{Key: "a", Effect: "NoSchedule"}, {Key: "b", Value: "group", Effect: "NoExecute"}}
	s.Machine.Spec.NodeTaints = []corev1.Taint{{Key: "b", Value: "machine", Effect: "NoSchedule"}}

	want := []machineconfig.Taint{{Key: "a", Effect: "NoSchedule"}, {Key: "b", Value: "machine", Effect: "NoSchedule"}}
	if diff := cmp.Diff(want, desired.Input(s).NodeTaints); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestSharedNetwork: what the machines of a group share is in the configuration of each; a list of a machine replaces it,
// and hosts do so by their addresses. Which of them a field comes from is told.
func TestSharedNetwork(t *testing.T) {
	host := func(address, name string) v1alpha1.StaticHost {
		return v1alpha1.StaticHost{Address: address, Hostnames: []string{name}}
	}
	group := v1alpha1.SharedNetwork{
		Nameservers: []string{"10.0.0.2"}, SearchDomains: []string{"example.org"}, TimeServers: []string{"ntp.example.org"},
		DisableDefaultSearchDomain: new(true), Hosts: []v1alpha1.StaticHost{host("10.0.0.9", "b"), host("10.0.0.8", "a")},
	}

	for role, s := range map[string]desired.Sources{"ControlPlane": sourcesOf(t), "Worker": sourcesOf(t)} {
		s.Machine.Name, s.ControlPlane.Name = "m", "group"

		if role == "Worker" {
			s.Machine.Spec.Role = v1alpha1.RoleWorker
			s.Worker = &v1alpha1.TalosWorker{ObjectMeta: metav1.ObjectMeta{Name: "group"}}
			s.Worker.Spec.MachineNetwork = &group
			s.ControlPlane.Spec.MachineNetwork = &v1alpha1.SharedNetwork{Nameservers: []string{"10.0.0.250"}}
		} else {
			s.ControlPlane.Spec.MachineNetwork = &group
		}

		want := v1alpha1.MachineNetwork{Hostname: s.Machine.Name, SharedNetwork: group}
		want.Hosts = []v1alpha1.StaticHost{host("10.0.0.8", "a"), host("10.0.0.9", "b")}

		if diff := cmp.Diff(want, desired.Input(s).Machine); diff != "" {
			t.Errorf("%s, of the group (-want +got):\n%s", role, diff)
		}

		s.Machine.Spec.Network = &v1alpha1.MachineNetwork{Hostname: "n", SharedNetwork: v1alpha1.SharedNetwork{
			Nameservers: []string{"10.0.0.3"}, DisableDefaultSearchDomain: new(false),
			Hosts: []v1alpha1.StaticHost{host("10.0.0.9", "own")},
		}}
		want = v1alpha1.MachineNetwork{Hostname: "n", SharedNetwork: v1alpha1.SharedNetwork{
			Nameservers: []string{"10.0.0.3"}, SearchDomains: group.SearchDomains, TimeServers: group.TimeServers,
			DisableDefaultSearchDomain: new(false), Hosts: []v1alpha1.StaticHost{host("10.0.0.8", "a"), host("10.0.0.9", "own")},
		}}

		if diff := cmp.Diff(want, desired.Input(s).Machine); diff != "" {
			t.Errorf("%s, of the machine (-want +got):\n%s", role, diff)
		}

		origins, err := machineconfig.Explain(desired.Layers(s), nil, false)
		if err != nil {
			t.Fatal(err)
		}

		layers := map[string]string{}
		for _, o := range origins {
			layers[o.Field] = o.Layer
		}

		if at, want := layers["TimeSyncConfig: ntp.servers[0]"], "fields of Talos"+role+" group"; at != want {
			t.Errorf("%s: the time servers are from the %q, not from the %s", role, at, want)
		}

		if at := layers["ResolverConfig: nameservers[0].address"]; at != "fields of TalosMachine m" {
			t.Errorf("%s: the nameservers are from the %q", role, at)
		}
	}
}

// sourcesOf returns those of a control-plane machine without options.
func sourcesOf(t *testing.T) desired.Sources {
	t.Helper()

	secrets, err := os.ReadFile("../testdata/secrets.yaml")
	if err != nil {
		t.Fatal(err)
	}

	bundle, err := clusterstate.ParseBundle(secrets)
	if err != nil {
		t.Fatal(err)
	}

	s := desired.Sources{
		ControlPlane: &v1alpha1.TalosControlPlane{}, Machine: &v1alpha1.TalosMachine{}, Disk: "/dev/sda",
		State: &clusterstate.State{
			Bundle: bundle, BundleConfig: clusterstate.BundleConfig{ClusterName: "c", Contract: "v1.13"},
		},
	}
	s.ControlPlane.Spec.Endpoint, s.ControlPlane.Spec.TalosVersion = "https://10.0.0.1:6443", "v1.13.9"
	s.ControlPlane.Spec.KubernetesVersion, s.Machine.Spec.Role = "v1.36.2", v1alpha1.RoleControlPlane

	return s
}

// everyVolume are volumes of all kinds that can be encrypted, with one key.
func everyVolume(key v1alpha1.VolumeKey) *v1alpha1.Volumes {
	locked := &v1alpha1.VolumeEncryption{Keys: []v1alpha1.VolumeKey{key}}
	placed := v1alpha1.VolumeOptions{DiskSelector: "disk.rotational", MinSize: "1GiB", Encryption: locked}

	return &v1alpha1.Volumes{
		State: &v1alpha1.StateVolume{Encryption: locked}, Ephemeral: &v1alpha1.VolumeOptions{Encryption: locked},
		ImageCache: &v1alpha1.VolumeOptions{Encryption: locked},
		User:       []v1alpha1.UserVolume{{Name: "u", VolumeOptions: placed}},
		Raw:        []v1alpha1.PartitionVolume{{Name: "r", VolumeOptions: placed}},
		Swap:       []v1alpha1.PartitionVolume{{Name: "s", VolumeOptions: placed}},
	}
}

// TestVolumeLayers: a volume of a group whose encryption a machine replaces, or whose size, is still one of the group.
func TestVolumeLayers(t *testing.T) {
	s := sourcesOf(t)
	s.ControlPlane.Spec.Volumes = everyVolume(v1alpha1.VolumeKey{
		Slot: new(int32), Type: v1alpha1.VolumeKeyStatic,
		Static: &v1alpha1.VolumeKeyStaticOptions{PassphraseFrom: v1alpha1.SecretKeyReference{Name: "group", Key: "k"}},
	})
	s.ControlPlane.Spec.Volumes.Ephemeral.MaxSize = "20GiB"

	plain := v1alpha1.VolumeOptions{DiskSelector: "disk.rotational", MinSize: "1GiB"}
	s.ControlPlane.Spec.Volumes.User = append(s.ControlPlane.Spec.Volumes.User, v1alpha1.UserVolume{Name: "plain", VolumeOptions: plain})

	s.Machine.Spec.Volumes = everyVolume(v1alpha1.VolumeKey{Slot: new(int32), Type: v1alpha1.VolumeKeyNodeID})
	s.Machine.Spec.Volumes.Ephemeral.MaxSize = "20GiB"
	plain.MaxSize = "2GiB"
	s.Machine.Spec.Volumes.User = append(s.Machine.Spec.Volumes.User, v1alpha1.UserVolume{Name: "plain", VolumeOptions: plain})

	origins, err := machineconfig.Explain(desired.Layers(s), nil, false)
	if err != nil {
		t.Fatal(err)
	}

	layers := map[string]string{}
	for _, o := range origins {
		layers[o.Field], _, _ = strings.Cut(strings.TrimPrefix(o.Layer, "fields of "), " ")
	}

	for field, want := range map[string]string{
		"UserVolumeConfig/plain: provisioning.minSize":       "TalosControlPlane",
		"UserVolumeConfig/plain: provisioning.maxSize":       "TalosMachine",
		"UserVolumeConfig/u: provisioning.minSize":           "TalosControlPlane",
		"UserVolumeConfig/u: encryption.provider":            "TalosMachine",
		"RawVolumeConfig/r: provisioning.diskSelector.match": "TalosControlPlane",
		"SwapVolumeConfig/s: provisioning.minSize":           "TalosControlPlane",
		"VolumeConfig/EPHEMERAL: provisioning.maxSize":       "TalosControlPlane",
		"VolumeConfig/EPHEMERAL: encryption.provider":        "TalosMachine",
		"VolumeConfig/STATE: encryption.provider":            "TalosMachine",
		"VolumeConfig/IMAGECACHE: encryption.provider":       "TalosMachine",
	} {
		if layers[field] != want {
			t.Errorf("%s is of %q, not %s", field, layers[field], want)
		}
	}
}

// TestLayers: where a machine takes credentials, certificates, variables and keys from elsewhere than its group, those of
// the group are not needed to explain the configuration: they are not read.
func TestLayers(t *testing.T) {
	config := func(auth v1alpha1.RegistryAuth) *v1alpha1.Registries {
		return &v1alpha1.Registries{Config: []v1alpha1.RegistryConfig{{Host: "a", Auth: &auth}}}
	}

	s := sourcesOf(t)
	bundle := s.State.Bundle
	s.ControlPlane.Spec.Registries = config(v1alpha1.RegistryAuth{AuthFrom: &v1alpha1.SecretKeyReference{Name: "group", Key: "k"}})
	s.Machine.Spec.Registries = config(v1alpha1.RegistryAuth{IdentityTokenFrom: &v1alpha1.SecretKeyReference{Name: "own", Key: "k"}})

	group, from := &s.ControlPlane.Spec.NodeOptions, v1alpha1.SecretKeyReference{Name: "group", Key: "k"}
	group.Environment = []v1alpha1.EnvironmentVariable{{Name: "A", ValueFrom: &from}}
	group.TrustedRoots = []v1alpha1.TrustedRoot{{Name: "r", CertificatesFrom: &v1alpha1.KeyReference{Kind: "Secret", Name: "group", Key: "k"}}}
	group.Volumes = everyVolume(v1alpha1.VolumeKey{
		Slot: new(int32), Type: v1alpha1.VolumeKeyStatic, Static: &v1alpha1.VolumeKeyStaticOptions{PassphraseFrom: from},
	})
	s.Machine.Spec.Environment = []v1alpha1.EnvironmentVariable{{Name: "A", Value: "b"}}
	s.Machine.Spec.TrustedRoots = []v1alpha1.TrustedRoot{{Name: "r", Certificates: string(bundle.Secrets().Certs.K8s.Crt)}}
	s.Machine.Spec.Volumes = everyVolume(v1alpha1.VolumeKey{Slot: new(int32), Type: v1alpha1.VolumeKeyNodeID})

	for _, ref := range desired.Refs(s) {
		if ref.From.Name != "own" {
			t.Errorf("%s is read, too", ref.From.Name)
		}

		s.From.Values = keyref.Values{ref.Field: "a-token"}
	}

	origins, err := machineconfig.Explain(desired.Layers(s), nil, false)
	at := slices.IndexFunc(origins, func(o machineconfig.Origin) bool { return o.Field == "RegistryAuthConfig/a: identityToken" })

	if err != nil || at < 0 || origins[at].Value != machineconfig.Redacted || !strings.HasPrefix(origins[at].Layer, "fields of TalosMachine") {
		t.Errorf("%v: %+v", err, origins)
	}
}

// TestSystem: a machine replaces settings of its group by their names, or as a whole where they have none.
func TestSystem(t *testing.T) {
	root := func(name, of string) v1alpha1.TrustedRoot { return v1alpha1.TrustedRoot{Name: name, Certificates: of} }
	variable := func(name, of string) v1alpha1.EnvironmentVariable {
		return v1alpha1.EnvironmentVariable{Name: name, Value: of}
	}
	log := func(name, of string) v1alpha1.KernelLog { return v1alpha1.KernelLog{Name: name, URL: of} }
	timer := func(of string) *v1alpha1.WatchdogTimer { return &v1alpha1.WatchdogTimer{Device: of} }
	access := &v1alpha1.KubernetesTalosAPIAccess{AllowedRoles: []v1alpha1.TalosRole{"os:reader"}}

	s := desired.Sources{ControlPlane: &v1alpha1.TalosControlPlane{}, Machine: &v1alpha1.TalosMachine{}}
	s.ControlPlane.Spec.SystemOptions = v1alpha1.SystemOptions{
		TrustedRoots: []v1alpha1.TrustedRoot{root("b", "group"), root("a", "group")}, WatchdogTimer: timer("group"),
		Environment: []v1alpha1.EnvironmentVariable{variable("A", "group"), variable("B", "group")},
		Logging: &v1alpha1.Logging{
			Destinations: []v1alpha1.LoggingDestination{{Endpoint: "group"}}, Kernel: []v1alpha1.KernelLog{log("a", "group")},
		},
		Features: &v1alpha1.Features{KubernetesTalosAPIAccess: access, HostDNS: &v1alpha1.HostDNS{Enabled: new(true)}},
	}

	if diff := cmp.Diff(s.ControlPlane.Spec.Features, desired.System(s).Features); diff != "" {
		t.Errorf("of a group (-want +got):\n%s", diff)
	}

	s.Machine.Spec.SystemOptions = v1alpha1.SystemOptions{
		TrustedRoots: []v1alpha1.TrustedRoot{root("b", "machine")}, WatchdogTimer: timer("machine"),
		Environment: []v1alpha1.EnvironmentVariable{variable("A", "machine")},
		Logging:     &v1alpha1.Logging{Kernel: []v1alpha1.KernelLog{log("b", "machine")}},
		Features:    &v1alpha1.Features{HostDNS: &v1alpha1.HostDNS{Enabled: new(false)}},
	}
	want := v1alpha1.SystemOptions{
		TrustedRoots: []v1alpha1.TrustedRoot{root("a", "group"), root("b", "machine")}, WatchdogTimer: timer("machine"),
		Environment: []v1alpha1.EnvironmentVariable{variable("A", "machine"), variable("B", "group")},
		Logging: &v1alpha1.Logging{
			Destinations: []v1alpha1.LoggingDestination{{Endpoint: "group"}},
			Kernel:       []v1alpha1.KernelLog{log("a", "group"), log("b", "machine")},
		},
		Features: &v1alpha1.Features{KubernetesTalosAPIAccess: access, HostDNS: &v1alpha1.HostDNS{Enabled: new(false)}},
	}

	if diff := cmp.Diff(want, desired.System(s)); diff != "" {
		t.Errorf("of a machine (-want +got):\n%s", diff)
	}
}
