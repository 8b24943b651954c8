package talosetcdbackupschedule_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/tools/events"
	testclock "k8s.io/utils/clock/testing"
	"pgregory.net/rapid"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/backup/scheduled"
	"github.com/talos-operator/talos-operator/internal/condition"
	"github.com/talos-operator/talos-operator/internal/controller/talosetcdbackupschedule"
)

// claims is a schedule that bad things happen to, and what is true of it.
type claims struct {
	*rapid.T

	ctx   context.Context //nolint:containedctx // that of the test
	api   client.Client
	r     *talosetcdbackupschedule.Reconciler
	clock *testclock.FakePassiveClock

	broken                  map[string]bool
	invalid, held, orphaned bool
	// fails: backups fail for good; stuck: they do not end.
	fails, stuck bool
	// good is when the newest good backup was complete.
	good time.Time
	// skipped are the times at which a backup still ran.
	skipped map[time.Time]bool
}

const maxAge = 3 * time.Hour

var (
	errAway  = errors.New("the API server is away")
	claimed  = client.ObjectKey{Namespace: "ns", Name: name}
	newPlane = func() *v1alpha1.TalosControlPlane {
		return &v1alpha1.TalosControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: cluster}}
	}
)

func newClaims(ctx context.Context, t *rapid.T) *claims {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}

	start := time.Unix(1_800_000_000, 0).Truncate(time.Hour).Add(30 * time.Minute)
	e := &claims{T: t, ctx: ctx, broken: map[string]bool{}, skipped: map[time.Time]bool{}, clock: testclock.NewFakePassiveClock(start)}
	o := &v1alpha1.TalosEtcdBackupSchedule{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, UID: "schedule", Generation: 1, CreationTimestamp: metav1.NewTime(start),
		},
		Spec: v1alpha1.TalosEtcdBackupScheduleSpec{Schedule: "0 * * * *", MaxAge: &metav1.Duration{Duration: maxAge}},
	}
	o.Spec.BackupTemplate.Spec.ControlPlaneRef.Name = cluster

	api := fake.NewClientBuilder().WithScheme(scheme).WithTypeConverters(managedfields.NewDeducedTypeConverter()).
		WithStatusSubresource(o, &v1alpha1.TalosEtcdBackup{}).
		WithObjects(o, newPlane()).Build()
	e.api = api

	away := func(call string) error {
		if e.broken[call] {
			return errAway
		}

		return nil
	}

	cut := interceptor.NewClient(api, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if _, ok := o.(*v1alpha1.TalosControlPlane); ok && e.broken["get"] {
				return errAway
			}

			return c.Get(ctx, key, o, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			return errors.Join(away("list"), c.List(ctx, list, opts...))
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if err := away("create"); err != nil {
				return err
			}

			return c.Create(ctx, o, opts...)
		},
	})
	e.r = &talosetcdbackupschedule.Reconciler{
		Client: cut, Reader: cut, Recorder: events.NewFakeRecorder(10000), Clock: e.clock, Resync: time.Minute,
	}
	e.restart()

	return e
}

// restart is a crash of the operator. No work on stores finds a place: what they hold is not part of this.
func (e *claims) restart() {
	e.r = &talosetcdbackupschedule.Reconciler{
		Client: e.r.Client, Reader: e.r.Reader, Recorder: e.r.Recorder, Clock: e.r.Clock, Resync: e.r.Resync,
		Runner: talosetcdbackupschedule.NewRunner(e.ctx, 0),
	}
}

func (e *claims) must(err error) {
	if client.IgnoreNotFound(err) != nil {
		e.Fatal(err)
	}
}

func (e *claims) schedule() *v1alpha1.TalosEtcdBackupSchedule {
	o := &v1alpha1.TalosEtcdBackupSchedule{}
	e.must(e.api.Get(e.ctx, claimed, o))

	return o
}

func (e *claims) edit(change func(*v1alpha1.TalosEtcdBackupSchedule)) {
	o := e.schedule()
	change(o)
	o.Generation++
	e.must(e.api.Update(e.ctx, o))
}

func (e *claims) backups() []v1alpha1.TalosEtcdBackup {
	list := &v1alpha1.TalosEtcdBackupList{}
	e.must(e.api.List(e.ctx, list))

	return list.Items
}

// pass has backups be taken, and the schedule observed before and after.
func (e *claims) pass() {
	runs := func(b v1alpha1.TalosEtcdBackup) bool { return ours(&b) && !scheduled.Finished(&b) }
	if slices.ContainsFunc(e.backups(), runs) {
		e.skipped[e.clock.Now().Truncate(time.Hour)] = true
	}

	// What fails is broken by the test; the conditions tell.
	_, _ = e.r.Reconcile(e.ctx, ctrl.Request{NamespacedName: claimed})

	for _, b := range e.backups() {
		if !ours(&b) || scheduled.Finished(&b) || e.stuck {
			continue
		}

		if at := metav1.NewTime(e.clock.Now()); e.fails {
			b.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionStalled, Status: metav1.ConditionTrue, Reason: "Failed"}}
		} else {
			e.good, b.Status.CompletedAt = at.Time, &at
			b.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: "Taken"}}
		}

		e.must(e.api.Status().Update(e.ctx, &b))
	}

	_, _ = e.r.Reconcile(e.ctx, ctrl.Request{NamespacedName: claimed})
}

