package kubernetes

import (
	"encoding/base64"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// reserved are the flags that place the API server on its node. A config cannot move it: all nodes share one host.
var reserved = []string{
	"bind-address", "advertise-address", "secure-port", "etcd-servers", "etcd-cafile", "etcd-certfile", "etcd-keyfile",
	"audit-log-path", "audit-policy-file", "authorization-config",
}

func (o APIServerOptions) path(name string) string { return filepath.Join(o.Dir, name) }

// flags are those of a Talos node, as far as they mean something outside of a container.
func (o APIServerOptions) flags() []string {
	cluster := o.Config.Cluster()
	endpoint := cluster.Endpoint().String()
	file := func(flag, name string) string { return "--" + flag + "=" + o.path(name) }

	args := []string{
		"--bind-address=" + o.Address,
		"--advertise-address=" + o.Address,
		"--secure-port=" + apiPort,
		"--etcd-servers=https://" + net.JoinHostPort(o.Address, "2379"),
		file("etcd-cafile", "etcd-client-ca.crt"),
		file("etcd-certfile", "etcd-client.crt"),
		file("etcd-keyfile", "etcd-client.key"),
		"--allow-privileged=true",
		"--anonymous-auth=false",
		"--api-audiences=" + endpoint,
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--enable-bootstrap-token-auth=true",
		"--kubelet-preferred-address-types=InternalIP,ExternalIP,Hostname",
		"--profiling=false",
		"--requestheader-allowed-names=front-proxy-client",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-username-headers=X-Remote-User",
		"--service-account-issuer=" + endpoint,
		"--service-cluster-ip-range=" + strings.Join(cluster.Network().ServiceCIDRs(), ","),
		"--tls-min-version=VersionTLS12",
		file("admission-control-config-file", "admission-control-config.yaml"),
		file("encryption-provider-config", "encryptionconfig.yaml"),
		file("client-ca-file", "ca.crt"),
		file("kubelet-client-certificate", "apiserver-kubelet-client.crt"),
		file("kubelet-client-key", "apiserver-kubelet-client.key"),
		file("proxy-client-cert-file", "front-proxy-client.crt"),
		file("proxy-client-key-file", "front-proxy-client.key"),
		file("requestheader-client-ca-file", "aggregator-ca.crt"),
		file("service-account-key-file", "service-account.pub"),
		file("service-account-signing-key-file", "service-account.key"),
		file("tls-cert-file", "apiserver.crt"),
		file("tls-private-key-file", "apiserver.key"),
	}

	return slices.Concat(args, labFlags, cacheFlags(), o.emulation(), o.extraFlags())
}

// cacheFlags switch off what API servers keep in memory to serve watches when LAB_KUBERNETES_WATCH_CACHE=off, as the
// tests of this project do: half of what an API server costs while it rests. Clients see no bookmarks then and get
// lists where they ask for a stream of them.
func cacheFlags() []string {
	if os.Getenv("LAB_KUBERNETES_WATCH_CACHE") == "off" {
		return []string{"--watch-cache=false"}
	}

	return nil
}

// The binary can behave as one of the three minor versions before its own.
const (
	oldestEmulated = 34
	newestEmulated = 36
)

// emulation makes the API server offer the APIs and defaults of the version that it reports, as far as it can. One
// that reports an older version without emulating it would refuse to start.
func (o APIServerOptions) emulation() []string {
	var major, minor int

	version := versionOf(o.Config.Cluster().APIServer().Image())
	if _, err := fmt.Sscanf(version, "v%d.%d.", &major, &minor); err != nil || major != 1 {
		return nil
	}

	if minor < oldestEmulated || minor > newestEmulated {
		return nil
	}

	return []string{fmt.Sprintf("--emulated-version=%d.%d", major, minor)}
}

// labFlags make the API server start fast and stay small; nothing that a client sees depends on them.
var labFlags = []string{
	// Endpoints of the service "kubernetes" may not be loopback addresses, so the reconciler could only complain.
	"--endpoint-reconciler-type=none",
	// Fair queueing costs a set of goroutines and objects for a server that is never overloaded.
	"--enable-priority-and-fairness=false",
	// A stopping node must not wait for watches that never end: without a period of their own nothing ends them.
	"--shutdown-watch-termination-grace-period=1s",
	"--shutdown-delay-duration=0s",
	"--shutdown-send-retry-after=false",
	"--v=0",
}

// extraFlags are those that the machine config adds. They come last, so they win over the lab's own, as on Talos.
func (o APIServerOptions) extraFlags() []string {
	var args []string

	extra := o.Config.Cluster().APIServer().ExtraArgs()

	for _, name := range slices.Sorted(maps.Keys(extra)) {
		if slices.Contains(reserved, name) {
			continue
		}

		for _, value := range extra[name] {
			args = append(args, "--"+name+"="+value)
		}
	}

	return args
}

// admission renders the plugin configuration of the machine config.
func (o APIServerOptions) admission() ([]byte, error) {
	type plugin struct {
		Name          string         `json:"name"`
		Configuration map[string]any `json:"configuration,omitempty"`
	}

	plugins := []plugin{}
	for _, p := range o.Config.Cluster().APIServer().AdmissionControl() {
		plugins = append(plugins, plugin{Name: p.Name(), Configuration: p.Configuration()})
	}

	out, err := yaml.Marshal(map[string]any{
		"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration", "plugins": plugins,
	})
	if err != nil {
		return nil, fmt.Errorf("rendering the admission configuration: %w", err)
	}

	return out, nil
}

// encryption renders how Secrets lie in etcd. The key names are those of Talos: a snapshot restored elsewhere with
// the same secrets must stay readable.
func (o APIServerOptions) encryption() ([]byte, error) {
	type key struct {
		Name   string `json:"name"`
		Secret string `json:"secret"`
	}

	var providers []map[string]any

	for _, p := range []struct{ kind, name, secret string }{
		{"secretbox", "key2", o.Config.Cluster().SecretboxEncryptionSecret()},
		{"aescbc", "key1", o.Config.Cluster().AESCBCEncryptionSecret()},
	} {
		if p.secret == "" {
			continue
		}

		if _, err := base64.StdEncoding.DecodeString(p.secret); err != nil {
			return nil, fmt.Errorf("reading the %s encryption secret: it is not base64", p.kind)
		}

		providers = append(providers, map[string]any{p.kind: map[string]any{"keys": []key{{p.name, p.secret}}}})
	}

	providers = append(providers, map[string]any{"identity": map[string]any{}})

	out, err := yaml.Marshal(map[string]any{
		"apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration",
		"resources": []map[string]any{{"resources": []string{"secrets"}, "providers": providers}},
	})
	if err != nil {
		return nil, fmt.Errorf("rendering the encryption configuration: %w", err)
	}

	return out, nil
}
