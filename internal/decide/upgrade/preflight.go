package upgrade

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/blang/semver/v4"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/change"
	"github.com/talos-operator/talos-operator/internal/kube"
)

// Flags are the arguments that the components of Kubernetes on one machine run with.
type Flags struct {
	Machine string
	// Pods are those of the static pods of a control-plane machine, by name.
	Pods map[string][]string
	// Kubelet has the feature gates of the kubelet's configuration file as well, as arguments.
	Kubelet []string
}

// RemovedKind is what a version of Kubernetes removes.
type RemovedKind string

// Kinds of removals.
const (
	RemovedFlag            RemovedKind = "flag"
	RemovedFeatureGate     RemovedKind = "feature gate"
	RemovedAdmissionPlugin RemovedKind = "admission plugin"
	// RemovedResource is a resource of the API that is no longer served, and has objects.
	RemovedResource RemovedKind = "resource"
)

// Removed is something in use that a version of Kubernetes removes.
type Removed struct {
	Kind RemovedKind
	Name string
	// Component that has it, and the machine; empty for a resource.
	Component, Machine string
	// Objects of a resource; ManyObjects means that or more.
	Objects int
}

// ManyObjects is the number up to which objects of a resource are counted: one is enough to refuse an upgrade.
const ManyObjects = 100

// Minors returns the minors of Kubernetes that the step to a version leaves behind and reaches, in their order, such as
// 1.35 and 1.36. It returns none if nothing may be missing afterwards: the minor stays the same, or it has been begun.
// An upgrade that has begun is brought to its end, because different minors in one cluster are worse.
func (c Cluster) Minors(to string) []string {
	target, err := parse(Kubernetes, to)
	if err != nil {
		return nil
	}

	oldest := target

	for _, v := range c.versions() {
		if v.Minor >= target.Minor {
			return nil
		}

		if v.LT(oldest) {
			oldest = v
		}
	}

	var out []string

	for minor := oldest.Minor; oldest.Minor < target.Minor && minor <= target.Minor; minor++ {
		out = append(out, fmt.Sprintf("%d.%d", target.Major, minor))
	}

	return out
}

// Reached reports whether a component has a version of Kubernetes, or a newer one: an upgrade to it has begun.
func (c Cluster) Reached(version string) bool {
	target, err := parse(Kubernetes, version)

	return err == nil && slices.ContainsFunc(c.versions(), func(v semver.Version) bool { return v.GE(target) })
}

// versions returns the known versions of what an upgrade may break: kube-proxy, which may be minors older, is left out.
func (c Cluster) versions() []semver.Version {
	var out []semver.Version

	if v, err := parse(Kubernetes, c.Kubernetes); err == nil {
		out = append(out, v)
	}

	for _, n := range c.Nodes {
		for _, of := range order {
			if v, ok := n.component(of); ok && of != v1alpha1.ComponentProxy {
				out = append(out, v)
			}
		}
	}

	return out
}

const (
	// maxRemoved is how many removals a message names.
	maxRemoved = 6
	// maxRemovals is the maximum length of their list, which leaves space for what to do.
	maxRemovals = 700
)

// RefuseRemoved says what in use a version of Kubernetes removes, and what to do about it; empty if there is nothing.
func RefuseRemoved(to string, found []Removed) string {
	if len(found) == 0 {
		return ""
	}

	var (
		names     []string
		machines  = map[string][]string{}
		resources int
	)

	for _, f := range found {
		name := fmt.Sprintf("%s %s of %s", f.Kind, f.Name, f.Component)
		if f.Kind == RemovedResource {
			name = fmt.Sprintf("%s %s", countOf(f.Objects), f.Name)
			resources++
		}

		if machines[name] == nil {
			names = append(names, name)
		}

		machines[name] = append(machines[name], f.Machine)
	}

	slices.Sort(names)

	for i, name := range names {
		of := machines[name]
		slices.Sort(of)

		if of[0] != "" {
			names[i] += " on " + change.List(slices.Compact(of))
		}
	}

	if left := len(names) - maxRemoved; left > 0 {
		names = append(names[:maxRemoved], fmt.Sprintf("and %d more", left))
	}

	return fmt.Sprintf("%s removes what is in use: %s; %s, or set upgrade.removedAPIs to Ignore", to,
		kube.Shorten(strings.Join(names, "; "), maxRemovals), remedy(resources, len(found)-resources))
}

func countOf(objects int) string {
	if objects >= ManyObjects {
		return strconv.Itoa(ManyObjects) + " or more"
	}

	return strconv.Itoa(objects)
}

// remedy says what to do about removals: resources of the API, and the rest, which the configuration of machines has.
func remedy(resources, rest int) string {
	switch {
	case resources == 0:
		return "remove it from the configuration"
	case rest == 0:
		return "delete the objects or migrate them to another API"
	}

	return "delete the objects or migrate them to another API, and remove the rest from the configuration"
}

// RefuseUnknown says that it is unknown whether a version of Kubernetes removes what is in use.
func RefuseUnknown(to, why string) string {
	return fmt.Sprintf("insufficient evidence that %s removes nothing in use: %s; the check is repeated, or set "+
		"upgrade.removedAPIs to Ignore", to, kube.Shorten(cmp.Or(why, "unknown"), maxRemovals))
}

// NeverAllows reports whether a PodDisruptionBudget allows no eviction even if all of its pods are healthy. One without
// pods blocks nothing.
func NeverAllows(b *policyv1.PodDisruptionBudget) bool {
	pods := int(b.Status.ExpectedPods)
	if pods == 0 {
		return false
	}

	scaled := func(v *intstr.IntOrString) int {
		// Rounded up, as the disruption controller does; 0 if there is none, or it cannot be read.
		n, _ := intstr.GetScaledValueFromIntOrPercent(v, pods, true)

		return n
	}

	if b.Spec.MaxUnavailable != nil {
		return scaled(b.Spec.MaxUnavailable) == 0
	}

	return scaled(b.Spec.MinAvailable) >= pods
}

// Obstacles are what a drain may meet.
type Obstacles struct {
	// Cordoned are Nodes that were cordoned, and not by the operator.
	Cordoned []string
	// Budgets are the PodDisruptionBudgets that never allow an eviction, as namespace/name.
	Budgets []string
}

// String implements fmt.Stringer; empty if there are none.
func (o Obstacles) String() string {
	var out []string

	if len(o.Cordoned) > 0 {
		out = append(out, "Nodes that were cordoned manually: "+change.List(slices.Sorted(slices.Values(o.Cordoned))))
	}

	if len(o.Budgets) > 0 {
		out = append(out, "PodDisruptionBudgets that never allow an eviction: "+
			change.List(slices.Sorted(slices.Values(o.Budgets))))
	}

	if len(out) == 0 {
		return ""
	}

	return "the drains will meet " + strings.Join(out, "; ")
}