// happen is one event.
func (e *claims) happen() {
	switch rapid.SampledFrom([]string{
		"time", "time", "fails", "stuck", "invalid", "hold", "orphan", "taken", "break", "break", "mend", "restart",
	}).Draw(e.T, "event") {
	case "time":
		e.clock.SetTime(e.clock.Now().Add(time.Duration(rapid.IntRange(1, 200).Draw(e.T, "minutes")) * time.Minute))
	case "fails":
		e.fails = !e.fails
	case "stuck":
		e.stuck = !e.stuck
	case "invalid":
		e.invalid = !e.invalid
		e.edit(func(o *v1alpha1.TalosEtcdBackupSchedule) {
			if o.Spec.Schedule = "0 * * * *"; e.invalid {
				o.Spec.Schedule = "whenever"
			}
		})
	case "hold":
		e.held = !e.held
		e.edit(func(o *v1alpha1.TalosEtcdBackupSchedule) {
			if o.Annotations = nil; e.held {
				o.Annotations = map[string]string{v1alpha1.PausedAnnotation: "true"}
			}
		})
	case "orphan":
		if e.orphaned = !e.orphaned; e.orphaned {
			e.must(e.api.Delete(e.ctx, newPlane()))
		} else {
			e.must(e.api.Create(e.ctx, newPlane()))
		}
	case "taken":
		// An object of another owner has the name of the next backup.
		b := &v1alpha1.TalosEtcdBackup{ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: scheduled.Name(name, e.clock.Now().Truncate(time.Hour).Add(time.Hour)),
		}}
		if err := e.api.Create(e.ctx, b); err != nil {
			e.must(client.IgnoreAlreadyExists(err))
		}
	case "break":
		e.broken[rapid.SampledFrom([]string{"list", "get", "create"}).Draw(e.T, "call")] = true
	case "mend":
		clear(e.broken)
	case "restart":
		e.restart()
	}
}

// missing: neither the backup of the last full hour before a time is there, although nothing ran that it had to wait
// for, nor a newer one, which has all that it would have.
func (e *claims) missing(before time.Time) bool {
	slot := before.Truncate(time.Hour)
	if !slot.After(e.schedule().CreationTimestamp.Time) || e.skipped[slot] {
		return false
	}

	return !slices.ContainsFunc(e.backups(), func(b v1alpha1.TalosEtcdBackup) bool {
		return ours(&b) && (b.Name >= scheduled.Name(name, slot) || !scheduled.Finished(&b))
	})
}

// failed: the last backup that ended failed.
func (e *claims) failed() bool {
	var last *v1alpha1.TalosEtcdBackup

	for _, b := range e.backups() {
		if ours(&b) && scheduled.Finished(&b) && (last == nil || last.Name < b.Name) {
			last = &b
		}
	}

	return last != nil && !scheduled.Good(last)
}

// check holds the conditions against what is so.
func (e *claims) check() {
	o := e.schedule()
	ready := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionReady)
	blind := e.broken["list"] || e.broken["get"]

	now := e.clock.Now()

	switch works := !e.invalid && !e.held && !e.orphaned && !e.missing(now.Add(-condition.Bound)) && !e.failed(); {
	case ready == nil:
		e.Fatal("Ready is missing")
	case ready.Status == metav1.ConditionTrue && (!works || blind):
		e.Fatalf("Ready is claimed: %+v", ready)
	case ready.Status != metav1.ConditionTrue && works && !e.missing(now) && len(e.broken) == 0:
		e.Fatalf("Ready is not told: %+v", ready)
	}

	met := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionRecoveryPointMet)
	age := now.Sub(e.good)

	switch {
	case met == nil:
		e.Fatal("RecoveryPointMet is missing")
	case met.Status == metav1.ConditionTrue && age > maxAge:
		e.Fatalf("the newest backup is %s old: %+v", age, met)
	case met.Status == metav1.ConditionFalse && age < maxAge:
		e.Fatalf("the newest backup is only %s old: %+v", age, met)
	case met.Status == metav1.ConditionUnknown && !blind && !e.good.IsZero():
		e.Fatalf("the newest backup is %s old, and that is not told: %+v", age, met)
	}
}

// TestNoConditionLies: whatever becomes of backups, their control plane, the spec and the API server, in any order, no
// condition of a schedule claims within its bound what is not so.
func TestNoConditionLies(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		e := newClaims(t.Context(), rt)
		e.pass()
		e.check()

		for range rapid.IntRange(1, 6).Draw(rt, "steps") {
			for range rapid.IntRange(1, 3).Draw(rt, "events") {
				e.happen()
			}

			// A reconciliation in the middle of it observes what it observes.
			e.pass()

			e.clock.SetTime(e.clock.Now().Add(condition.Bound))
			e.pass()
			e.check()
		}
	})
}

func ours(b *v1alpha1.TalosEtcdBackup) bool {
	return b.Labels[v1alpha1.ScheduleLabel] == scheduled.Label(name)
}
