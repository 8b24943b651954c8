package workload

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/state"
	kubernetesupgrade "github.com/siderolabs/go-kubernetes/kubernetes/upgrade"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/upgrade"
	"github.com/talos-operator/talos-operator/internal/failure"
)

// Removed returns what is in use that Kubernetes removes on the way through minors, such as 1.35 and 1.36. The tables
// are those of talosctl upgrade-k8s. What is removed after the last minor that they have is unknown, which is an error.
func (c *Cluster) Removed(ctx context.Context, flags []upgrade.Flags, minors []string) ([]upgrade.Removed, error) {
	var out []upgrade.Removed

	for i := 1; i < len(minors); i++ {
		found, err := c.removedBy(ctx, flags, minors[i-1], minors[i])
		if err != nil {
			return nil, err
		}

		out = append(out, found...)
	}

	return out, nil
}

func (c *Cluster) removedBy(
	ctx context.Context, flags []upgrade.Flags, from, to string,
) ([]upgrade.Removed, error) {
	path, err := kubernetesupgrade.NewPath(from, to)
	if err != nil {
		return nil, fmt.Errorf("planning the checks from Kubernetes %s to %s: %w", from, to, err)
	}

	if !path.IsSupported() {
		return nil, failure.Terminal(v1alpha1.ReasonUpgradePending, "this version of the operator does not know what "+
			"Kubernetes "+to+" removes", nil)
	}

	nodes := nodesOf(flags)

	checks, err := kubernetesupgrade.NewChecksWithStateProvider(path, nodes.state, c.boundedLists(), nodes.names(),
		nil, func(string, ...any) {})
	if err != nil {
		return nil, fmt.Errorf("preparing the checks from Kubernetes %s to %s: %w", from, to, err)
	}

	var found kubernetesupgrade.ComponentRemovedItemsError

	switch err = checks.Run(ctx); {
	case err == nil:
		return nil, nil
	case errors.As(err, &found):
		return nodes.removed(found), nil
	}

	return nil, failure.Transient(v1alpha1.ReasonAPIServerUnavailable, "the objects of the APIs that Kubernetes "+to+
		" removes cannot be listed", err)
}

// boundedLists returns the configuration of a client whose lists end with the first page. The library lists without a
// limit, and one object is enough.
func (c *Cluster) boundedLists() *rest.Config {
	cfg := rest.CopyConfig(c.rest)
	cfg.WrapTransport = transport.Wrappers(cfg.WrapTransport, func(next http.RoundTripper) http.RoundTripper {
		return firstPage{next}
	})

	return cfg
}

type firstPage struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (p firstPage) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	query := req.URL.Query()
	query.Set("limit", strconv.Itoa(upgrade.ManyObjects))
	req.URL.RawQuery = query.Encode()

	return p.RoundTripper.RoundTrip(req)
}

// checkedNodes are nodes as the library sees them, by name. A kubelet is a node of its own for its feature gates: the
// library checks those of control planes only, and a kubelet does not start with one that it does not know, either.
type checkedNodes map[string]checkedNode

type checkedNode struct {
	state.State // only Get is called

	machine string
	// kubelet: the node has the arguments of a kubelet.
	kubelet bool
	// arguments by static pod, and of the kubelet by its ID.
	arguments map[string][]string
}

// kubeletNode is the prefix of the names of nodes that stand for kubelets. No machine has a name with a slash.
const kubeletNode = "kubelet/"

func nodesOf(flags []upgrade.Flags) checkedNodes {
	out := checkedNodes{}

	for _, f := range flags {
		gates := slices.DeleteFunc(merged(f.Kubelet), func(arg string) bool {
			return !strings.HasPrefix(arg, gatesFlag+"=")
		})
		out[kubeletNode+f.Machine] = checkedNode{machine: f.Machine, kubelet: true, arguments: map[string][]string{
			k8s.KubeletID: f.Kubelet, k8s.SchedulerID: gates, // any pod would do
		}}

		if f.Pods == nil {
			continue
		}

		n := checkedNode{machine: f.Machine, arguments: map[string][]string{}}
		for id, args := range f.Pods {
			n.arguments[id] = merged(args)
		}

		out[f.Machine] = n
	}

	return out
}

const (
	gatesFlag   = "--feature-gates"
	pluginsFlag = "--enable-admission-plugins"
)

// merged returns arguments with one flag for all feature gates and one for all admission plugins: the library reads the
// first one only.
func merged(args []string) []string {
	var out []string

	lists := map[string][]string{}

	for _, arg := range args {
		name, value, ok := strings.Cut(arg, "=")
		if ok && (name == gatesFlag || name == pluginsFlag) {
			lists[name] = append(lists[name], value)
		} else {
			out = append(out, arg)
		}
	}

	for _, name := range []string{gatesFlag, pluginsFlag} {
		if len(lists[name]) > 0 {
			out = append(out, name+"="+strings.Join(lists[name], ","))
		}
	}

	return out
}

// names returns all nodes. The library checks the static pods and the kubelets of each.
func (n checkedNodes) names() []string { return slices.Sorted(maps.Keys(n)) }

func (n checkedNodes) state(_ context.Context, node string) (state.State, error) { return n[node], nil }

// Get implements state.State.
func (n checkedNode) Get(_ context.Context, at resource.Pointer, _ ...state.GetOption) (resource.Resource, error) {
	args := n.arguments[at.ID()]

	if at.Type() == k8s.KubeletSpecType {
		spec := k8s.NewKubeletSpec(k8s.NamespaceName, k8s.KubeletID)
		spec.TypedSpec().Args = args

		return spec, nil
	}

	pod := k8s.NewStaticPod(k8s.NamespaceName, at.ID())
	pod.TypedSpec().Pod = map[string]any{
		"spec": map[string]any{"containers": []any{map[string]any{"command": args}}},
	}

	return pod, nil
}

// removed returns the findings of the library.
func (n checkedNodes) removed(found kubernetesupgrade.ComponentRemovedItemsError) []upgrade.Removed {
	var out []upgrade.Removed

	for kind, items := range map[upgrade.RemovedKind][]kubernetesupgrade.ComponentItem{
		upgrade.RemovedFlag: found.CLIFlags, upgrade.RemovedFeatureGate: found.FeatureGates,
		upgrade.RemovedAdmissionPlugin: found.AdmissionFlags,
	} {
		for _, item := range items {
			of := upgrade.Removed{Kind: kind, Name: item.Value, Component: item.Component, Machine: n[item.Node].machine}
			if n[item.Node].kubelet {
				of.Component = k8s.KubeletID
			}

			out = append(out, of)
		}
	}

	for resource, count := range found.APIResources {
		out = append(out, upgrade.Removed{Kind: upgrade.RemovedResource, Name: resource, Objects: count})
	}

	return out
}
