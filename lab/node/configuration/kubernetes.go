package configuration

import (
	"fmt"
	"maps"
	"slices"

	"github.com/siderolabs/talos/pkg/machinery/config"

	"github.com/talos-operator/talos-operator/lab/cosi"
)

// removedFlags are those that kubelets knew once. One that is given such a flag ends at once.
var removedFlags = []string{
	"cni-bin-dir", "cni-conf-dir", "container-runtime", "docker-endpoint", "dynamic-config-dir", "network-plugin",
}

// UnknownFlag returns a flag in the config that the kubelet does not know; empty when there is none.
func UnknownFlag(cfg config.Provider) string {
	for _, flag := range slices.Sorted(maps.Keys(cfg.Machine().Kubelet().ExtraArgs())) {
		if slices.Contains(removedFlags, flag) {
			return flag
		}
	}

	return ""
}

// KubeletChanged reports whether the kubelet has to start anew for a config.
func KubeletChanged(old, cfg config.Provider) bool {
	describe := func(c config.Provider) string {
		k := c.Machine().Kubelet()

		return fmt.Sprint(k.Image(), k.ExtraArgs(), k.ExtraMounts(), k.ExtraConfig(), k.ClusterDNS())
	}

	return describe(old) != describe(cfg)
}

// APIServerChanged reports whether the API server has to start anew for a config.
func APIServerChanged(old, cfg config.Provider) bool {
	describe := func(c config.Provider) string {
		cl := c.Cluster()

		return fmt.Sprint(cl.APIServer().Image(), cl.APIServer().ExtraArgs(), cl.CertSANs(), cl.AcceptedCAs(), cl.IssuingCA(),
			cl.Endpoint(), cl.Network().ServiceCIDRs(), cl.ServiceAccount(), cl.AggregatorCA(), cl.APIServer().Env())
	}

	return describe(old) != describe(cfg)
}

// SameToken reports whether the nodes of two configs join with the same token.
func SameToken(a, b config.Provider) bool {
	return a.Cluster().Token().ID() == b.Cluster().Token().ID() &&
		a.Cluster().Token().Secret() == b.Cluster().Token().Secret()
}

// StaticPods are those of a control-plane node.
var StaticPods = []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler"}

// Pods returns the manifests of the static pods of a node by name, and their statuses by namespace/name.
func Pods(cfg config.Provider, node string, ready bool) (pods, statuses map[string]map[string]any) {
	condition := "False"
	if ready {
		condition = "True"
	}

	pods, statuses = map[string]map[string]any{}, map[string]map[string]any{}

	for _, name := range StaticPods {
		pods[name] = map[string]any{
			"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": name, "namespace": "kube-system"},
			"spec": map[string]any{"containers": []any{map[string]any{"name": name, "command": podCommand(name, cfg)}}},
		}
		statuses["kube-system/"+name+"-"+node] = map[string]any{
			"phase": "Running", "conditions": []any{map[string]any{"type": "Ready", "status": condition}},
		}
	}

	return pods, statuses
}

// podCommand returns the command of a static pod, with what the machine config adds to it.
func podCommand(name string, cfg config.Provider) []any {
	out := []any{"/usr/local/bin/" + name}
	if cfg == nil || cfg.Cluster() == nil {
		return out
	}

	extra := map[string]map[string][]string{
		StaticPods[0]: cfg.Cluster().APIServer().ExtraArgs(),
		StaticPods[1]: cfg.Cluster().ControllerManager().ExtraArgs(),
		StaticPods[2]: cfg.Cluster().Scheduler().ExtraArgs(),
	}[name]

	for _, arg := range cosi.Arguments(extra) {
		out = append(out, arg)
	}

	return out
}
