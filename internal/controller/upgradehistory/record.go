package upgradehistory

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/history"
	"github.com/talos-operator/talos-operator/internal/decide/upgrade"
	"github.com/talos-operator/talos-operator/internal/kube"
	"github.com/talos-operator/talos-operator/internal/metrics"
)

// observed is what is decided from, and the records by name as they were read.
type observed struct {
	history.Input

	records map[string]client.Object
}

// record returns the phase that brings the records of a component up to date. While the cluster is paused, or in a
// dry run, records stay as they are, as everything else does.
func (r *Reconciler) record(of upgrade.Component) func(context.Context, *scope) error {
	return func(ctx context.Context, s *scope) error {
		if s.hold.Any() {
			return nil
		}

		o, err := r.observe(ctx, r.Client, s.cp, of)
		if err != nil {
			return err
		}

		out := history.Next(o.Input)
		if !out.Settles() {
			return r.write(ctx, o, out)
		}

		// The control plane first: what it plans follows from its machines, so those must not be older.
		live := &v1alpha1.TalosControlPlane{}
		if err := r.Reader.Get(ctx, client.ObjectKeyFromObject(s.cp), live); err != nil {
			return client.IgnoreNotFound(err)
		}

		if !live.DeletionTimestamp.IsZero() || live.UID != s.cp.UID {
			return nil
		}

		if o, err = r.observe(ctx, r.Reader, live, of); err != nil {
			return err
		}

		return r.write(ctx, o, history.Next(o.Input))
	}
}

// observe reads what is decided from.
func (r *Reconciler) observe(
	ctx context.Context, reader client.Reader, cp *v1alpha1.TalosControlPlane, of upgrade.Component,
) (observed, error) {
	out := observed{history.Input{Component: of, ControlPlane: cp, Now: r.Clock.Now()}, map[string]client.Object{}}
	in, labels := client.InNamespace(cp.Namespace), client.MatchingLabels{v1alpha1.ControlPlaneLabel: cp.Name}
	list, machines := listOf(of), &v1alpha1.TalosMachineList{}

	if err := reader.List(ctx, list, in, labels, kube.Controlled{Owner: cp.UID}); err != nil {
		return out, fmt.Errorf("listing the upgrades of %s: %w", cp.Name, err)
	}

	err := meta.EachListItem(list, func(item runtime.Object) error {
		o, ok := item.(client.Object)
		if ok && metav1.IsControlledBy(o, cp) {
			spec, status := partsOf(o)
			out.records[o.GetName()] = o
			out.Runs = append(out.Runs, history.Run{Name: o.GetName(), Spec: *spec, Status: *status})
		}

		return nil
	})
	if err != nil {
		return out, fmt.Errorf("reading the upgrades of %s: %w", cp.Name, err)
	}

	if err := reader.List(ctx, machines, in, labels, kube.Shared); err != nil {
		return out, fmt.Errorf("listing the machines of %s: %w", cp.Name, err)
	}

	groups := &v1alpha1.TalosWorkerList{}
	if err := reader.List(ctx, groups, in, kube.Shared); err != nil {
		return out, fmt.Errorf("listing the worker groups of %s: %w", cp.Name, err)
	}

	out.Machines = machines.Items
	out.Workers = slices.DeleteFunc(slices.Clone(groups.Items), func(w v1alpha1.TalosWorker) bool {
		return w.Spec.ControlPlaneRef.Name != cp.Name
	})

	return out, nil
}

// write writes an outcome. Each write may be the last one: the next reconciliation decides anew.
func (r *Reconciler) write(ctx context.Context, in observed, out history.Outcome) error {
	if run := out.Update; run != nil {
		o := in.records[run.Name]
		_, status := partsOf(o)
		was := *status

		if err := r.patch(ctx, o, run); err != nil {
			return client.IgnoreNotFound(err) // a run that goes on is recorded anew
		}

		r.tell(in, o, &was, run)
		measure(in.Component, &run.Status)
	}

	if out.Create != nil {
		if err := r.create(ctx, in, out.Create); err != nil {
			return err
		}
	}

	for _, name := range out.Delete {
		o := newRecord(in, &history.Run{Name: name})
		if err := r.Client.Delete(ctx, o); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting %s %s: %w", kube.KindOf(r.Client, o), name, err)
		}
	}

	return nil
}

