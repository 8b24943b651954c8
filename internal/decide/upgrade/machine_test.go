package upgrade_test

import (
	"maps"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/decide/change"
	"github.com/talos-operator/talos-operator/internal/decide/rollout"
	"github.com/talos-operator/talos-operator/internal/decide/upgrade"
	"github.com/talos-operator/talos-operator/internal/safety"
)

// machineScope is one reconciliation of a TalosMachine.
type machineScope struct {
	*manager

	m, base    *v1alpha1.TalosMachine
	cp         *v1alpha1.TalosControlPlane
	disruption *clusterstate.Disruption
	node       *node
	// facts are what the machine has told about itself.
	facts facts
	pass  change.Pass
	// permitted is the boot in which the safety kernel has permitted the disruption, on evidence of a moment.
	permitted string
	evidence  int64
}

type facts struct {
	version, config, boot, stage string
	ready                        bool
}

const (
	needsReboot = "r" // configurations with it take effect with a reboot only
	installer   = "installer:"
)

func versionOf(image string) string { return strings.TrimPrefix(image, installer) }

// reconcileMachine does what the controller of the kind does. It returns false if the manager was killed.
func (m *manager) reconcileMachine(name string) bool {
	at := m.find(name)
	if at == nil {
		return true
	}

	s := &machineScope{
		manager: m, m: at.DeepCopy(), base: at.DeepCopy(), cp: m.readControlPlane(), disruption: m.disruption,
		node: m.node(name),
	}

	if s.m.DeletionTimestamp != nil {
		m.dropJob(name)

		return s.decommission()
	}

	if !s.observe() {
		if step, ends := change.Silent(s.input(), true, m.silence(s.base)); ends {
			s.keep(step.Before)

			// One that takes longer to go down than it may, and cannot be reached all the while, is abandoned: what it does
			// later is a fault of its own.
			s.node.away = s.node.away && s.node.stage == stageBooting
		}

		return s.between() && s.finish()
	}

	if !s.between() {
		return false
	}

	if alive, conflict := s.plan(); !alive || conflict {
		return alive
	}

	alive, conflict := s.change()
	if !alive || conflict {
		return alive
	}

	return s.finish()
}

// dropJob ends the installer of a machine.
func (m *manager) dropJob(name string) {
	j := m.jobs[name]
	delete(m.jobs, name)

	if n := m.node(name); j != nil && n != nil && n.job == j {
		m.endJob(n, true)
	}
}

// observe asks the machine about itself.
func (s *machineScope) observe() bool {
	n := s.node
	status := metav1.ConditionFalse

	if n.reachable() {
		status = metav1.ConditionTrue
		s.facts = facts{n.runs, n.live, n.bootID(), n.stage, !n.sick && s.serves(n)}
		s.m.Status.TalosVersion, s.m.Status.KubeletVersion = n.runs, kubernetes
	}

	for kind, is := range map[string]metav1.ConditionStatus{
		v1alpha1.ConditionReachable: status, v1alpha1.ConditionConfigured: metav1.ConditionTrue,
	} {
		if c := meta.FindStatusCondition(s.m.Status.Conditions, kind); c == nil || c.Status != is {
			meta.SetStatusCondition(&s.m.Status.Conditions, metav1.Condition{
				Type: kind, Status: is, LastTransitionTime: metav1.NewTime(s.now),
			})
		}
	}

	return status == metav1.ConditionTrue
}

// finish writes the status: over what was read, if it has another change.
func (s *machineScope) finish() bool {
	if idOf(s.base.Status.Change) != idOf(s.m.Status.Change) {
		s.claim(s.base, s.m)
	} else {
		s.patch(s.base, s.m)
	}

	return true
}

func idOf(c *v1alpha1.MachineChange) string {
	if c == nil {
		return ""
	}

	return c.ID
}

func (s *machineScope) keep(r change.Record) {
	s.m.Status.Change, s.m.Status.Intent, s.m.Status.ConfigHash = r.Change, r.Intent, r.Sent
}

func (s *machineScope) input() change.Input {
	st, o := &s.m.Status, rollout.OptionsOf(s.cp, nil)
	want := s.cp.Labels[configLabel]
	_, retry := s.m.Annotations[v1alpha1.RetryAnnotation]

	return change.Input{
		Now: s.now, Name: s.m.Name, Key: s.m.Name + " " + rollout.ComparedTo(s.cp, nil, s.m), ControlPlane: true,
		Options: change.Options{
			HealthTimeout: o.HealthTimeout, TryTimeout: o.TryTimeout, Drift: o.Drift,
			Drains: o.RebootPolicy != v1alpha1.RebootManual, Reboots: o.RebootPolicy != v1alpha1.RebootManual,
		},
		Record: change.Record{Change: st.Change, Intent: st.Intent, Sent: st.ConfigHash}, Grant: s.m.Spec.Change,
		Live: s.facts.config, Want: want, Equal: s.facts.config == want, Fields: "a field",
		BootID: s.facts.boot, Stage: s.facts.stage, Ready: s.facts.ready, Unmet: "etcd", Retry: retry, Pass: s.pass,
		Legacy: upgrade.Legacy(st.TalosVersion),
	}
}

func (s *machineScope) systemInput() change.Input {
	in := s.input()
	in.Live, in.Want, in.Fields = s.facts.version, s.wanted(), ""

	if c := in.Record.Change; s.stalePath() && change.IsUpgrade(c) {
		in.Want = c.Target
	}

	if c := in.Record.Change; change.IsUpgrade(c) && in.Live == c.Target && in.Ready {
		nodes, _ := s.collect(s.list())
		in.Lags = safety.MemberLag(nodes, s.m.Name)
	}

	in.Equal, in.Worked = in.Live == in.Want, s.m.Status.WorkingSystem
	in.Legacy = upgrade.Legacy(s.facts.version)

	return in
}

