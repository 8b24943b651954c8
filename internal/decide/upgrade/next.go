package upgrade

import "fmt"

// Newer reports whether a Talos version is newer than another one. It is false for a text that is no version.
func Newer(version, than string) bool {
	a, err := parse(Talos, version)
	if err != nil {
		return false
	}

	b, err := parse(Talos, than)

	return err == nil && a.GT(b)
}

// IsVersion reports whether a text is a version of Talos, such as v1.13.9.
func IsVersion(text string) bool {
	_, err := parse(Talos, text)

	return err == nil
}

// Now is what the machines of a cluster are upgraded to now.
type Now struct {
	// Talos is the version that each machine runs before the path goes on; empty if no machine may be upgraded.
	Talos string
	// Machines that run an older one.
	Machines []string
	// Left is the number of steps of the path, this one included.
	Left int
	// Waits says why no machine may be upgraded although the target does not run yet.
	Waits string
}

// NextTalos returns the next version of Talos on the path to a target. A path on which Kubernetes comes first waits for
// it. The error is a *Refusal if there is no path.
func NextTalos(c Cluster, t Target, via ...string) (Now, error) {
	steps, err := Plan(c, t, via...)
	if err != nil {
		return Now{}, err
	}

	for _, s := range steps {
		if s.Component != Talos {
			continue
		}

		if first := steps[0]; first.Component != Talos {
			return Now{Left: len(steps), Waits: fmt.Sprintf("Talos %s waits for Kubernetes %s: %s", s.To, first.To,
				s.Reason)}, nil
		}

		return Now{Talos: s.To, Machines: s.Machines, Left: len(steps)}, nil
	}

	return Now{}, nil // Talos is where it should be
}
