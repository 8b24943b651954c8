package talosmachine

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/condition"
	"github.com/talos-operator/talos-operator/internal/controller/frame"
	"github.com/talos-operator/talos-operator/internal/decide/change"
	"github.com/talos-operator/talos-operator/internal/decide/upgrade"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/machineconfig"
	"github.com/talos-operator/talos-operator/internal/talos"
)

// finish derives the status from this reconciliation, writes it once and maps the error to a result.
func (r *Reconciler) finish(ctx context.Context, s *scope, res ctrl.Result, err error) (ctrl.Result, error) {
	if s.released {
		return res, err
	}

	if s.hold.Disabled() {
		return ctrl.Result{}, s.hold.Settle(ctx, r.Client, s.machine, s.base, &s.machine.Status.Conditions)
	}

	// The observations of this reconciliation are older than the concurrent write, so it is repeated immediately.
	if apierrors.IsConflict(err) {
		return failure.Result(res, err, r.Resync)
	}

	// New reports from a machine that was rejected rarely change the rejection.
	r.Watcher.Refused(s.key().String(), failure.ClassOf(err) == failure.ClassTerminal && s.again == 0)

	decided := computeStatus(s, err)
	outage := condition.ExpectsOutage(s.machine)

	res, err = r.memory.Finish(ctx, frame.End{
		Client: r.Client, Recorder: r.Recorder, Now: r.Clock.Now(), Object: s.machine, Base: s.base,
		Conditions: &s.machine.Status.Conditions, Before: &s.base.Status.Conditions,
		Decided: decided, Observed: observedConditions, Bound: condition.BoundOf(r.Resync),
		Weigh:   func() condition.Weight { return s.weight(outage) },
		Details: r.Details, Undo: func() { s.machine.Status = *s.base.Status.DeepCopy() },
		Claim:  idOf(s.base.Status.Change) != idOf(s.machine.Status.Change),
		Events: condition.MachineEvents(outage, condition.ExpectsOutage(s.base)), Resync: r.Resync,
		Written: func() { r.tellOverdue(s, outage) },
		// The result of this comparison has not been written anywhere yet.
		Unwritten: func() { r.looks.forget(s.key().String()) },
	}, res, err)

	if s.soaks() { // nothing reports the end of it
		res = condition.Within(res, err, max(s.soakRecorded().Sub(r.Clock.Now()), time.Second))
	}

	if again := s.lookAgain(); again > 0 { // nothing reports the end of them
		res = condition.Within(res, err, again)
	}

	if r.unwatched(s) {
		res = condition.Within(res, err, pollUnwatched)
	}

	res = condition.Within(res, err, s.again)

	if !deleting(s.machine) && s.hasSources() {
		res = condition.Within(res, err, pollPatches)
	}

	return res, err
}

// tellOverdue emits an event about a node that does not return from an outage that was expected and therefore not
// reported.
func (r *Reconciler) tellOverdue(s *scope, expected bool) {
	if !expected {
		return
	}

	if c := r.outages.Overdue(s.key(), s.machine.Status.Conditions, r.Clock.Now()); c != nil {
		r.Recorder.Eventf(s.machine, nil, corev1.EventTypeWarning, c.Reason, c.Type,
			"%s is %s for more than %s: %s", c.Type, c.Status, condition.OutagePatience, c.Message)
	}
}

