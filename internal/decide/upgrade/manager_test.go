package upgrade_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/decide/change"
	"github.com/talos-operator/talos-operator/internal/decide/rollout"
	"github.com/talos-operator/talos-operator/internal/decide/upgrade"
	"github.com/talos-operator/talos-operator/internal/safety"
)

// manager is one process of the operator. What it has in memory is lost when it is killed.
type manager struct {
	*world

	jobs map[string]*job
}

// killed ends the process, and with it the installers that it has started.
func (m *manager) killed() {
	for _, n := range m.nodes {
		if n.job != nil && m.jobs[n.name] == n.job {
			m.endJob(n, true)
		}
	}

	m.jobs = map[string]*job{}
}

// controlPlaneScope is one reconciliation of the TalosControlPlane.
type controlPlaneScope struct {
	*manager

	cp, base   *v1alpha1.TalosControlPlane
	machines   []v1alpha1.TalosMachine
	disruption *clusterstate.Disruption
	version    int
	nodes      []safety.Node
	evidence   int64
}

// reconcileControlPlane does what the controller of the kind does. It returns false if the manager was killed.
func (m *manager) reconcileControlPlane() bool {
	s := &controlPlaneScope{manager: m, cp: m.readControlPlane(), disruption: m.disruption, version: m.version}
	s.base = s.cp.DeepCopy()
	s.machines = m.list()
	s.nodes, s.evidence = m.collect(s.machines)

	if !m.between() {
		return false
	}

	for _, phase := range []func() (alive, goesOn bool){s.remediate, s.scaleDown, s.planUpgrade, s.rollOut} {
		if alive, goesOn := phase(); !alive || !goesOn {
			return alive
		}
	}

	s.finish()

	return m.between()
}

// readControlPlane reads the object from a cache, which may be old. The list is not: a machine has an object because a
// manager has read it on the list.
func (m *manager) readControlPlane() *v1alpha1.TalosControlPlane {
	if !m.cached {
		return m.cp.DeepCopy()
	}

	m.cached = false
	out := m.older.DeepCopy()
	out.Spec.Machines = slices.Clone(m.cp.Spec.Machines)

	return out
}

func (m *manager) list() []v1alpha1.TalosMachine {
	var out []v1alpha1.TalosMachine
	for _, o := range m.machines {
		out = append(out, *o.DeepCopy())
	}

	return out
}

// collect asks every machine for the state of etcd.
func (w *world) collect(machines []v1alpha1.TalosMachine) ([]safety.Node, int64) {
	w.tick++

	var out []safety.Node

	for i := range machines {
		name := machines[i].Name
		out = append(out, w.tell(safety.Node{
			Name: name, Address: name, EverConfigured: true, Departing: machines[i].DeletionTimestamp != nil,
		}, w.node(name)))
	}

	return out, w.tick
}

func (s *controlPlaneScope) listed(name string) bool {
	return slices.ContainsFunc(s.cp.Spec.Machines, func(e v1alpha1.MachineEntry) bool { return e.Name == name })
}

func (s *controlPlaneScope) machine(name string) *v1alpha1.TalosMachine {
	if i := slices.IndexFunc(s.machines, func(m v1alpha1.TalosMachine) bool { return m.Name == name }); i >= 0 {
		return &s.machines[i]
	}

	return nil
}

// extra are the machines that are to leave.
func (s *controlPlaneScope) extra() (out []string) {
	for i := range s.machines {
		if !s.listed(s.machines[i].Name) {
			out = append(out, s.machines[i].Name)
		}
	}

	return out
}

// remediationTimeout is how long a machine may be unreachable before it counts as lost.
const remediationTimeout = 20 * time.Minute

// remediate replaces a machine that has been unreachable for long by a new one, if its member may be removed.
func (s *controlPlaneScope) remediate() (alive, goesOn bool) {
	for i := range s.machines {
		m := &s.machines[i]
		if !s.listed(m.Name) || s.silence(m) < remediationTimeout || s.disruption != nil && s.disruption.Machine != m.Name ||
			len(s.extra()) > 0 || s.permitRemoval(m.Name, true).Action != safety.Proceed {
			continue
		}

		if !s.between() {
			return false, false
		}

		s.replace(m.Name) // with the preconditions of a real API server, of which nothing depends here

		return true, false
	}

	return true, true
}

// silence is for how long the status has reported that a machine is unreachable.
func (w *world) silence(m *v1alpha1.TalosMachine) time.Duration {
	c := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionReachable)
	if c == nil || c.Status != metav1.ConditionFalse {
		return 0
	}

	return w.now.Sub(c.LastTransitionTime.Time)
}

