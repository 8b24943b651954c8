package taloscontrolplane

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/condition"
	"github.com/talos-operator/talos-operator/internal/controller/frame"
	"github.com/talos-operator/talos-operator/internal/decide/rollout"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/kube"
	"github.com/talos-operator/talos-operator/internal/safety"
)

// finish derives the status from this reconciliation, writes it once and maps the error to a result.
func (r *Reconciler) finish(ctx context.Context, s *scope, res ctrl.Result, err error) (ctrl.Result, error) {
	if s.released {
		return res, err
	}

	if s.hold.Disabled() {
		return ctrl.Result{}, s.hold.Settle(ctx, r.Client, s.cp, s.base, &s.cp.Status.Conditions)
	}

	decided := computeStatus(s, err)
	if u := s.cp.Status.Upgrade; u != nil {
		u.WaitingSince = waitingSince(s.base.Status.Upgrade, u, r.now())
	}

	r.measureCertificates(s)

	resync := r.fleet.Interval(r.Resync)
	if s.held != nil {
		resync = r.watchGivenUp(s, s.remedy.Again(r.group(s).Within(resync)))
	}

	res, err = r.memory.Finish(ctx, frame.End{
		Client: r.Client, Recorder: r.Recorder, Now: r.Clock.Now(), Object: s.cp, Base: s.base,
		Conditions: &s.cp.Status.Conditions, Before: &s.base.Status.Conditions,
		Decided: decided, Observed: observedConditions, Bound: condition.BoundOf(r.fleet.Interval(r.Resync)),
		Weigh: s.weight, Details: r.Details, Undo: func() { s.cp.Status = *s.base.Status.DeepCopy() },
		Claim:  rollout.Moved(s.base.Status.Plan, s.cp.Status.Plan),
		Events: condition.Events(s.expectsOutage()), Cause: s.cause(), Waits: condition.Waits, Resync: resync,
	}, res, err)

	// The reason why an import stalls may be fixed in a Secret or on a node, and neither causes an event.
	if s.importing && failure.ClassOf(err) == failure.ClassTerminal {
		return ctrl.Result{RequeueAfter: pollImport}, nil
	}

	if !s.poll.IsZero() {
		s.window = earliest(s.window, s.poll)
	}

	// No event reports that a maintenance window opens.
	if wait := max(s.window.Sub(r.Clock.Now()), time.Second); !s.window.IsZero() && res.RequeueAfter > wait {
		res.RequeueAfter = wait
	}

	return res, err
}

// weight returns the weight of the status changes of this reconciliation.
func (s *scope) weight() condition.Weight {
	st, was := s.cp.Status.DeepCopy(), &s.base.Status
	if equality.Semantic.DeepEqual(st, was) {
		return condition.Nothing
	}

	st.EtcdMembers, st.ReadyReplicas, st.Conditions = was.EtcdMembers, was.ReadyReplicas, was.Conditions

	rest := !equality.Semantic.DeepEqual(st, was)

	return condition.Weigh(was.Conditions, s.cp.Status.Conditions, s.expectsOutage(), rest)
}

// expectsOutage reports whether nodes are unavailable because of a request of the operator, or no etcd exists yet,
// while etcd has no other problem.
func (s *scope) expectsOutage() bool {
	if s.held == nil {
		return false
	}

	expected := !s.established()

	for _, n := range s.nodes {
		m := s.machine(n.Name)
		if m != nil && condition.ExpectsOutage(m) && condition.OutageIsFresh(m, s.now) {
			expected = true
		} else if !n.Serves() && s.established() {
			return false
		}

		if len(n.Alarms) > 0 {
			return false
		}
	}

	return expected
}

// cause returns what explains that the control plane is not ready. Without an observation of its nodes, nothing does.
func (s *scope) cause() condition.Cause {
	alarmed := slices.ContainsFunc(s.nodes, func(n safety.Node) bool { return len(n.Alarms) > 0 })

	switch {
	case s.held == nil:
		return condition.Unexplained
	case !s.established(), alarmed, len(s.extra) > 0, len(s.machines) < len(s.cp.Spec.Machines):
		return condition.Notable
	}

	return condition.CauseOf(s.machines, s.now)
}

// observedConditions describe the current state of the nodes. Bootstrapped is not one of them: it records history.
var observedConditions = []string{
	v1alpha1.ConditionReady, v1alpha1.ConditionAvailable, v1alpha1.ConditionReachable, v1alpha1.ConditionEtcdHealthy,
	v1alpha1.ConditionUpToDate, v1alpha1.ConditionCertificatesValid,
}