// weight returns the weight of the status changes of this reconciliation: the progress of a booting node is a detail,
// and so are its volumes, unless one fails, which is a condition, and what an installer prints.
func (s *scope) weight(outage bool) condition.Weight {
	st, was := s.machine.Status.DeepCopy(), &s.base.Status
	if equality.Semantic.DeepEqual(st, was) {
		return condition.Nothing
	}

	st.Stage, st.UnmetConditions, st.Addresses = was.Stage, was.UnmetConditions, was.Addresses
	st.BootID, st.KubeletVersion, st.LastError = was.BootID, was.KubeletVersion, was.LastError
	st.Conditions, st.Volumes, st.Network = was.Conditions, was.Volumes, was.Network
	st.StaticPods = was.StaticPods

	if !hasKeys(st.BootVolumes) && !hasKeys(was.BootVolumes) { // a boot without keys has nothing to remember
		st.BootVolumes = was.BootVolumes
	}

	if st.Change != nil && was.Change != nil { // what an installer prints
		st.Change.Progress = was.Change.Progress
	}

	if st.Images != nil && was.Images != nil { // a retry of a pull
		st.Images.LastAttemptTime, st.Images.Failures = was.Images.LastAttemptTime, was.Images.Failures
	}

	return condition.Weigh(was.Conditions, s.machine.Status.Conditions, outage, !equality.Semantic.DeepEqual(st, was))
}

func hasKeys(b *v1alpha1.BootVolumes) bool { return b != nil && len(b.Keys) > 0 }

// pollUnwatched is how soon a reachable machine without a stream is queried again: until then, no event reports
// changes.
const pollUnwatched = 15 * time.Second

func (r *Reconciler) unwatched(s *scope) bool {
	// A machine that presents an unexpected certificate has no stream and is queried rarely.
	if s.stranger || s.answer != talos.StateMember && s.answer != talos.StateMaintenance {
		return false
	}

	snapshot, watched := r.Watcher.Get(s.key().String())

	return watched && !snapshot.Reachable
}

// observedConditions describe the current state of the node. Configured is not one of them: it says what was sent to
// the node, and a machine that is unreachable for long is replaced only if it was configured.
var observedConditions = []string{
	v1alpha1.ConditionReady, v1alpha1.ConditionReachable, v1alpha1.ConditionUpToDate, v1alpha1.ConditionDrifted,
	v1alpha1.ConditionExtensionServicesFailed, v1alpha1.ConditionStaticPodsFailed, v1alpha1.ConditionTalosVersionUnknown,
	v1alpha1.ConditionVolumesFailed, v1alpha1.ConditionFirewallShutsOut, v1alpha1.ConditionNetworkDegraded,
}

// computeStatus is pure. Conditions whose phase did not run keep their value, for as long as condition.Evidence
// permits.
func computeStatus(s *scope, err error) condition.Set {
	st := &s.machine.Status
	if !deleting(s.machine) {
		st.ObservedGeneration = s.machine.Generation
	}

	if s.address != "" && (st.Address == "" || s.met()) {
		st.Address = s.address
	}

	copyFacts(st, s)
	s.showVolumes()

	st.LastError = ""
	if err != nil && failure.ClassOf(err) != failure.ClassWaiting {
		st.LastError = cut(failure.Message(err), longestError)
	}

	set := condition.Begin(&st.Conditions, s.machine.Generation)
	set.IfMissing(v1alpha1.ConditionReady, v1alpha1.ConditionReachable, v1alpha1.ConditionConfigured,
		v1alpha1.ConditionUpToDate)

	setReachable(s, err, set)
	setConfigured(s, err, set)
	setUpToDate(s, err, set)
	setReady(s, err, set)
	setFaults(s, set)
	setVersionUnknown(s, set)
	setVolumes(s, set)
	setFirewall(s, set)
	set.Transient(s.paused, deleting(s.machine), err)
	s.hold.Show(set)

	return set
}

// setVersionUnknown reports a Talos that the operator does not know. What its configuration means there is unknown as
// well.
func setVersionUnknown(s *scope, set condition.Set) {
	version := s.machine.Status.TalosVersion
	if s.facts == nil && version != "" {
		return
	}

	set.While(upgrade.TooNew(version), v1alpha1.ConditionTalosVersionUnknown, v1alpha1.ReasonTalosTooNew, fmt.Sprintf(
		"the machine runs Talos %s, and this version of the operator knows Talos up to %s: it is observed, and Talos is "+
			"neither upgraded nor downgraded; upgrade the operator", version, upgrade.NewestKnown(upgrade.Talos)))
}

