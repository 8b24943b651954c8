package talos

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"

	"github.com/talos-operator/talos-operator/internal/text"
)

// serviceRunning is the state of a running service.
const serviceRunning = "Running"

// KubeletStandsAlone reports whether the kubelet of the node runs with a configuration that keeps it from registering
// with Kubernetes (machine.kubelet.skipNodeRegistration): such a node never gets a Node object.
func (n *Node) KubeletStandsAlone(ctx context.Context) (bool, error) {
	live, err := n.MachineConfig(ctx)
	if err != nil {
		return false, err
	}

	parsed, err := configloader.NewFromBytes(live)
	if err != nil || parsed.Machine() == nil {
		return false, fmt.Errorf("the machine config of %s cannot be read", n.name()) // the cause may quote it
	}

	if !parsed.Machine().Kubelet().SkipNodeRegistration() {
		return false, nil
	}

	kubelet, err := n.Service(ctx, "kubelet")

	return kubelet.State == serviceRunning, err
}

// overriddenName returns the name that a kubelet registers with according to its arguments; empty if they name none.
// Talos passes its Nodename, but an extra argument of the configuration replaces that, and Nodename remains as it is.
func overriddenName(args []string) string {
	var name string

	for _, arg := range args {
		if value, is := strings.CutPrefix(arg, "--hostname-override="); is {
			name = strings.ToLower(strings.TrimSpace(value)) // as the kubelet does
		}
	}

	return name
}

// derivedName returns the name that Talos gives the kubelet, unless an argument replaces it; empty if there is none.
func derivedName(ctx context.Context, r *reader) string {
	n := get[*k8s.Nodename](ctx, r, k8s.NamespaceName, k8s.NodenameType, k8s.NodenameID)
	if n == nil {
		return ""
	}

	return n.TypedSpec().Nodename
}

// kubeletName returns the name that the kubelet registers with; empty if it has none.
func kubeletName(ctx context.Context, r *reader) string {
	if k := get[*k8s.KubeletSpec](ctx, r, k8s.NamespaceName, k8s.KubeletSpecType, k8s.KubeletID); k != nil {
		if name := overriddenName(k.TypedSpec().Args); name != "" {
			return name
		}
	}

	return derivedName(ctx, r)
}

// RunningPods returns the pods of which the node runs containers, as namespace/name, whether Kubernetes has them or
// not. Static pods are left out: they remain for as long as the configuration has them.
func (n *Node) RunningPods(ctx context.Context) ([]string, error) {
	containers, err := n.Containers(ctx)
	if err != nil {
		return nil, err
	}

	pods := podsOf(containers)
	if len(pods) == 0 {
		return nil, nil
	}

	static, err := n.staticNames(ctx)
	if err != nil {
		return nil, err
	}

	return slices.DeleteFunc(pods, func(pod string) bool { return static[pod] }), nil
}

// podsOf returns the pods of the containers that run. A container counts as running unless the runtime reports that it
// has exited.
func podsOf(containers []Container) []string {
	var out []string

	for _, c := range containers {
		// A service of Talos has no namespace.
		if strings.Contains(c.Pod, "/") && !strings.Contains(c.Status, "EXITED") {
			out = append(out, text.Name(c.Pod))
		}
	}

	slices.Sort(out)

	return slices.Compact(out)
}
