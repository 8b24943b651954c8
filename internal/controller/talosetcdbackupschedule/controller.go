// Package talosetcdbackupschedule creates TalosEtcdBackups at the times that TalosEtcdBackupSchedules define, applies
// their retention to the store, periodically verifies the newest backup, and monitors that it is recent enough.
package talosetcdbackupschedule

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/backupstorage"
	"github.com/talos-operator/talos-operator/internal/controller/condition"
	"github.com/talos-operator/talos-operator/internal/controller/pause"
	"github.com/talos-operator/talos-operator/internal/controller/scheduled"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/kube"
	"github.com/talos-operator/talos-operator/internal/statestore"
)

const (
	// heldPoll is how often a schedule that is paused or waits for a restore checks whether it still is.
	heldPoll = 30 * time.Second
	// staleRetry is how soon a reconciliation that read an old version of its object is repeated.
	staleRetry = 50 * time.Millisecond
)

// Reconciler reconciles TalosEtcdBackupSchedules.
type Reconciler struct {
	// Client reads from the cache and writes.
	Client client.Client
	// Reader reads live: with a stale list, a second concurrent backup could be started.
	Reader client.Reader
	// States reads state Secrets.
	States *statestore.Store
	// Stores opens stores.
	Stores *backupstorage.Opener
	// Runner runs the work on stores.
	Runner   *Runner
	Recorder events.EventRecorder
	Clock    clock.PassiveClock
	// Failed counts a failure; it may be nil.
	Failed func(namespace, controlPlane, reason string)
	// Scratch is the directory for databases while they are verified; the directory for temporary files if empty.
	Scratch string
	// Exe is the operator's binary, for the verification; that of this process if empty.
	Exe string
	// Resync is the maximum time between reconciliations of a schedule: the clock may be set, and timers do not follow it.
	Resync time.Duration

	claims condition.Evidence
}

// scope is one reconciliation of one schedule.
type scope struct {
	schedule *v1alpha1.TalosEtcdBackupSchedule
	base     *v1alpha1.TalosEtcdBackupSchedule
	// controlPlane of the schedule; nil if there is none.
	controlPlane *v1alpha1.TalosControlPlane
	backups      []v1alpha1.TalosEtcdBackup
	hold         pause.Hold
	now          time.Time
	conditions   condition.Set
	// observed: all evidence for the conditions was read.
	observed bool

	timing, verification timing
	// invalid says what is wrong with the schedule.
	invalid string
	// waiting is what a due backup or due work waits for.
	waiting error
	// wakes are the times at which the schedule has to be reconciled.
	wakes []time.Time
}

func newScope(o *v1alpha1.TalosEtcdBackupSchedule, now time.Time) *scope {
	return &scope{
		schedule: o, base: o.DeepCopy(), now: now, conditions: condition.Begin(&o.Status.Conditions, o.Generation),
	}
}

func (s *scope) set() condition.Set { return s.conditions }

// wakeAt schedules another reconciliation. Past times were handled, or wait for something else.
func (s *scope) wakeAt(t time.Time) {
	if t.After(s.now) {
		s.wakes = append(s.wakes, t)
	}
}

// Reconcile reconciles one TalosEtcdBackupSchedule. State that it keeps between calls, in the Runner, may be lost.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (res ctrl.Result, err error) {
	cached := &v1alpha1.TalosEtcdBackupSchedule{}
	if err := r.Client.Get(ctx, req.NamespacedName, cached); err != nil {
		if client.IgnoreNotFound(err) == nil {
			r.Runner.forget(req.NamespacedName)
			r.claims.Forget(req.NamespacedName)
		}

		return ctrl.Result{}, client.IgnoreNotFound(err)
	}

	live := &v1alpha1.TalosEtcdBackupSchedule{}
	if err := r.Reader.Get(ctx, req.NamespacedName, live); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}

	switch {
	case live.ResourceVersion != cached.ResourceVersion:
		return ctrl.Result{RequeueAfter: staleRetry}, nil
	case !live.DeletionTimestamp.IsZero():
		r.Runner.forget(req.NamespacedName)

		return ctrl.Result{}, nil
	}

	s := newScope(live, r.Clock.Now())
	defer func() { res, err = r.finish(ctx, s, err) }()

	return ctrl.Result{}, r.drive(ctx, s)
}

func (r *Reconciler) drive(ctx context.Context, s *scope) error {
	if err := r.observe(ctx, s); err != nil {
		return err
	}

	if s.hold.Disabled() {
		r.Runner.Drop(client.ObjectKeyFromObject(s.schedule))

		return nil
	}

	for _, phase := range []func(context.Context, *scope) error{
		r.conclude, r.ensureBackup, r.prune, r.ensureWork,
	} {
		if err := phase(ctx, s); err != nil {
			return err
		}
	}

	return nil
}

// observe reads the current state, and computes what is due.
func (r *Reconciler) observe(ctx context.Context, s *scope) error {
	o := s.schedule
	held := []client.Object{o}

	cp := &v1alpha1.TalosControlPlane{}
	key := client.ObjectKey{Namespace: o.Namespace, Name: o.Spec.BackupTemplate.Spec.ControlPlaneRef.Name}

	switch err := r.Client.Get(ctx, key, cp); {
	case client.IgnoreNotFound(err) != nil:
		return fmt.Errorf("reading TalosControlPlane %s: %w", key.Name, err)
	case err == nil:
		s.controlPlane = cp
		held = append(held, cp)
	}

	var err error
	if s.hold, err = pause.Find(ctx, r.Client, held...); err != nil {
		return err
	}

	if s.backups, err = scheduled.List(ctx, r.Client, o); err != nil {
		return err
	}

	s.tick()
	s.observed = true

	return nil
}

