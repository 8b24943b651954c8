package kubernetescluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/condition"
	"github.com/talos-operator/talos-operator/internal/controller/frame"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/kube"
	"github.com/talos-operator/talos-operator/internal/manifest"
)

// pollDelete is how often a deletion is reconciled; deleted child objects trigger it as well.
const pollDelete = 5 * time.Second

var badReasons = append(slices.Clone(condition.BadReasons), vitistackv1alpha1.ReasonValidationFailed,
	vitistackv1alpha1.ReasonCreationFailed, vitistackv1alpha1.ReasonGenerationFailed,
	vitistackv1alpha1.ReasonValidationError, vitistackv1alpha1.ReasonOwnerReferenceError)

// waits are the reasons of a cluster that is not ready and not broken.
var waits = []string{vitistackv1alpha1.ReasonProvisioning}

// finish derives the status from this reconciliation, writes it once and maps the error to a result.
func (r *Reconciler) finish(ctx context.Context, s *scope, res ctrl.Result, err error) (ctrl.Result, error) {
	if s.released {
		return res, err
	}

	if s.hold.Disabled() {
		return ctrl.Result{}, s.hold.Settle(ctx, r.Client, s.cluster, s.base, &s.cluster.Status.Conditions)
	}

	decided := computeStatus(s, err)
	interval := r.fleet.Interval(r.Resync)

	return r.memory.Finish(ctx, frame.End{
		Client: r.Client, Recorder: r.Recorder, Now: r.Clock.Now(), Object: s.cluster, Base: s.base,
		Conditions: &s.cluster.Status.Conditions, Before: &s.base.Status.Conditions,
		Decided: decided, Observed: observedConditions, Bound: condition.BoundOf(interval),
		Weigh: s.weight, Details: r.Details, Undo: func() { s.cluster.Status = *s.base.Status.DeepCopy() },
		Stamp:  func() { s.stamp(r.Clock.Now()) },
		Events: kube.Transitions{Bad: badReasons}, Cause: s.cause(r.Clock.Now()), Waits: waits,
		Resync: interval, Written: func() { r.logFiles(ctx, s) },
	}, res, err)
}

// stamp dates a status that has changed.
func (s *scope) stamp(at time.Time) {
	if !equality.Semantic.DeepEqual(s.cluster.Status, s.base.Status) {
		now := metav1.NewTime(at.UTC().Truncate(time.Second))
		s.cluster.Status.LastUpdated = &now
	}
}

// weight returns the weight of the status changes of this reconciliation: the number of existing machines is a detail.
func (s *scope) weight() condition.Weight {
	st, was := s.cluster.Status.DeepCopy(), &s.base.Status
	if equality.Semantic.DeepEqual(st, was) {
		return condition.Nothing
	}

	st.MachineCount, st.WorkersReady, st.Conditions = was.MachineCount, was.WorkersReady, was.Conditions

	return condition.Weigh(was.Conditions, s.cluster.Status.Conditions, false, !equality.Semantic.DeepEqual(st, was))
}

// logFiles logs why the manifests could not be written, once per cause, because every reconciliation tries again.
func (r *Reconciler) logFiles(ctx context.Context, s *scope) {
	if s.files == nil {
		return
	}

	told := meta.FindStatusCondition(s.base.Status.Conditions, vitistackv1alpha1.ConditionFilesGenerated)
	if told == nil || told.Message != failure.Message(s.files) {
		ctrl.LoggerFrom(ctx).Error(s.files, "Writing the manifests failed")
	}
}

// observedConditions describe the current state of the child objects.
var observedConditions = []string{
	vitistackv1alpha1.ConditionReady, vitistackv1alpha1.ConditionMachinesCreated,
	vitistackv1alpha1.ConditionFilesGenerated, vitistackv1alpha1.ConditionTopologyValid,
}