// permitRemoval asks the safety kernel about the removal of a machine. gone: it will not come back.
func (s *controlPlaneScope) permitRemoval(name string, gone bool) safety.Verdict {
	id := safety.MemberOf(s.nodes, name)
	if id == 0 && safety.Gone(s.nodes, name) {
		return safety.Verdict{Action: safety.Proceed}
	}

	want := safety.Disruption{Act: safety.ActRemove, Machine: name}

	for _, n := range s.nodes {
		if n.Name == name && n.Answer != safety.AnswerMember {
			want = safety.Disruption{Act: safety.ActReplace, Machine: name, Member: id, Gone: gone}
		}
	}

	return safety.Permit(s.nodes, "", want)
}

// scaleDown continues the recorded disruption, or has one machine leave.
func (s *controlPlaneScope) scaleDown() (alive, goesOn bool) {
	if d := s.disruption; d != nil {
		m := s.machine(d.Machine)

		switch {
		case d.Act == string(safety.ActReboot):
			if alive, busy := s.rebooting(d); !alive || busy {
				return alive, alive
			}
		case m != nil && m.DeletionTimestamp != nil:
			return true, true
		case m != nil && !s.listed(m.Name):
			s.decommission(m.Name)

			return true, true
		}

		if !s.record(s.version, nil) {
			return true, false
		}

		s.disruption, s.version = nil, s.plane.version
		s.Logf("the disruption of %s has ended", d.Machine)

		if !s.between() {
			return false, false
		}
	}

	return s.beginRemoval()
}

func (s *controlPlaneScope) beginRemoval() (alive, goesOn bool) {
	for _, name := range safety.Order(s.nodes, s.extra()) {
		if s.permitRemoval(name, skipsReset(s.machine(name))).Action != safety.Proceed {
			continue
		}

		d := &clusterstate.Disruption{Machine: name, Act: string(safety.ActRemove), Since: s.now}
		if !s.record(s.version, d) {
			return true, false
		}

		s.disruption, s.version = d, s.plane.version

		if !s.between() {
			return false, false
		}

		s.decommission(name)

		return true, true
	}

	return true, true
}

func skipsReset(m *v1alpha1.TalosMachine) bool {
	return m.Annotations[v1alpha1.SkipResetAnnotation] == "true"
}

// rebooting reports whether the change that a disruption was recorded for is in progress.
func (s *controlPlaneScope) rebooting(d *clusterstate.Disruption) (alive, busy bool) {
	m := s.find(d.Machine) // read live
	if m == nil {
		s.Fatalf("%s was deleted in its reboot", d.Machine)
	}

	c := m.Status.Change

	switch {
	case c == nil || c.ID != d.Change || c.Phase == v1alpha1.ChangeFailed:
		return true, false
	case rollout.Granted(m):
		return true, true
	case !s.between():
		return false, false
	}

	s.grant(m.Name, rollout.Candidate{Change: *c, Reboot: c.Reboot}) // killed between the record and the grant

	return true, true
}

// grant lets a machine begin.
func (s *controlPlaneScope) grant(name string, c rollout.Candidate) {
	if m := s.find(name); m != nil {
		m.Spec.Change = &v1alpha1.ChangeGrant{ID: c.Change.ID, Reboot: c.Reboot}
		m.Generation++
		s.written(m)
		s.Logf("%s may change to %s", name, c.Change.Target)
	}
}

// planUpgrade decides which version the machines are upgraded to now.
func (s *controlPlaneScope) planUpgrade() (alive, goesOn bool) {
	was := s.cp.Status.Upgrade
	out := &v1alpha1.UpgradeStatus{ObservedGeneration: s.cp.Generation, Target: s.cp.Spec.TalosVersion}
	runs, missing := upgrade.Cluster{Kubernetes: kubernetes}, []string{}

	for _, m := range s.list() {
		switch {
		case m.DeletionTimestamp != nil:
		case m.Status.TalosVersion == "":
			missing = append(missing, m.Name)
		default:
			runs.Nodes = append(runs.Nodes, upgrade.NodeOf(&m))
		}
	}

	if len(missing) > 0 {
		if was != nil && (was.ObservedGeneration == s.cp.Generation || was.TalosVersion != "" && was.Target == out.Target) {
			out = was.DeepCopy()
		}

		out.Message = "waiting for the versions of " + strings.Join(missing, ", ")
		s.cp.Status.Upgrade = out

		return true, true
	}

	now, err := upgrade.Next(runs, upgrade.Target{Talos: s.cp.Spec.TalosVersion})

	var refusal *upgrade.Refusal

	switch {
	case errors.As(err, &refusal):
		out.Message = refusal.Error()
	case was != nil && was.TalosVersion != "" && was.TalosVersion != now.Talos && was.Target == out.Target && s.unproved():
		out = was.DeepCopy()
		out.ObservedGeneration = s.cp.Generation
	case now.Left == 0:
		out = nil
	default:
		out.TalosVersion, out.Machines, out.StepsLeft, out.Message = now.Talos, now.Machines, int32(now.Left), now.Waits
	}

	s.cp.Status.Upgrade = out

	return true, true
}