func copyFacts(st *v1alpha1.TalosMachineStatus, s *scope) {
	if s.probed {
		st.MaintenanceFingerprint = s.fingerprint
	}

	if s.probed && s.answer == talos.StateUnreachable {
		st.Stage, st.UnmetConditions = "", nil

		return
	}

	if s.facts == nil {
		return
	}

	f := s.facts
	st.Stage, st.UnmetConditions = f.Stage, f.Unmet
	st.Hostname, st.Addresses = f.Hostname, f.Addresses

	// A node in maintenance mode has none, and its Node is still to be removed.
	st.NodeName = cmp.Or(f.NodeName, st.NodeName)

	st.TalosVersion, st.Image = f.TalosVersion, s.shownImage()

	// Early in a boot a node does not tell it yet.
	if f.KubeletVersion != "" || s.answer == talos.StateMaintenance {
		st.KubeletVersion = f.KubeletVersion
	}

	if s.compared {
		st.ComponentVersions = s.componentVersions()
	}

	if s.network != nil || s.answer == talos.StateMaintenance {
		st.Network = s.network
	}

	st.BootID, st.UUID = f.BootID, f.UUID
	st.EtcdMemberID = f.EtcdMemberID

	// A node does not report its member ID while its etcd is unhealthy, which is when the ID matters. In maintenance mode
	// it has no member.
	if f.EtcdMemberID != "" || s.answer == talos.StateMaintenance {
		st.LastEtcdMemberID = f.EtcdMemberID
	}

	st.CPUs, st.MemoryMiB = f.CPUs, f.MemoryMiB

	if f.SystemDisk != "" && st.InstallDisk == "" {
		st.InstallDisk = f.SystemDisk
	}
}

func setReachable(s *scope, err error, set condition.Set) {
	switch {
	case !s.probed:
	case failure.ClassOf(err) == failure.ClassAuth:
		set.False(v1alpha1.ConditionReachable, v1alpha1.ReasonAuthFailed, failure.Message(err))
	case failure.Reason(err) == v1alpha1.ReasonMaintenanceCertificateMismatch:
		set.False(v1alpha1.ConditionReachable, v1alpha1.ReasonMaintenanceCertificateMismatch, failure.Message(err))
	case s.stranger:
		set.False(v1alpha1.ConditionReachable, v1alpha1.ReasonWrongMachine, failure.Message(err))
	case s.answer == talos.StateUnreachable:
		set.False(v1alpha1.ConditionReachable, v1alpha1.ReasonNodeUnreachable,
			fmt.Sprintf("machine %s at %s is unreachable", s.machine.Name, s.address))
	default:
		set.True(v1alpha1.ConditionReachable, v1alpha1.ReasonReachable, "the machine is reachable")
	}
}

func setConfigured(s *scope, err error, set condition.Set) {
	switch {
	case s.answer == talos.StateForeign && failure.Reason(err) == v1alpha1.ReasonBooting:
		// A worker that waits for its certificate presents another one; this does not make it part of another cluster.
	case !s.probed || s.stranger || s.answer == talos.StateUnreachable:
	case s.answer == talos.StateMember:
		set.True(v1alpha1.ConditionConfigured, v1alpha1.ReasonConfigured,
			"the machine runs under the PKI of its cluster")
	case s.answer == talos.StateForeign:
		set.False(v1alpha1.ConditionConfigured, v1alpha1.ReasonForeignNode,
			"the machine runs under the CA of another cluster")
	default:
		set.False(v1alpha1.ConditionConfigured, v1alpha1.ReasonMaintenance,
			"the machine is in maintenance mode")
	}
}