// computeStatus is pure. Conditions whose phase did not run keep their value, for as long as condition.Evidence
// permits.
func computeStatus(s *scope, err error) condition.Set {
	st := &s.cp.Status
	paused := s.paused

	if !deleting(s.cp) && !paused {
		st.ObservedGeneration = s.cp.Generation
	}

	set := condition.Begin(&st.Conditions, s.cp.Generation)
	set.IfMissing(v1alpha1.ConditionReady, v1alpha1.ConditionAvailable, v1alpha1.ConditionReachable,
		v1alpha1.ConditionBootstrapped, v1alpha1.ConditionEtcdHealthy, v1alpha1.ConditionUpToDate,
		v1alpha1.ConditionCertificatesValid)

	st.Replicas = int32(len(s.cp.Spec.Machines))

	if s.observed {
		st.ReadyReplicas = readyMachines(s)

		// Without quorum no node returns a member list, and the last known list still applies.
		if s.etcd.Members > 0 {
			st.EtcdMembers = int32(s.etcd.Members)
		}

		setReachable(s, set)
		setEtcd(s, set)
		setUpToDate(s, err, set)
		setAvailable(s, set)
		setRemediating(s, set)
	}

	if s.fencing {
		set.While(len(s.fenced) > 0, v1alpha1.ConditionFencing, v1alpha1.ReasonMachineReturned,
			strings.Join(s.fenced, "; "))
	}

	if s.bootstrap != nil {
		setBootstrapped(s, set)
	}

	setCertificates(s, set)
	setStateAtRisk(s, set)
	setHookFailed(s, set)
	setReady(s, err, set)
	set.Transient(paused, deleting(s.cp), err)

	if !paused && !deleting(s.cp) {
		set.Lift(condition.MachinesOf(s.machines)...)
	}

	s.hold.Show(set)
	s.hold.ShowWould(set, s.would)

	return set
}

// readyMachines counts the ready machines that are healthy voting etcd members.
func readyMachines(s *scope) int32 {
	var count int32

	for _, m := range s.machines {
		if meta.IsStatusConditionTrue(m.Status.Conditions, v1alpha1.ConditionReady) &&
			slices.Contains(s.etcd.Voting, m.Name) && !slices.Contains(s.extra, m.Name) {
			count++
		}
	}

	return count
}

func setReachable(s *scope, set condition.Set) {
	var silent, unasked []string

	for _, n := range s.nodes {
		switch {
		case n.Address == "":
			unasked = append(unasked, n.Name)
		case n.Answer == safety.AnswerUnknown:
			silent = append(silent, n.Name)
		}
	}

	slices.Sort(silent)
	slices.Sort(unasked)

	switch {
	case len(silent) > 0:
		set.False(v1alpha1.ConditionReachable, v1alpha1.ReasonNodeUnreachable, strings.Join(silent, ", ")+" unreachable")
	case len(unasked) > 0:
		set.Unknown(v1alpha1.ConditionReachable, v1alpha1.ReasonWaitingForAddress,
			"no address is known yet of "+strings.Join(unasked, ", "))
	case len(s.nodes) == 0:
		set.Unknown(v1alpha1.ConditionReachable, v1alpha1.ReasonWaitingForMachines, "there are no machines yet")
	default:
		set.True(v1alpha1.ConditionReachable, v1alpha1.ReasonReachable, "every control-plane node is reachable")
	}
}

func setEtcd(s *scope, set condition.Set) {
	silent := !slices.ContainsFunc(s.nodes, func(n safety.Node) bool { return n.Answer != safety.AnswerUnknown })

	switch {
	case s.etcd.Healthy:
		set.True(v1alpha1.ConditionEtcdHealthy, s.etcd.Reason, s.etcd.Message)
	case s.quorumLost():
		set.False(v1alpha1.ConditionEtcdHealthy, v1alpha1.ReasonQuorumLost, s.quorum.Message)
	case silent && s.established():
		set.Unknown(v1alpha1.ConditionEtcdHealthy, v1alpha1.ReasonWaitingForEvidence, s.quorum.Message)
	case len(s.pulls) > 0 && s.etcd.Reason != v1alpha1.ReasonEtcdSplit:
		set.False(v1alpha1.ConditionEtcdHealthy, v1alpha1.ReasonEtcdImagePull, s.stuckPulls())
	default:
		set.False(v1alpha1.ConditionEtcdHealthy, s.etcd.Reason, s.etcd.Message)
	}
}

func setUpToDate(s *scope, err error, set condition.Set) {
	if err != nil && failure.ClassOf(err) == failure.ClassTerminal {
		set.False(v1alpha1.ConditionUpToDate, failure.Reason(err), failure.Message(err))

		return
	}

	if s.backup != nil {
		set.False(v1alpha1.ConditionUpToDate, s.backup.Reason, s.backup.Message)

		return
	}

	if s.hooks != nil {
		set.False(v1alpha1.ConditionUpToDate, s.hooks.Reason, s.hooks.Message)

		return
	}

	if s.hookStays() {
		set.Keep(v1alpha1.ConditionUpToDate)

		return
	}

	if len(s.extra) > 0 {
		set.False(v1alpha1.ConditionUpToDate, v1alpha1.ReasonScalingDown, strings.Join(s.extra, ", ")+
			" left the list; "+s.scaling)

		return
	}

	if u := s.cp.Status.Upgrade; u != nil && s.cp.Status.Plan == nil && u.Message != "" && u.TalosVersion == "" {
		set.False(v1alpha1.ConditionUpToDate, cmp.Or(u.Reason, v1alpha1.ReasonUpgradePending),
			targetOf(s.cp).String()+": "+u.Message)

		return
	}

	status, reason, message := rollout.Report(s.cp, nil, s.cp.Status.Plan, len(s.cp.Spec.Machines), s.machines)
	set.Put(v1alpha1.ConditionUpToDate, status, reason, message)
}