// computeStatus is pure. Conditions whose phase did not run keep their value, for as long as condition.Evidence
// permits.
func computeStatus(s *scope, err error) condition.Set {
	st := &s.cluster.Status
	deleting := !s.cluster.DeletionTimestamp.IsZero()
	paused := s.hold.Any()

	// A spec that was neither applied nor rejected must not count as observed: otherwise it would seem to change nothing.
	if handled := err == nil || failure.ClassOf(err) == failure.ClassTerminal; !deleting && !paused && handled {
		st.ObservedGeneration = s.cluster.Generation
	}

	set := condition.Begin(&st.Conditions, s.cluster.Generation)
	set.IfMissing(vitistackv1alpha1.ConditionReady, vitistackv1alpha1.ConditionMachinesCreated,
		vitistackv1alpha1.ConditionFilesGenerated, vitistackv1alpha1.ConditionTopologyValid)

	setSteps(s, set, err)

	if s.listed {
		aggregate(s)
	}

	st.Phase = phase(s, err)
	setReady(s, set, err, deleting, !s.hold.Live())
	set.Transient(paused, deleting, err)

	if !paused && !deleting {
		set.Lift(s.below()...)
	}

	s.hold.Show(set)
	s.hold.ShowWould(set, s.would)

	return set
}

// setSteps sets the conditions of the steps that ran.
func setSteps(s *scope, set condition.Set, err error) {
	if s.valid != nil {
		if *s.valid {
			set.True(
				vitistackv1alpha1.ConditionTopologyValid,
				vitistackv1alpha1.ReasonValidationSucceeded,
				"the spec is valid",
			)
		} else {
			set.False(vitistackv1alpha1.ConditionTopologyValid, vitistackv1alpha1.ReasonValidationFailed, failure.Message(err))
		}
	}

	if s.tried {
		if s.created == nil {
			set.True(vitistackv1alpha1.ConditionMachinesCreated, vitistackv1alpha1.ReasonCreationSucceeded,
				fmt.Sprintf("%d machines exist", len(s.machines())))
		} else {
			set.False(vitistackv1alpha1.ConditionMachinesCreated, vitistackv1alpha1.ReasonCreationFailed,
				failure.Message(s.created))
		}
	}

	if !s.wrote {
		return
	}

	if s.files == nil {
		set.True(vitistackv1alpha1.ConditionFilesGenerated, vitistackv1alpha1.ReasonGenerationSucceeded,
			"the manifests are written")

		return
	}

	set.False(vitistackv1alpha1.ConditionFilesGenerated, vitistackv1alpha1.ReasonGenerationFailed,
		failure.Message(s.files))
}

// filesMessage says why the manifests in a folder could not be written or removed. The names of temporary files change
// with every attempt, so the message contains only the error of the operating system; the log has the rest.
func filesMessage(folder string, err error) string {
	var errno syscall.Errno

	switch {
	case errors.Is(err, manifest.ErrForeign):
		return "the manifest folder " + folder + " belongs to a cluster of the same name in another namespace"
	case errors.As(err, &errno):
		return "the manifests in " + folder + " could not be written or removed: " + errno.Error() +
			"; check the permissions of the folder and its free space"
	}

	return "the manifests in " + folder + " could not be written or removed; see the operator log"
}

// aggregate summarizes the child objects.
func aggregate(s *scope) {
	st := &s.cluster.Status

	// Machines that were created in this reconciliation are not in the list yet.
	st.MachineCount = int32(len(s.have))
	if s.tried && s.created == nil {
		st.MachineCount = int32(len(s.machines()) + len(s.extra))
	}

	st.ControlPlaneReady = s.cp != nil && s.current(s.cp, s.cp.Status.Conditions)
	st.WorkersReady = 0

	for _, g := range s.groups {
		st.WorkersReady += g.Status.ReadyReplicas
	}
}

// current reports whether a child object is ready under its current spec.
func (s *scope) current(o client.Object, conditions []metav1.Condition) bool {
	c := meta.FindStatusCondition(conditions, v1alpha1.ConditionReady)

	return c != nil && c.Status == metav1.ConditionTrue && c.ObservedGeneration >= o.GetGeneration() &&
		!slices.Contains(s.handed, o.GetName())
}

func (t topology) wantedWorkers() int32 {
	var n int32
	for _, g := range t.cluster.Spec.Workers {
		n += g.Replicas
	}

	return n
}

func complete(s *scope) bool { return s.cluster.Status.ControlPlaneReady && len(s.unready()) == 0 }