func setUpToDate(s *scope, err error, set condition.Set) {
	if !s.compared {
		setNotCompared(s, err, set)

		return
	}

	set.While(len(s.edited) > 0, v1alpha1.ConditionDrifted, v1alpha1.ReasonDrifted,
		"changed outside the operator: "+strings.Join(limited(s.edited), ", "))

	switch c := s.machine.Status.Change; {
	case c != nil && c.Phase != v1alpha1.ChangePending:
		set.False(v1alpha1.ConditionUpToDate, changeReasons[c.Phase], changeMessage(c)+s.systems.notReverted())
	case s.unsourced != nil:
		set.False(v1alpha1.ConditionUpToDate, failure.Reason(s.unsourced), failure.Message(s.unsourced))
	case s.refused != nil:
		set.False(v1alpha1.ConditionUpToDate, s.refused.reason, s.refused.message)
	case s.systems.verdict(c) != "":
		set.False(v1alpha1.ConditionUpToDate, s.systems.verdict(c), s.systems.explain(c))
	case s.diff.Equal() && s.reverting:
		set.False(v1alpha1.ConditionUpToDate, v1alpha1.ReasonReverted,
			"the machine runs the last working config; correct the spec, or remove the annotation "+
				v1alpha1.RevertAnnotation)
	case c == nil && len(s.edited) > 0:
		set.False(v1alpha1.ConditionUpToDate, v1alpha1.ReasonDrifted,
			"changed outside the operator: "+strings.Join(limited(s.edited), ", "))
	case !s.diff.Equal():
		set.False(v1alpha1.ConditionUpToDate, v1alpha1.ReasonConfigDiffers,
			"the live config differs from the desired one in "+strings.Join(s.diff.Paths(), ", "))
	case len(s.kept) > 0:
		set.False(v1alpha1.ConditionUpToDate, v1alpha1.ReasonUpgradePending, "other versions run than the spec asks for: "+
			versions(s.kept))
	default:
		set.True(v1alpha1.ConditionUpToDate, v1alpha1.ReasonUpToDate, "the machine runs the desired config"+s.warned())
	}
}

// warned says what is odd about the configuration that the machine runs; empty if nothing is.
func (s *scope) warned() string {
	if len(s.warnings) == 0 {
		return ""
	}

	return "; " + strings.Join(limited(s.warnings), "; ")
}

// setNotCompared reports a machine whose configuration was not compared in this reconciliation.
func setNotCompared(s *scope, err error, set condition.Set) {
	c := s.machine.Status.Change

	switch {
	case s.settled:
		set.Keep(v1alpha1.ConditionUpToDate, v1alpha1.ConditionDrifted, v1alpha1.ConditionFirewallShutsOut)
	case s.waits && c.Phase == v1alpha1.ChangePending:
		set.Keep(v1alpha1.ConditionUpToDate, v1alpha1.ConditionDrifted)
	case s.waits:
		set.False(v1alpha1.ConditionUpToDate, changeReasons[c.Phase], changeMessage(c)+"; it goes on once the machine has "+
			"reported what it has booted: if it never does, reboot it")
	case s.probed && s.answer == talos.StateMaintenance:
		set.False(v1alpha1.ConditionUpToDate, v1alpha1.ReasonMaintenance, "the machine has no config")
	case c != nil && c.Phase == v1alpha1.ChangeFailed:
		set.False(v1alpha1.ConditionUpToDate, v1alpha1.ReasonChangeFailed, changeMessage(c))
	case isRefusal(err), err != nil && failure.ClassOf(err) == failure.ClassTerminal && failure.Reason(err) != "":
		set.False(v1alpha1.ConditionUpToDate, failure.Reason(err), failure.Message(err))
	}
}

