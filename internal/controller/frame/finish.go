package frame

import (
	"context"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/internal/condition"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/kube"
)

// Memory is what a controller remembers of its objects: when conditions were last decided, when statuses were last
// written, and which outages were not reported. A restart may lose it. The zero value is ready to use and safe for
// concurrent use.
type Memory struct {
	evidence condition.Evidence
	writes   condition.Writes
	hush     condition.Hush
}

// Forget drops what is remembered of an object that is gone.
func (m *Memory) Forget(key types.NamespacedName) {
	m.evidence.Forget(key)
	m.writes.Forget(key)
	m.hush.Forget(key)
}

// End is the end of one reconciliation: a status that was computed, and how it is written.
type End struct {
	Client   client.Client
	Recorder events.EventRecorder
	Now      time.Time

	// Object with its new status. Base is the object as it was read.
	Object, Base client.Object
	// Conditions of both.
	Conditions, Before *[]metav1.Condition

	// Decided are the conditions that this reconciliation has set. Those of the kinds Observed become Unknown if none has
	// decided them for Bound.
	Decided  condition.Set
	Observed []string
	Bound    time.Duration

	// Weigh weighs the changes of the status; nil writes each change at once. Details are collected for that long; Undo
	// takes changes back that are not written yet.
	Weigh   func() condition.Weight
	Details time.Duration
	Undo    func()
	// Stamp completes a status that is written; may be nil.
	Stamp func()
	// Claim: the status is written only if it was not written since it was read.
	Claim bool
	// Events are the transitions that are worth telling.
	Events kube.Transitions
	// Cause explains conditions that are not True for one of the reasons Waits: an intended outage is not told.
	Cause condition.Cause
	Waits []string
	// Resync is when to reconcile again if nothing happens.
	Resync time.Duration
	// Written is called after the status was written or had not changed, Unwritten if it was not; may be nil.
	Written, Unwritten func()
}

// Finish writes the status of an object once, tells what has changed, and returns when to reconcile again. res and err
// are the result of the phases.
func (m *Memory) Finish(ctx context.Context, e End, res ctrl.Result, err error) (ctrl.Result, error) {
	key, before := client.ObjectKeyFromObject(e.Base), slices.Clone(*e.Before)
	expiry := m.evidence.Expire(key, e.Decided, e.Now, e.Bound, e.Observed...)

	var held time.Duration

	if e.Weigh != nil {
		held = m.writes.Hold(key, e.Weigh(), e.Now, e.Details, err)
	}

	if held > 0 {
		e.Undo()
		call(e.Unwritten)
	} else {
		call(e.Stamp)
	}

	if perr := e.write(ctx); perr != nil {
		call(e.Unwritten)

		return failure.Result(ctrl.Result{}, client.IgnoreNotFound(perr), e.Resync)
	}

	told := m.hush.Over(e.Events, key, e.Cause, e.Waits, before, *e.Conditions)
	told.Record(e.Recorder, e.Object, before, *e.Conditions)
	call(e.Written)

	res, err = failure.Result(res, err, e.Resync)

	return condition.Within(res, err, condition.Sooner(expiry, held)), err
}

func (e *End) write(ctx context.Context) error {
	if e.Claim {
		return kube.ClaimStatus(ctx, e.Client, e.Object, e.Base)
	}

	return kube.PatchStatus(ctx, e.Client, e.Object, e.Base)
}

func call(f func()) {
	if f != nil {
		f()
	}
}
