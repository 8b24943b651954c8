package upgrade

import (
	"fmt"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// Now is what the machines of a cluster are upgraded to now: Talos, or Kubernetes, or nothing.
type Now struct {
	// Talos is the version that each machine runs before the path goes on.
	Talos string
	// Kubernetes is the version that Components have before the path goes on.
	Kubernetes string
	// Components have that version, but for the last one, which gets it now.
	Components []v1alpha1.KubernetesComponent
	// Machines that do not run it yet.
	Machines []string
	// Back: the version is taken back, because the upgrade that brought it was called off.
	Back bool
	// Left is the number of steps of the path, this one included.
	Left int
	// Waits says why no machine may be upgraded although the target does not run yet.
	Waits string
}

// Next returns the next version on the path to a target. A component that the target does not name is not upgraded: a
// path on which it comes first waits for it. The error is a *Refusal if there is no path.
func Next(c Cluster, t Target, via ...string) (Now, error) {
	if back, ok := c.back(t.Kubernetes); ok {
		return back, nil
	}

	if begun, ok := c.begun(t.Kubernetes, via); ok {
		return begun, nil
	}

	steps, err := Plan(c, t, via...)
	if err != nil {
		return Now{}, err
	}

	if len(steps) == 0 {
		if machine, version := c.newer(t.Kubernetes); machine != "" {
			// What this operator has brought there is not taken back while a component has no version.
			if err := c.unknown(); err != nil {
				return Now{}, err
			}

			return Now{Left: 1, Waits: fmt.Sprintf("%s runs Kubernetes %s, which this operator has not brought there: ask for "+
				"that version", machine, version)}, nil
		}

		return Now{}, nil
	}

	first, left := steps[0], len(steps)

	switch {
	case first.Component == Talos && t.Talos != "":
		return Now{Talos: first.To, Machines: first.Machines, Left: left}, nil
	case first.Component == Kubernetes && t.Kubernetes != "":
		if err := c.unknown(); err != nil {
			return Now{}, err
		}

		now := c.forward(first.To)
		now.Left = left

		return now, nil
	}

	for _, s := range steps[1:] {
		if s.Component != first.Component {
			return Now{Left: left, Waits: fmt.Sprintf("%s %s waits for %s %s: %s", s.Component, s.To, first.Component,
				first.To, first.Reason)}, nil
		}
	}

	return Now{}, nil // what the target names is where it should be
}