func setRemediating(s *scope, set condition.Set) {
	c := s.remedy
	if c == nil {
		kube.RemoveCondition(set.Conditions, v1alpha1.ConditionRemediating)

		return
	}

	set.True(v1alpha1.ConditionRemediating, cmp.Or(c.Reason, v1alpha1.ReasonReplacing),
		cmp.Or(c.Message, c.Spare+" takes the place of "+c.Machine))
}

// setBootstrapped records history: an etcd that does not respond at the moment was bootstrapped nevertheless.
func setBootstrapped(s *scope, set condition.Set) {
	switch {
	case s.bootstrap.Action == safety.BootstrapDone:
		set.True(v1alpha1.ConditionBootstrapped, s.bootstrap.Reason, s.bootstrap.Message)
	case s.bootstrap.Action == safety.BootstrapWait && s.established() && !s.lostForGood(s.bootstrap):
		set.True(v1alpha1.ConditionBootstrapped, v1alpha1.ReasonBootstrapped,
			"etcd was bootstrapped; EtcdHealthy tells its state")
	default:
		set.False(v1alpha1.ConditionBootstrapped, s.bootstrap.Reason, s.bootstrap.Message)
	}
}

// setAvailable needs the response of the Kubernetes API only if the state of etcd does not already decide.
func setAvailable(s *scope, set condition.Set) {
	established := s.established()

	switch {
	case s.etcd.Reason == v1alpha1.ReasonEtcdSplit:
		set.False(v1alpha1.ConditionAvailable, s.etcd.Reason, s.etcd.Message)
	case s.quorumLost():
		set.False(v1alpha1.ConditionAvailable, v1alpha1.ReasonQuorumLost, s.quorum.Message)
	case established && s.quorum.State == safety.QuorumNoLeader:
		set.False(v1alpha1.ConditionAvailable, v1alpha1.ReasonEtcdUnhealthy, s.quorum.Message)
	case !s.asked:
	case s.version == "":
		set.False(v1alpha1.ConditionAvailable, v1alpha1.ReasonAPIServerUnavailable, "no API server of the cluster responds")
	case s.quorum.State == safety.QuorumHeld:
		s.cp.Status.ObservedKubeVersion = s.version
		set.True(v1alpha1.ConditionAvailable, v1alpha1.ReasonAvailable, "the Kubernetes API responds and etcd has quorum")
	case established:
		set.Unknown(v1alpha1.ConditionAvailable, v1alpha1.ReasonWaitingForEvidence, s.quorum.Message)
	default:
		set.False(v1alpha1.ConditionAvailable, v1alpha1.ReasonEtcdUnhealthy, "etcd has no quorum")
	}
}

func setReady(s *scope, err error, set condition.Set) {
	st := &s.cp.Status

	switch {
	case deleting(s.cp):
		set.False(v1alpha1.ConditionReady, v1alpha1.ReasonDeleting, "the object is being deleted")
	case err != nil && failure.Reason(err) != "":
		set.False(v1alpha1.ConditionReady, failure.Reason(err), failure.Message(err))
	case s.observed && unavailable(st.Conditions) != nil:
		c := unavailable(st.Conditions)
		set.False(v1alpha1.ConditionReady, c.Reason, c.Message)
	case s.observed && st.ReadyReplicas < st.Replicas:
		set.False(v1alpha1.ConditionReady, v1alpha1.ReasonWaitingForMachines, "waiting for "+waitingFor(s))
	case err != nil, !s.asked, !s.observed:
	default:
		set.True(v1alpha1.ConditionReady, v1alpha1.ReasonReady,
			"every control-plane node is a voting, healthy etcd member, and the Kubernetes API responds")
	}
}

// unavailable returns the condition Available of a cluster that was observed to be unavailable; nil if it is available
// or unknown.
func unavailable(conditions []metav1.Condition) *metav1.Condition {
	c := meta.FindStatusCondition(conditions, v1alpha1.ConditionAvailable)
	if c == nil || c.Status == metav1.ConditionTrue || c.Reason == v1alpha1.ReasonUnknown ||
		c.Reason == v1alpha1.ReasonNotObserved {
		return nil
	}

	return c
}

// waitingFor names the listed machines that readyMachines does not count, with the reasons.
func waitingFor(s *scope) string {
	var out []string

	staying := 0

	for _, m := range s.machines {
		if slices.Contains(s.extra, m.Name) {
			continue
		}

		staying++

		c := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionReady)

		switch {
		case c == nil:
			out = append(out, m.Name)
		case c.Status != metav1.ConditionTrue:
			out = append(out, m.Name+" ("+c.Message+")")
		case !slices.Contains(s.etcd.Voting, m.Name):
			out = append(out, m.Name+" (its etcd member is not healthy, or does not vote yet)")
		}
	}

	if staying < len(s.cp.Spec.Machines) {
		out = append(out, "machines that are being created")
	}

	return strings.Join(out, ", ")
}