// unproved reports whether a machine has not proved the Talos that it was given: the path stays meanwhile.
func (s *controlPlaneScope) unproved() bool {
	return slices.ContainsFunc(s.list(), func(m v1alpha1.TalosMachine) bool {
		c := m.Status.Change
		if !change.IsUpgrade(c) || m.DeletionTimestamp != nil {
			return false
		}

		failed := c.Phase == v1alpha1.ChangeFailed

		return !failed && change.Begun(c) || failed && c.Booted
	})
}

// rollOut lets one machine after the other begin, if the safety kernel permits it. The other conditions of the
// controller, such as that no other machine is NotReady, are left out: the kernel alone has to keep the quorum.
func (s *controlPlaneScope) rollOut() (alive, goesOn bool) {
	var machines []v1alpha1.TalosMachine

	live := s.list()
	for _, name := range safety.Order(s.nodes, names(live)) {
		i := slices.IndexFunc(live, func(m v1alpha1.TalosMachine) bool { return m.Name == name })
		if s.listed(name) {
			machines = append(machines, live[i])
		}
	}

	if !rollout.Pending(machines) && s.cp.Status.Plan == nil {
		return true, true
	}

	out, err := rollout.Assess(rollout.Input{
		Options: rollout.OptionsOf(s.cp, nil), Machines: machines, ControlPlane: s.cp, Plan: s.cp.Status.Plan, Now: s.now,
	})
	if err != nil {
		s.Fatal(err)
	}

	s.cp.Status.Plan = out.Plan

	if len(out.Running) > 0 || len(out.Ready) == 0 {
		return true, true
	}

	if d := s.disruption; d != nil {
		out.Hold("waiting until " + d.Machine + " is done")

		return true, true
	}

	return s.beginChange(out), true
}

func names(machines []v1alpha1.TalosMachine) (out []string) {
	for i := range machines {
		out = append(out, machines[i].Name)
	}

	return out
}

func (s *controlPlaneScope) beginChange(out rollout.Output) (alive bool) {
	for _, c := range out.Ready {
		if c.Change.Reboot && !c.Reboot || !c.Change.Etcd {
			s.grant(c.Name, c) // nothing is disrupted

			return s.between()
		}

		v := safety.Permit(s.nodes, "", safety.Disruption{Act: safety.ActReboot, Machine: c.Name})
		if v.Action != safety.Proceed {
			out.Hold(c.Name + ": " + v.Message)

			continue
		}

		d := &clusterstate.Disruption{
			Machine: c.Name, Act: string(safety.ActReboot), Since: s.now, Change: c.Change.ID, UID: c.Name,
		}
		if !s.between() {
			return false
		}

		if !s.record(s.version, d) {
			return true
		}

		if !s.between() {
			return false
		}

		s.grant(c.Name, c)

		return s.between()
	}

	return true
}

// finish writes what has changed of the status. A plan is only written over the one that was read.
func (s *controlPlaneScope) finish() {
	if rollout.Moved(s.base.Status.Plan, s.cp.Status.Plan) && s.base.ResourceVersion != s.plane.cp.ResourceVersion {
		return
	}

	before := s.plane.cp.DeepCopy()

	if !equality.Semantic.DeepEqual(s.base.Status.Upgrade, s.cp.Status.Upgrade) {
		s.plane.cp.Status.Upgrade = s.cp.Status.Upgrade.DeepCopy()
	}

	if !equality.Semantic.DeepEqual(s.base.Status.Plan, s.cp.Status.Plan) {
		s.plane.cp.Status.Plan = s.cp.Status.Plan.DeepCopy()
	}

	if !equality.Semantic.DeepEqual(before.Status, s.plane.cp.Status) {
		s.older = before
		s.writes++
		s.plane.cp.ResourceVersion = fmt.Sprint(s.writes)
	}
}