// changeReasons are the condition reasons of a change, by its phase.
var changeReasons = map[v1alpha1.ChangePhase]string{
	v1alpha1.ChangeDraining: v1alpha1.ReasonDraining, v1alpha1.ChangeApplying: v1alpha1.ReasonRollingOut,
	v1alpha1.ChangeAwaitingReboot: v1alpha1.ReasonAwaitingReboot, v1alpha1.ChangeRebooting: v1alpha1.ReasonRollingOut,
	v1alpha1.ChangeSettling: v1alpha1.ReasonRollingOut, v1alpha1.ChangeFailed: v1alpha1.ReasonChangeFailed,
}

func changeMessage(c *v1alpha1.MachineChange) string {
	out := "the change of " + change.FieldNames(c) + " is " + string(c.Phase)
	if c.Message != "" {
		out += ": " + c.Message
	}

	return out
}

// upgradeMessage says from what to what a machine is upgraded that has not begun.
func upgradeMessage(c *v1alpha1.MachineChange) string {
	out := make([]string, 0, len(c.Fields))
	for _, f := range c.Fields {
		out = append(out, fmt.Sprintf("%s %s to %s", f.Field, cmp.Or(f.Old, "none"), cmp.Or(f.New, "none")))
	}

	if c.Message != "" {
		return "the upgrade of " + strings.Join(out, ", ") + " has not begun: " + c.Message
	}

	return "the upgrade of " + strings.Join(out, ", ") + " waits for its slot"
}

func versions(kept []machineconfig.Change) string {
	out := make([]string, 0, len(kept))
	for _, c := range kept {
		out = append(out, fmt.Sprintf("%s is %s instead of %s", c.Field(), c.Old, c.New))
	}

	return change.List(out)
}

func setReady(s *scope, err error, set condition.Set) {
	switch {
	case deleting(s.machine):
		set.False(v1alpha1.ConditionReady, v1alpha1.ReasonDeleting, "the object is being deleted")
	case err != nil && failure.Reason(err) != "":
		set.False(v1alpha1.ConditionReady, failure.Reason(err), failure.Message(err))
	case !s.probed:
	case s.answer == talos.StateMaintenance:
		set.False(v1alpha1.ConditionReady, v1alpha1.ReasonMaintenance, "applying the initial machine config")
	case s.facts == nil:
	case s.facts.Stage != change.StageRunning:
		set.False(v1alpha1.ConditionReady, v1alpha1.ReasonBooting, "the machine is "+s.facts.Stage)
	case !s.facts.Ready:
		set.False(v1alpha1.ConditionReady, v1alpha1.ReasonNodeNotReady,
			"the machine waits for "+strings.Join(s.facts.Unmet, ", "))
	case err != nil:
	default:
		set.True(v1alpha1.ConditionReady, v1alpha1.ReasonReady, "the machine runs and is ready")
	}
}

// intend records a step before it is taken. A step that is already recorded keeps its start time.
func (r *Reconciler) intend(ctx context.Context, s *scope, intent v1alpha1.MachineIntent) error {
	intent.Since = stamp(r.Clock.Now())

	if i := s.machine.Status.Intent; i != nil && i.Step == intent.Step && i.Attempt == intent.Attempt {
		if i.MemberID == intent.MemberID {
			return nil
		}

		intent.Since = i.Since
	}

	s.machine.Status.Intent = &intent

	if err := r.claim(ctx, s); err != nil {
		return fmt.Errorf("recording the step %s: %w", intent.Step, err)
	}

	return nil
}

// claim writes the status and fails with a conflict if it was written since it was read: otherwise a step that is
// decided from a stale cache would be taken twice, or after it was cancelled.
func (r *Reconciler) claim(ctx context.Context, s *scope) error {
	ctx, cancel := context.WithTimeout(talos.Acting(ctx), recordTimeout)
	defer cancel()

	patch := client.MergeFromWithOptions(s.base, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Status().Patch(ctx, s.machine, patch); err != nil {
		return fmt.Errorf("writing the status of %s: %w", s.machine.Name, err)
	}

	s.base = s.machine.DeepCopy()

	return nil
}
