package rollout

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/upgrade"
)

// soakSlack is for how long a soak that is over stays recorded: its record is removed by what a cache says, which may
// not know yet that the machine has become unhealthy.
const soakSlack = 10 * time.Second

// askFirst is how soon a worker group looks again at a control plane that comes first: it has no events about it.
const askFirst = 30 * time.Second

// Soak returns since when a machine has been healthy after its last change, by what is recorded about it; nil once that
// was long enough. While the machine is unhealthy, it is when it became so: later readiness moves it on.
func Soak(m *v1alpha1.TalosMachine, soak time.Duration, now time.Time) *metav1.Time {
	since := m.Status.SoakingSince
	if since == nil || soak <= 0 {
		return nil
	}

	ready := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionReady)
	if ready != nil && ready.LastTransitionTime.After(since.Time) {
		since = ready.LastTransitionTime.DeepCopy()
	}

	if isTrue(m, v1alpha1.ConditionReady) && !now.Before(soakEnds(since, soak).Add(soakSlack)) {
		return nil
	}

	return since
}

// SoakRecorded returns until when a record of Soak has to be kept.
func SoakRecorded(since *metav1.Time, soak time.Duration) time.Time {
	return soakEnds(since, soak).Add(soakSlack)
}

// soakEnds returns the end of a soak. Recorded times have lost their fractions of a second.
func soakEnds(since *metav1.Time, soak time.Duration) time.Time { return since.Add(soak + time.Second) }

// soaking is a machine that was changed and has not been healthy for long enough since then.
type soaking struct {
	name    string
	soak    time.Duration
	healthy bool
	until   time.Time
}

// soaksOf returns the machines that soak, but for those that have failed and are tolerated: those may never be healthy.
func soaksOf(machines []v1alpha1.TalosMachine, soak time.Duration, now time.Time, tolerated []string) []soaking {
	var out []soaking

	for i := range machines {
		m := &machines[i]

		since := Soak(m, soak, now)
		if since == nil || !m.DeletionTimestamp.IsZero() || slices.Contains(tolerated, m.Name) {
			continue
		}

		one := soaking{
			name: m.Name, soak: soak, healthy: isTrue(m, v1alpha1.ConditionReady), until: soakEnds(since, soak),
		}
		if !one.healthy || now.Before(one.until) {
			out = append(out, one)
		}
	}

	return out
}

// soaked reports whether the health of machines that were upgraded counts before the next one begins: while one soaks,
// or its record is still there, and after that until the plan ends. A machine that soaks after another change proves
// nothing about an upgrade: what is checked after one may be true with the new version only.
func (in Input) soaked(plan *v1alpha1.PlanStatus, done bool) bool {
	soaks := func(m v1alpha1.TalosMachine) bool {
		ended := done && in.Options.SoakTime > 0 && slices.ContainsFunc(plan.Machines, func(p v1alpha1.PlannedMachine) bool {
			return p.Name == m.Name && p.State == v1alpha1.PlannedDone
		})

		return (m.Status.SoakingSince != nil || ended) && in.advanced(&m)
	}

	return slices.ContainsFunc(in.Machines, soaks) || slices.ContainsFunc(in.First, soaks)
}

// advanced reports whether a machine runs what others of the cluster are upgraded to now. A schematic is that of its
// group.
func (in Input) advanced(m *v1alpha1.TalosMachine) bool {
	u := in.ControlPlane.Status.Upgrade
	if u != nil && !u.SchematicsOnly && u.TalosVersion+u.KubernetesVersion != "" {
		runs := upgrade.NodeOf(m)

		return u.TalosVersion != "" && runs.Talos == u.TalosVersion ||
			u.KubernetesVersion != "" && (runs.Kubelet == u.KubernetesVersion ||
				slices.Contains(slices.Collect(maps.Values(runs.Components)), u.KubernetesVersion))
	}

	return slices.ContainsFunc(in.Machines, func(other v1alpha1.TalosMachine) bool {
		c := other.Status.Change

		return upgrade.Advances(c) && c.Kind == v1alpha1.ChangeTalos && c.Target == m.Status.WorkingSystem
	})
}

// String says what the next machine waits for.
func (s soaking) String() string {
	if !s.healthy {
		return fmt.Sprintf("%s was changed and is not healthy: the next machine begins once it has been healthy for %s "+
			"(soakTime)", s.name, s.soak)
	}

	return fmt.Sprintf("waiting until %s: %s was changed, and the next machine begins once it has been healthy for %s "+
		"(soakTime)", s.until.UTC().Format(time.RFC3339), s.name, s.soak)
}

// holdSoaking removes machines from Ready while one that was changed soaks: one of the group, or of the control plane
// before workers begin. What is taken back does not wait, nor does the machine that is unhealthy: its change may be
// the repair.
func (out *Output) holdSoaking(in Input) {
	all := soaksOf(in.Machines, in.Options.SoakTime, in.Now, out.Tolerated)
	if in.Worker != nil {
		all = append(all, soaksOf(in.First, OptionsOf(in.ControlPlane, nil).SoakTime, in.Now, nil)...)
	}

	first := in.unfinished()
	if len(all) == 0 && first == "" {
		return
	}

	held := false
	out.Ready = slices.DeleteFunc(out.Ready, func(c Candidate) bool {
		repairs := slices.ContainsFunc(all, func(s soaking) bool { return s.name == c.Name && !s.healthy })
		if upgrade.TakesBack(&c.Change) || repairs ||
			len(all) == 0 && c.Change.Kind != v1alpha1.ChangeKubernetes {
			return false
		}

		held = true

		return true
	})

	switch {
	case !held:
	case len(all) > 0:
		out.waitForSoak(in, all)
	default:
		out.lookAgain(in.Now.Add(askFirst))
		out.Hold("workers begin once " + first + " has been upgraded and has been healthy for the soakTime of the control " +
			"plane")
	}
}

// waitForSoak says what is waited for: a machine that is unhealthy, or the one that soaks for longest.
func (out *Output) waitForSoak(in Input, all []soaking) {
	longest := all[0]
	for _, s := range all[1:] {
		if longest.healthy && (!s.healthy || s.until.After(longest.until)) {
			longest = s
		}
	}

	switch {
	case longest.healthy:
		out.lookAgain(longest.until)
	case in.Worker != nil:
		out.lookAgain(in.Now.Add(askFirst))
	}

	if len(out.Ready) == 0 {
		out.Hold(longest.String())
	}
}

// lookAgain has the decision made again at a time, or before.
func (out *Output) lookAgain(at time.Time) {
	if out.Again.IsZero() || at.Before(out.Again) {
		out.Again = at
	}
}

// unfinished returns a control-plane machine whose kubelet is upgraded before those of workers, because it has to soak
// first; empty if there is none. Other components, and Talos, come to the control plane first anyway.
func (in Input) unfinished() string {
	if in.Worker == nil || OptionsOf(in.ControlPlane, nil).SoakTime <= 0 {
		return ""
	}

	for i := range in.First {
		m := &in.First[i]
		c := m.Status.Change

		if m.DeletionTimestamp.IsZero() && (c != nil && c.Kind == v1alpha1.ChangeKubernetes ||
			m.Status.ComparedTo != ComparedTo(in.ControlPlane, nil, m)) {
			return m.Name
		}
	}

	return ""
}
