package upgrade

import (
	"fmt"
	"slices"

	"github.com/blang/semver/v4"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// order is the order of an upgrade. Nothing may be newer than the API servers that it talks to, so those come first; a
// controller manager and a scheduler talk to the API server of their machine, kubelets to any. The way back is the
// reverse.
//
// Source: https://kubernetes.io/releases/version-skew-policy/, and the order of talosctl upgrade-k8s.
var order = []v1alpha1.KubernetesComponent{
	v1alpha1.ComponentAPIServer, v1alpha1.ComponentControllerManager, v1alpha1.ComponentScheduler,
	v1alpha1.ComponentProxy, v1alpha1.ComponentKubelet,
}

// version of a component on a machine. ok is false where the machine has none, or none is known.
func (n Node) component(of v1alpha1.KubernetesComponent) (v semver.Version, ok bool) {
	text := n.Components[of]
	if of == v1alpha1.ComponentKubelet {
		text = n.Kubelet
	}

	v, err := parse(Kubernetes, text)

	return v, err == nil
}

// unknown says which component of which machine has no version that can be compared. Nothing is upgraded then: what is
// not known may be older than what would overtake it. kube-proxy, which need not run, may be missing.
func (c Cluster) unknown() error {
	for _, n := range c.Nodes {
		for _, of := range order {
			_, ok := n.component(of)
			if ok || !n.ControlPlane && of != v1alpha1.ComponentKubelet ||
				of == v1alpha1.ComponentProxy && n.Components[of] == "" {
				continue
			}

			return &Refusal{Problem: fmt.Sprintf("the configuration of %s names no version of %s, and what is not known may be "+
				"older than what would overtake it: set its image on the node, with the tag of what runs", n.Name, of)}
		}
	}

	return nil
}

// oldestComponent returns the oldest version of the components of control planes, or that of the API server that
// responds, if nothing else is known.
func (c Cluster) oldestComponent() string {
	var (
		oldest semver.Version
		found  bool
	)

	for _, n := range c.Nodes {
		for _, of := range order[:len(order)-1] {
			if v, ok := n.component(of); ok && (!found || v.LT(oldest)) {
				oldest, found = v, true
			}
		}
	}

	if !found {
		return c.Kubernetes
	}

	return "v" + oldest.String()
}

// forward returns the component that gets a version next, and the machines on which it is older.
func (c Cluster) forward(to string) Now {
	target, _ := parse(Kubernetes, to) // a step of a path has a version

	return c.next(to, order, func(v semver.Version) bool { return v.LT(target) })
}

// back returns the component that gets an older version next, because an upgrade was called off before it was through
// with the control planes.
func (c Cluster) back(to string) (Now, bool) {
	target, err := parse(Kubernetes, to)
	if err != nil || c.Upgraded == "" || c.unknown() != nil || !c.returns(target) {
		return Now{}, false
	}

	reverse := slices.Clone(order[:len(order)-1])
	slices.Reverse(reverse)

	now := c.next(to, reverse, func(v semver.Version) bool { return v.GT(target) })
	now.Left, now.Back = 1, true

	return now, len(now.Machines) > 0
}

// returns reports whether control planes can be brought back to a version: as long as a component of one of them has
// it, no kubelet is newer, and the API servers can read what the newer ones have written.
func (c Cluster) returns(to semver.Version) bool {
	for _, n := range c.Nodes {
		if v, _ := n.component(v1alpha1.ComponentKubelet); v.GT(to) {
			return false
		}
	}

	oldest, _ := parse(Kubernetes, c.oldestComponent())

	return !oldest.GT(to)
}

// IsFinal reports whether an upgrade to a version of Kubernetes is past the point of no return: it cannot be called off
// any more, because each component of the control planes has that version, or a kubelet a newer one than the rest.
func (c Cluster) IsFinal(to string) bool {
	target, _ := parse(Kubernetes, to) // a step of a path has a version
	oldest, _ := parse(Kubernetes, c.oldestComponent())

	return !oldest.LT(target) || !c.returns(oldest)
}

// begun returns what comes next of an upgrade of Kubernetes that has begun: its step ends before Talos moves.
func (c Cluster) begun(to string, via []string) (Now, bool) {
	if to == "" || c.Upgraded == "" || c.unknown() != nil || !c.mixed() {
		return Now{}, false
	}

	target, own := Target{Kubernetes: to}, []string{}

	for _, release := range via {
		if _, err := Plan(c, target, release); err == nil { // the others are releases of Talos
			own = append(own, release)
		}
	}

	steps, _ := Plan(c, target, own...) // none where there is no path
	if len(steps) == 0 || steps[0].Component != Kubernetes {
		return Now{}, false
	}

	now := c.forward(steps[0].To)
	now.Left = len(steps)

	return now, true
}

// newer returns a machine with a component that is newer than a version, and that component's version.
func (c Cluster) newer(than string) (machine, version string) {
	limit, err := parse(Kubernetes, than)
	if err != nil {
		return "", ""
	}

	for _, n := range c.Nodes {
		for _, of := range order {
			if v, ok := n.component(of); ok && v.GT(limit) {
				return n.Name, "v" + v.String()
			}
		}
	}

	return "", ""
}

// Runs reports whether each known component of each machine has a version.
func (c Cluster) Runs(version string) bool {
	v, err := parse(Kubernetes, version)
	if err != nil || len(c.Nodes) == 0 || c.mixed() {
		return false
	}

	kubelet, ok := c.Nodes[0].component(v1alpha1.ComponentKubelet)

	return ok && kubelet.EQ(v)
}

// mixed reports whether components of the cluster have different versions.
func (c Cluster) mixed() bool {
	var (
		one   semver.Version
		found bool
	)

	for _, n := range c.Nodes {
		for _, of := range order {
			switch v, ok := n.component(of); {
			case !ok:
			case !found:
				one, found = v, true
			case !v.EQ(one):
				return true
			}
		}
	}

	return false
}

// next returns the first component in an order that a machine has in another version than it should have.
func (c Cluster) next(to string, in []v1alpha1.KubernetesComponent, differs func(semver.Version) bool) Now {
	for i, of := range in {
		now := Now{Kubernetes: to, Components: in[:i+1]}

		for _, controlPlane := range []bool{true, false} {
			for _, n := range c.Nodes {
				if v, ok := n.component(of); ok && n.ControlPlane == controlPlane && differs(v) {
					now.Machines = append(now.Machines, n.Name)
				}
			}
		}

		if len(now.Machines) > 0 {
			return now
		}
	}

	return Now{}
}