// unready returns the groups with fewer ready machines than the spec demands, with the reasons. The machines of one
// group do not compensate for those of another one.
func (s *scope) unready() []string {
	var out []string

	for _, g := range s.cluster.Spec.Workers {
		name := s.name + "-" + g.Name
		i := slices.IndexFunc(s.groups, func(w v1alpha1.TalosWorker) bool { return w.Name == name })

		switch {
		case i < 0:
			out = append(out, name+" is being created")
		case !s.current(&s.groups[i], s.groups[i].Status.Conditions), s.groups[i].Status.ReadyReplicas < g.Replicas:
			out = append(out, name+waitsFor(s.groups[i].Status.Conditions))
		}
	}

	return out
}

// below returns the child objects of the cluster, as far as they were listed.
func (s *scope) below() []condition.Child {
	var out []condition.Child

	if s.cp != nil {
		out = append(out, condition.Child{Name: "control plane", Conditions: s.cp.Status.Conditions})
	}

	for i := range s.groups {
		out = append(out, condition.Child{Name: s.groups[i].Name, Conditions: s.groups[i].Status.Conditions})
	}

	return out
}

func phase(s *scope, err error) vitistackv1alpha1.ClusterPhase {
	switch {
	case err != nil && failure.ClassOf(err) == failure.ClassTerminal:
		return vitistackv1alpha1.PhaseFailed
	case slices.ContainsFunc(s.below(), func(c condition.Child) bool {
		return meta.IsStatusConditionTrue(c.Conditions, v1alpha1.ConditionStalled)
	}):
		return vitistackv1alpha1.PhaseFailed
	case !s.listed && s.cluster.Status.Phase != "":
		return s.cluster.Status.Phase
	case complete(s):
		return vitistackv1alpha1.PhaseRunning
	case s.cluster.Status.MachineCount > 0:
		return vitistackv1alpha1.PhaseProvisioning
	}

	return vitistackv1alpha1.PhasePending
}

func setReady(s *scope, set condition.Set, err error, deleting, paused bool) {
	const kind = vitistackv1alpha1.ConditionReady

	switch {
	case deleting:
		set.False(kind, vitistackv1alpha1.ReasonDeleting, or(failure.Message(err), "the cluster is being deleted"))
	case paused:
		set.False(kind, vitistackv1alpha1.ReasonPaused, "the paused annotation is set")
	case err != nil && failure.Reason(err) != "":
		set.False(kind, failure.Reason(err), failure.Message(err))
	case s.listed && !complete(s):
		set.False(kind, vitistackv1alpha1.ReasonProvisioning, provisioning(s))
	case err != nil, !s.listed:
	case len(s.extra) > 0 && s.hold.Any():
		set.False(kind, vitistackv1alpha1.ReasonProvisioning, strings.Join(s.extra, ", ")+" would be taken out")
	case len(s.extra) > 0:
		set.False(kind, vitistackv1alpha1.ReasonProvisioning, strings.Join(s.extra, ", ")+" is being taken out")
	default:
		set.True(kind, vitistackv1alpha1.ReasonReady, "control plane and workers are ready")
	}
}

// provisioning says what the cluster waits for.
func provisioning(s *scope) string {
	if !s.cluster.Status.ControlPlaneReady {
		if s.cp == nil {
			return "the control plane is being created"
		}

		return "control plane" + waitsFor(s.cp.Status.Conditions)
	}

	if have, want := s.cluster.Status.WorkersReady, s.wantedWorkers(); have < want {
		return fmt.Sprintf("%d of %d workers are ready", have, want)
	}

	return "waiting for " + strings.Join(s.unready(), "; ")
}

func waitsFor(conditions []metav1.Condition) string {
	kind := v1alpha1.ConditionReady
	if meta.FindStatusCondition(conditions, v1alpha1.ConditionDeleting) != nil {
		kind = v1alpha1.ConditionDeleting
	}

	if c := meta.FindStatusCondition(conditions, kind); c != nil {
		return ": " + c.Message
	}

	return ""
}

func groupsWaitFor(groups []v1alpha1.TalosWorker) string {
	out := make([]string, 0, len(groups))
	for _, g := range groups {
		out = append(out, " "+g.Name+waitsFor(g.Status.Conditions))
	}

	return strings.Join(out, ";")
}

func or(a, b string) string {
	if a != "" {
		return a
	}

	return b
}
