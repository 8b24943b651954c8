package upgrade

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/cli/session"
	"github.com/talos-operator/talos-operator/internal/decide/upgrade"
	"github.com/talos-operator/talos-operator/internal/safety"
)

// What a machine takes where no earlier upgrade of the cluster tells: an installer, a reboot and the start of its
// services; the three components of a control-plane machine; a kubelet.
const (
	assumedTalos      = 4 * time.Minute
	assumedComponents = 2 * time.Minute
	assumedKubelet    = 30 * time.Second
)

// pace is how fast a cluster is upgraded.
type pace struct {
	// talos is the time of one machine; assumed if no earlier upgrade tells.
	talos   time.Duration
	assumed bool
	// kubernetes is the time of a whole step; zero if no earlier upgrade tells.
	kubernetes time.Duration
	// rounds is how often a slot is given to the machines of the largest group of workers: machines divided by budget.
	rounds int
	// controlPlane are its machines.
	controlPlane []string
}

// paceOf reads the pace of a cluster from the records of its upgrades, and from the budgets of its groups.
func paceOf(c *session.Cluster, h upgradeHistory) pace {
	out := pace{talos: assumedTalos, assumed: true}

	var machines []time.Duration

	for i := range h.Runs {
		r := &h.Runs[i]

		switch {
		case r.State != v1alpha1.UpgradeRunSucceeded || r.StartedAt == nil || r.CompletedAt == nil:
		case r.Component == upgrade.Talos:
			machines = append(machines, durations(r.Machines)...)
		case out.kubernetes == 0: // the newest one is the first
			out.kubernetes = r.CompletedAt.Sub(*r.StartedAt)
		}
	}

	if len(machines) > 0 {
		slices.Sort(machines)
		out.talos, out.assumed = machines[len(machines)/2], false
	}

	for i := range c.ControlPlane.Spec.Machines {
		out.controlPlane = append(out.controlPlane, c.ControlPlane.Spec.Machines[i].Name)
	}

	for i := range c.Workers {
		out.rounds = max(out.rounds, roundsOf(&c.Workers[i]))
	}

	return out
}

func durations(machines []upgradeRunMachine) []time.Duration {
	var out []time.Duration

	for i := range machines {
		if m := &machines[i]; m.StartedAt != nil && m.CompletedAt != nil && m.State == v1alpha1.UpgradeMachineDone {
			out = append(out, m.CompletedAt.Sub(m.StartedAt.Time))
		}
	}

	return out
}

// roundsOf returns in how many rounds a group is upgraded: the canary alone, then as many at a time as the budget
// allows.
func roundsOf(w *v1alpha1.TalosWorker) int {
	var limit *intstr.IntOrString
	if w.Spec.Rollout != nil {
		limit = w.Spec.Rollout.MaxUnavailable
	}

	size := len(w.Spec.Machines)
	budget := max(1, safety.Budget(limit, size))

	if size == 0 {
		return 0
	}

	return 1 + (size+budget-2)/budget
}

// estimate returns how long steps take if nothing is waited for: no approval, no window, no soak time, no backup.
func (p pace) estimate(steps []upgrade.Step) time.Duration {
	var out time.Duration

	for i := range steps {
		planes := 0

		for _, name := range steps[i].Machines {
			if slices.Contains(p.controlPlane, name) {
				planes++
			}
		}

		rounds := 0
		if len(steps[i].Machines) > planes {
			rounds = p.rounds
		}

		switch {
		case steps[i].Component == upgrade.Talos:
			out += time.Duration(planes+rounds) * p.talos
		case p.kubernetes > 0:
			out += p.kubernetes
		default:
			out += time.Duration(planes)*assumedComponents + time.Duration(planes+rounds)*assumedKubelet
		}
	}

	return out.Round(time.Minute)
}
