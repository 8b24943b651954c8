package talos

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/upgrade"
	"github.com/talos-operator/talos-operator/internal/failure"
)

// controlPlanePods are the static pods that each control-plane node runs, by the names of their resources.
var controlPlanePods = []string{k8s.APIServerID, k8s.ControllerManagerID, k8s.SchedulerID}

// KubernetesFlags queries the arguments that the node runs the components of Kubernetes with. A node that does not
// report all of them is an error: what it does not report may be what an upgrade breaks.
func (n *Node) KubernetesFlags(ctx context.Context, controlPlane bool) (upgrade.Flags, error) {
	ctx, cancel := context.WithTimeout(ctx, factsTimeout)
	defer cancel()

	out, r := upgrade.Flags{}, &reader{c: n.c}
	missing := ""

	if k := get[*k8s.KubeletSpec](ctx, r, k8s.NamespaceName, k8s.KubeletSpecType, k8s.KubeletID); k != nil {
		out.Kubelet = append(slices.Clone(k.TypedSpec().Args), gatesOf(k.TypedSpec().Config)...)
	} else {
		missing = k8s.KubeletID
	}

	if controlPlane {
		out.Pods = map[string][]string{}

		for _, id := range controlPlanePods {
			if p := get[*k8s.StaticPod](ctx, r, k8s.NamespaceName, k8s.StaticPodType, id); p != nil {
				out.Pods[id] = argumentsOf(p.TypedSpec().Pod)
			}

			if len(out.Pods[id]) == 0 {
				missing = id
			}
		}
	}

	if r.err == nil && missing != "" {
		return out, failure.Waiting(v1alpha1.ReasonBooting, fmt.Sprintf("%s does not report the arguments of %s", n.name(),
			missing), retryPrecondition)
	}

	return out, classify("the arguments of Kubernetes", n.name(), r.err)
}

// gatesOf returns the feature gates of a kubelet's configuration file as an argument.
func gatesOf(config map[string]any) []string {
	gates, ok := config["featureGates"].(map[string]any)
	if !ok || len(gates) == 0 {
		return nil
	}

	out := make([]string, 0, len(gates))
	for _, name := range slices.Sorted(maps.Keys(gates)) {
		out = append(out, fmt.Sprintf("%s=%v", name, gates[name]))
	}

	return []string{"--feature-gates=" + strings.Join(out, ",")}
}

// argumentsOf returns the command and the arguments of the first container of a pod, as Talos renders it.
func argumentsOf(pod map[string]any) []string {
	spec, _ := pod["spec"].(map[string]any)
	containers, _ := spec["containers"].([]any)

	if len(containers) == 0 {
		return nil
	}

	container, _ := containers[0].(map[string]any)

	var out []string

	for _, key := range []string{"command", "args"} {
		list, _ := container[key].([]any)
		for _, item := range list {
			if text, ok := item.(string); ok {
				out = append(out, text)
			}
		}
	}

	return out
}