// wanted is the version of the path, never that of the spec.
func (s *machineScope) wanted() string {
	if u := s.cp.Status.Upgrade; u != nil && upgrade.Newer(u.TalosVersion, s.facts.version) {
		return u.TalosVersion
	}

	return s.facts.version
}

func (s *machineScope) stalePath() bool {
	u := s.cp.Status.Upgrade

	return u != nil && u.ObservedGeneration != s.cp.Generation
}

// plan compares what runs with what is desired, the configuration first.
func (s *machineScope) plan() (alive, conflict bool) {
	in := s.input()
	before := in.Record

	if change.IsUpgrade(before.Change) {
		in.Record.Change = nil
	}

	plan, record := change.Compare(in)

	switch {
	case plan == change.Unfinished:
		return true, false
	case plan == change.Described && change.MustFinish(before.Change, s.facts.version):
		if s.recordSystem(); !change.MayBeDrained(s.m.Status.Change) {
			s.m.Status.ComparedTo = rollout.ComparedTo(s.cp, nil, s.m)
		}

		return s.endRetry()
	case change.IsUpgrade(before.Change) && plan != change.Described:
		record.Change, record.Intent = before.Change, before.Intent
	}

	s.keep(record)

	if plan == change.Described {
		// A correction of the configuration replaces an upgrade that has failed, and with it the record of the fallback: the
		// upgrade is tried once more after it.
		if change.IsUpgrade(before.Change) {
			s.node.fellBack = ""
		}

		s.describe()
	} else {
		s.recordSystem()
	}

	s.m.Status.ComparedTo = rollout.ComparedTo(s.cp, nil, s.m)

	return s.endRetry()
}

// describe records another change of the configuration, in place of what is staged.
func (s *machineScope) describe() {
	if in := s.input(); in.MayBeStaged() && s.m.Status.Change.Base == s.facts.config && s.isItself() {
		s.node.disk = s.node.live
	}

	if change.MayBeDrained(s.m.Status.Change) {
		s.node.cordoned = false
	}

	in := s.input()
	s.keep(change.Describe(in, change.Effect{
		Reboot: strings.Contains(in.Want, needsReboot), Fields: []v1alpha1.FieldChange{{Field: in.Want}},
	}))
}

func (s *machineScope) recordSystem() {
	if s.stalePath() {
		return
	}

	in := s.systemInput()

	plan, record := change.CompareTalos(in, installer+in.Want)

	switch plan {
	case change.Described:
		if change.MayBeDrained(s.m.Status.Change) {
			s.node.cordoned = false
		}

		in.Record = record
		record = change.DescribeTalos(in, installer+in.Want, installer+in.Live, nil)
	case change.FellBack:
		record, _ = change.DescribeFallback(in, installer+in.Want, installer+in.Live, nil)
	case change.Forgone:
		record.Change, record.Intent = nil, nil
	default:
	}

	s.keep(record)
}

// endRetry removes the annotation after the status has recorded the retry.
func (s *machineScope) endRetry() (alive, conflict bool) {
	if _, asked := s.m.Annotations[v1alpha1.RetryAnnotation]; !asked || s.stalePath() {
		return true, false
	}

	if !s.save() {
		return true, true
	}

	if !s.between() {
		return false, false
	}

	if at := s.find(s.m.Name); at != nil {
		at.Annotations = maps.Clone(at.Annotations)
		delete(at.Annotations, v1alpha1.RetryAnnotation)
		s.written(at)
		s.m.ResourceVersion = at.ResourceVersion
	}

	delete(s.m.Annotations, v1alpha1.RetryAnnotation)
	s.base = s.m.DeepCopy()

	return true, false
}

// save writes the status with a precondition.
func (s *machineScope) save() bool {
	if !s.claim(s.base, s.m) {
		return false
	}

	s.base = s.m.DeepCopy()

	return true
}

// change advances the change of the machine.
func (s *machineScope) change() (alive, conflict bool) {
	for range 16 {
		in, next := s.input(), change.Next
		if change.IsUpgrade(s.m.Status.Change) {
			in, next = s.systemInput(), change.NextTalos
		}

		step := next(in)

		alive, end := s.take(in, step)
		if !alive || end == conflicts {
			return alive, true
		}

		if end == over || step.Act == change.None || step.Again > 0 {
			return true, false
		}
	}

	s.Fatalf("the steps of %s do not end: %+v", s.m.Name, s.m.Status.Change)

	return false, false
}

// end is how a step has ended.
type end int

const (
	goesOn    end = iota
	over          // the reconciliation ends, and its status is written
	conflicts     // others have written the object
)

// take records and performs one step.
func (s *machineScope) take(in change.Input, step change.Step) (alive bool, _ end) {
	before, was := s.m.Status.Intent, in.Record.Change
	s.keep(step.Before)

	if i := s.m.Status.Intent; i != nil && (before == nil || i.Step != before.Step || i.Attempt != before.Attempt) {
		if !s.save() {
			return true, conflicts
		}
	}

	if step.Act != change.None && !s.between() {
		return false, over
	}

	in.Record = step.Before

	done := s.perform(in, step.Act)
	if done != goesOn {
		return true, done
	}

	if step.After != nil {
		s.keep(*step.After)
	}

	if change.IsUpgrade(was) && s.m.Status.Change == nil && in.Live == was.Target {
		s.m.Status.WorkingSystem = in.Live
	}

	if step.Act != change.None && !s.between() {
		return false, over
	}

	return true, goesOn
}