// create creates a run, and writes its first status. The name has the next number: a run that exists already, and
// that was not observed, is not created a second time.
func (r *Reconciler) create(ctx context.Context, in observed, run *history.Run) error {
	o := newRecord(in, run)

	if err := ctrl.SetControllerReference(in.ControlPlane, o, r.Client.Scheme()); err != nil {
		return fmt.Errorf("setting the owner of %s: %w", run.Name, err)
	}

	if err := r.Client.Create(ctx, o, kube.FieldOwner); err != nil {
		return fmt.Errorf("creating %s %s: %w", kube.KindOf(r.Client, o), run.Name, err)
	}

	if err := r.patch(ctx, o, run); err != nil {
		return client.IgnoreNotFound(err)
	}

	r.tell(in, o, &v1alpha1.UpgradeRunStatus{}, run)

	return nil
}

// patch writes the status of a run. Where the record was written since it was read, as a cache that lags behind does
// not show, the write is a conflict: a finished run does not change any more.
func (r *Reconciler) patch(ctx context.Context, o client.Object, run *history.Run) error {
	base, ok := o.DeepCopyObject().(client.Object)
	if !ok {
		return fmt.Errorf("%s cannot be copied", run.Name)
	}

	_, status := partsOf(o)
	*status = run.Status

	return kube.ClaimStatus(ctx, r.Client, o, base)
}

// measure observes how long a run took that has ended now.
func measure(of upgrade.Component, st *v1alpha1.UpgradeRunStatus) {
	if history.Finished(st) && st.StartTime != nil {
		metrics.RunDuration.WithLabelValues(string(of), string(st.Phase)).
			Observe(st.CompletionTime.Sub(st.StartTime.Time).Seconds())
	}
}

// tell tells of the end of a run, of each thing that it begins to wait for, and that it goes on.
func (r *Reconciler) tell(in observed, o client.Object, was *v1alpha1.UpgradeRunStatus, run *history.Run) {
	say := func(kind, reason, format string, args ...any) {
		r.Recorder.Eventf(o, in.ControlPlane, kind, reason, "Upgrade", format, args...)
	}

	switch is := &run.Status; {
	case waits(is) && (!waits(was) || was.Message != is.Message):
		say(corev1.EventTypeNormal, v1alpha1.ReasonUpgradeWaiting, "waiting: %s", is.Message)
	case !waits(is) && waits(was) && is.Phase == v1alpha1.UpgradeRunRunning:
		say(corev1.EventTypeNormal, v1alpha1.ReasonUpgrading, "no longer waiting: %s", was.Message)
	}

	c := meta.FindStatusCondition(run.Status.Conditions, v1alpha1.ConditionComplete)
	if c == nil || !history.Finished(&run.Status) {
		return
	}

	kind := corev1.EventTypeNormal
	if run.Status.Phase == v1alpha1.UpgradeRunFailed {
		kind = corev1.EventTypeWarning
	}

	say(kind, c.Reason, "%s: %s", run.Status.Phase, c.Message)
}

// waits reports whether a run that goes on waits for something.
func waits(st *v1alpha1.UpgradeRunStatus) bool {
	return st.Message != "" && (st.Phase == v1alpha1.UpgradeRunRunning || st.Phase == v1alpha1.UpgradeRunWaiting)
}

func listOf(of upgrade.Component) client.ObjectList {
	if of == upgrade.Kubernetes {
		return &v1alpha1.KubernetesUpgradeList{}
	}

	return &v1alpha1.TalosUpgradeList{}
}

// newRecord returns the record of a run as it is created.
func newRecord(in observed, run *history.Run) client.Object {
	about := metav1.ObjectMeta{
		Namespace: in.ControlPlane.Namespace, Name: run.Name,
		Labels: map[string]string{v1alpha1.ControlPlaneLabel: in.ControlPlane.Name},
	}

	if in.Component == upgrade.Kubernetes {
		return &v1alpha1.KubernetesUpgrade{ObjectMeta: about, Spec: run.Spec}
	}

	return &v1alpha1.TalosUpgrade{ObjectMeta: about, Spec: run.Spec}
}

// partsOf returns the spec and the status of a record.
func partsOf(o client.Object) (*v1alpha1.UpgradeRunSpec, *v1alpha1.UpgradeRunStatus) {
	if k, ok := o.(*v1alpha1.KubernetesUpgrade); ok {
		return &k.Spec, &k.Status
	}

	t, ok := o.(*v1alpha1.TalosUpgrade)
	if !ok {
		return &v1alpha1.UpgradeRunSpec{}, &v1alpha1.UpgradeRunStatus{}
	}

	return &t.Spec, &t.Status
}