// tick computes the timing of the schedule.
func (s *scope) tick() {
	spec, st := &s.schedule.Spec, &s.schedule.Status
	created := s.schedule.CreationTimestamp.Time

	backups := clockwork{cron: spec.Schedule, zone: spec.TimeZone, created: created, handled: st.LastScheduleTime}
	if spec.Jitter != nil {
		backups.offset = jitter(s.schedule.UID, spec.Jitter.Duration)
	}

	if spec.StartingDeadline != nil {
		backups.deadline = spec.StartingDeadline.Duration
	}

	backups.handled = backups.corrected(s.now)
	st.LastScheduleTime = backups.handled

	var err error
	if s.timing, err = backups.at(s.now); err != nil {
		s.invalid = "schedule: " + err.Error()
	}

	if spec.Verification == nil {
		return
	}

	verification := clockwork{
		cron: spec.Verification.Schedule, zone: spec.TimeZone, created: created, handled: st.LastVerificationTime,
	}

	verification.handled = verification.corrected(s.now)
	st.LastVerificationTime = verification.handled

	if s.verification, err = verification.at(s.now); err != nil && s.invalid == "" {
		s.invalid = "verification.schedule: " + err.Error()
	}
}

// finish writes the status once, if it changed, and returns when to reconcile again.
func (r *Reconciler) finish(ctx context.Context, s *scope, err error) (ctrl.Result, error) {
	if s.hold.Disabled() {
		return ctrl.Result{RequeueAfter: heldPoll},
			s.hold.Settle(ctx, r.Client, s.schedule, s.base, &s.schedule.Status.Conditions)
	}

	s.show(err)
	expiry := r.claims.Expire(client.ObjectKeyFromObject(s.schedule), s.set(), s.now, condition.Bound,
		observedConditions...)

	before := slices.Clone(s.base.Status.Conditions)

	if perr := kube.PatchStatus(ctx, r.Client, s.schedule, s.base); perr != nil {
		return ctrl.Result{}, client.IgnoreNotFound(perr)
	}

	kube.Transitions{Bad: badReasons}.Record(r.Recorder, s.schedule, before, s.schedule.Status.Conditions)

	res, err := failure.Result(ctrl.Result{RequeueAfter: s.wake(r.Resync)}, err, r.Resync)

	return condition.Within(res, err, expiry), err
}

// wake returns how long nothing has to be done.
func (s *scope) wake(longest time.Duration) time.Duration {
	if s.hold.Any() {
		longest = min(longest, heldPoll)
	}

	for _, t := range s.wakes {
		longest = min(longest, t.Sub(s.now))
	}

	return max(longest, time.Millisecond)
}

// SetupWithManager registers the controller.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, opts controller.Options) error {
	if err := mgr.Add(r.Runner); err != nil {
		return fmt.Errorf("adding the work of backup schedules to the manager: %w", err)
	}

	changed := builder.WithPredicates(predicate.Or(
		predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}))

	return ctrl.NewControllerManagedBy(mgr).
		Named("talosetcdbackupschedule").
		For(&v1alpha1.TalosEtcdBackupSchedule{}, changed).
		Watches(&v1alpha1.TalosEtcdBackup{}, r.schedules(ofBackup), builder.WithPredicates(predicate.Funcs{
			UpdateFunc: outcomeChanged,
		})).
		Watches(&v1alpha1.TalosControlPlane{}, r.schedules(ofControlPlane), changed).
		WatchesRawSource(source.Channel(r.Runner.Ends(), &handler.EnqueueRequestForObject{})).
		WithOptions(opts).
		Complete(failure.Revisit(failure.EndQuietly(r)))
}

// outcomeChanged passes the changes of a backup that matter to a schedule; progress does not.
func outcomeChanged(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*v1alpha1.TalosEtcdBackup)
	after, ok2 := e.ObjectNew.(*v1alpha1.TalosEtcdBackup)

	return ok && ok2 && (scheduled.Finished(before) != scheduled.Finished(after) ||
		scheduled.Good(before) != scheduled.Good(after) ||
		before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero())
}

func ofBackup(o client.Object, s *v1alpha1.TalosEtcdBackupSchedule) bool {
	b, ok := o.(*v1alpha1.TalosEtcdBackup)

	return ok && scheduled.IsOf(b, s.Name)
}

func ofControlPlane(o client.Object, s *v1alpha1.TalosEtcdBackupSchedule) bool {
	return s.Spec.BackupTemplate.Spec.ControlPlaneRef.Name == o.GetName()
}

// schedules triggers the schedules in the namespace that an object concerns.
func (r *Reconciler) schedules(
	concerns func(client.Object, *v1alpha1.TalosEtcdBackupSchedule) bool,
) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
		list := &v1alpha1.TalosEtcdBackupScheduleList{}
		if err := r.Client.List(ctx, list, client.InNamespace(o.GetNamespace()), kube.Shared); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Listing backup schedules failed; the resync will find it")

			return nil
		}

		var out []reconcile.Request

		for i := range list.Items {
			if concerns(o, &list.Items[i]) {
				out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
			}
		}

		return out
	})
}
