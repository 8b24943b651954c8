package talosetcdbackup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/tools/events"
	testclock "k8s.io/utils/clock/testing"
	"pgregory.net/rapid"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/backup"
	"github.com/talos-operator/talos-operator/internal/backup/verify"
	"github.com/talos-operator/talos-operator/internal/condition"
	"github.com/talos-operator/talos-operator/internal/controller/work"
	"github.com/talos-operator/talos-operator/internal/failure"
)

// claims is a backup that bad things happen to, and what is true of it.
type claims struct {
	*rapid.T

	ctx   context.Context //nolint:containedctx // that of the test
	api   client.Client
	r     *Reconciler
	clock *testclock.FakePassiveClock

	broken, held, orphaned bool
	// finish ends the work that is under way; nil when there is none. ended is what came of work that the operator has
	// not yet observed.
	finish chan result
	ended  *result
	doing  about
	level  v1alpha1.VerificationLevel
	// confirmed is the backup whose manifest is in the store, and whose taker knows it; lost is one that only the store
	// knows of.
	confirmed bool
	lost      string
	// verified is the most thorough verification that came out well since the last one that found damage.
	verified v1alpha1.VerificationLevel
	damaged  bool
	// final is the generation of the spec that failed for good, zero if none did.
	final int64
}

// result of work.
type result struct {
	out outcome
	err error
}

var (
	errAway = errors.New("the API server is away")
	claimed = types.NamespacedName{Namespace: "ns", Name: "b"}
	asked   = levels[:3]
)

func newPlane() *v1alpha1.TalosControlPlane {
	return &v1alpha1.TalosControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "cp"}}
}

func newClaims(ctx context.Context, t *rapid.T) *claims {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}

	e := &claims{T: t, ctx: ctx, clock: testclock.NewFakePassiveClock(time.Unix(1_800_000_000, 0))}
	b := &v1alpha1.TalosEtcdBackup{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "b", UID: "backup", Generation: 1}}
	b.Spec.ControlPlaneRef.Name, b.Spec.Retries = "cp", new(int32)
	*b.Spec.Retries = 1

	api := fake.NewClientBuilder().WithScheme(scheme).WithTypeConverters(managedfields.NewDeducedTypeConverter()).
		WithStatusSubresource(b).WithObjects(b, newPlane()).Build()
	e.api = api

	cut := interceptor.NewClient(api, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if _, ok := o.(*v1alpha1.TalosControlPlane); ok && e.broken {
				return errAway
			}

			return c.Get(ctx, key, o, opts...)
		},
	})
	e.r = &Reconciler{
		Client: cut, Reader: cut, Recorder: events.NewFakeRecorder(10000), Clock: e.clock, Resync: time.Minute,
		Runner: NewRunner(ctx, 0),
	}

	return e
}

func (e *claims) must(err error) {
	if client.IgnoreNotFound(err) != nil {
		e.Fatal(err)
	}
}

// backup is nil once it is deleted.
func (e *claims) backup() *v1alpha1.TalosEtcdBackup {
	b := &v1alpha1.TalosEtcdBackup{}
	if err := e.api.Get(e.ctx, claimed, b); err != nil {
		e.must(err)

		return nil
	}

	return b
}

func (e *claims) edit(change func(*v1alpha1.TalosEtcdBackup)) {
	if b := e.backup(); b != nil {
		change(b)
		e.must(e.api.Update(e.ctx, b))
	}
}

// pass reconciles. What fails is broken by the test; the conditions tell.
func (e *claims) pass() {
	_, _ = e.r.Reconcile(e.ctx, ctrl.Request{NamespacedName: claimed})

	if b := e.backup(); e.ended != nil && b != nil && e.r.Runner.Find(claimed, b.UID) == nil {
		e.learn(b, *e.ended)
		e.ended = nil
	}
}

// restart is a crash of the operator: what was under way is lost, and the runner of its successor finds no place for
// work of its own. The test starts it instead, and says what comes of it.
func (e *claims) restart() {
	e.r.Runner.Stop()
	e.r.Runner, e.finish, e.ended = NewRunner(e.ctx, 0), nil, nil
}

// due is the work that a reconciliation would have started if there had been a place.
func (e *claims) due(b *v1alpha1.TalosEtcdBackup) (kind, bool) {
	waits := b.Status.NextTryAt != nil && e.clock.Now().Before(b.Status.NextTryAt.Time)
	idle := e.r.Runner.Find(claimed, b.UID) == nil

	switch {
	case !idle || waits || e.held || e.broken || e.orphaned || isStalled(b) || !b.DeletionTimestamp.IsZero():
		return 0, false
	case b.Status.CompletedAt != nil:
		return verifying, needsVerification(b)
	case b.Status.BackupID != "" && e.lost != b.Status.BackupID && rapid.Bool().Draw(e.T, "taking"):
		return taking, true
	default:
		return preparing, true
	}
}

// work begins what is due.
func (e *claims) work() {
	b := e.backup()
	if b == nil {
		return
	}

	k, ok := e.due(b)
	if !ok {
		return
	}

	finish := make(chan result)
	e.finish, e.level = finish, wanted(b)
	e.doing = about{kind: k, progress: work.NewLine("working", progressPause), generation: b.Generation}

	_, err := e.r.Runner.Do(work.Order[about, outcome]{
		Key: claimed, UID: b.UID, About: e.doing, Timeout: time.Hour,
		TimeoutReason: v1alpha1.ReasonBackupTimeout,
		Do: func(ctx context.Context) (outcome, error) {
			select {
			case <-ctx.Done():
				return outcome{}, ctx.Err()
			case res := <-finish:
				return res.out, res.err
			}
		},
	})
	e.must(err)
	e.pass()
}

// end has the work that is under way end, successfully or not, and the operator observe it, while it is cut off or not.
func (e *claims) end() {
	b := e.backup()
	if b == nil || e.finish == nil || e.r.Runner.Find(claimed, b.UID) == nil || !b.DeletionTimestamp.IsZero() {
		return
	}

	res := result{}
	if rapid.Bool().Draw(e.T, "well") {
		res.out = e.succeed(b)
	} else {
		res.err = e.fault(b)
	}

	e.finish <- res
	<-e.r.Runner.Ends()
	e.finish, e.ended = nil, &res

	// A spec that is changed, or an operator that dies, before the end is observed.
	before := rapid.SampledFrom([]string{"", "", "", "edit", "restart", "break"}).Draw(e.T, "before it is looked at")
	if before != "" {
		e.happen(before)
	}

	e.pass()
}

func (e *claims) succeed(b *v1alpha1.TalosEtcdBackup) outcome {
	id := b.Status.BackupID

	switch {
	case e.doing.kind == verifying:
		return outcome{report: &verify.Report{Level: verify.Level(e.level), FinishedAt: e.clock.Now()}}
	case e.doing.kind == taking || e.lost != "" && e.lost == id:
		e.lost = id

		return outcome{complete: &complete{manifest: &backup.Manifest{FinishedAt: e.clock.Now()}, location: id}}
	default:
		return outcome{plan: &prepared{folder: "f/", source: v1alpha1.BackupSource{Machine: "cp-0"}}}
	}
}

func (e *claims) fault(b *v1alpha1.TalosEtcdBackup) error {
	if e.doing.kind == taking && rapid.Bool().Draw(e.T, "the answer is lost") {
		e.lost = b.Status.BackupID
	}

	return rapid.SampledFrom([]error{
		failure.Terminal(backup.ReasonRecipients, "there is no recipient", nil), context.Canceled,
		failure.Transient(v1alpha1.ReasonBackupTimeout, "it took longer than its timeout", context.DeadlineExceeded),
		failure.Terminal(backup.ReasonCorrupt, "a file is not what it was", nil), errors.New("the store is away"),
	}).Draw(e.T, "failure")
}

// learn takes in what the operator knows of work that has ended.
func (e *claims) learn(b *v1alpha1.TalosEtcdBackup, res result) {
	damage := e.doing.kind == verifying && verify.IsDamage(res.err)

	switch {
	case res.out.complete != nil:
		e.confirmed = true
	case res.out.report != nil:
		e.damaged = false
		e.verified = e.level
	case errors.Is(res.err, context.Canceled) || res.err == nil:
	case damage:
		e.damaged, e.final = true, b.Generation
	case e.doing.generation == b.Generation && failure.ClassOf(res.err) == failure.ClassTerminal:
		e.final = b.Generation
	case e.doing.generation == b.Generation && b.Status.Failures > retries(b):
		e.final = b.Generation
	}
}

// happen is one event.
func (e *claims) happen(what string) {
	switch what {
	case "time":
		e.clock.SetTime(e.clock.Now().Add(time.Duration(rapid.IntRange(1, 400).Draw(e.T, "seconds")) * time.Second))
	case "work":
		e.work()
	case "end":
		e.end()
	case "edit":
		level := rapid.SampledFrom(asked).Draw(e.T, "level")
		e.edit(func(b *v1alpha1.TalosEtcdBackup) {
			b.Spec.Verification = &v1alpha1.BackupVerification{Level: level}
			b.Generation++
		})
	case "hold":
		e.held = !e.held
		e.edit(func(b *v1alpha1.TalosEtcdBackup) {
			if b.Annotations = nil; e.held {
				b.Annotations = map[string]string{v1alpha1.PausedAnnotation: "true"}
			}
		})
	case "orphan":
		if e.orphaned = !e.orphaned; e.orphaned {
			e.must(e.api.Delete(e.ctx, newPlane()))
		} else {
			e.must(e.api.Create(e.ctx, newPlane()))
		}
	case "break":
		e.broken = true
	case "mend":
		e.broken = false
	case "restart":
		e.restart()
	case "delete":
		e.must(e.api.Delete(e.ctx, &v1alpha1.TalosEtcdBackup{ObjectMeta: objectMeta(claimed)}))
	}
}

// check holds the conditions against what is so.
func (e *claims) check(b *v1alpha1.TalosEtcdBackup) {
	is := func(kind string) bool { return meta.IsStatusConditionTrue(b.Status.Conditions, kind) }
	j := e.r.Runner.Find(claimed, b.UID)
	works, deleting := j != nil && !j.Ended(), !b.DeletionTimestamp.IsZero()
	good := e.confirmed && !e.damaged
	reached := good && e.verified != "" && slices.Index(levels, e.verified) >= slices.Index(levels, wanted(b))
	pending := !good && !e.damaged || slices.Index(levels, wanted(b)) > max(0, slices.Index(levels, e.verified))
	failed := e.final == b.Generation

	for what, lie := range map[string]bool{
		"Ready": is(v1alpha1.ConditionReady) && !good,
		// A backup that is being deleted may be done and not recorded as such: nothing counts on it any more.
		"no Ready":            !is(v1alpha1.ConditionReady) && good && !deleting,
		"Verified":            is(v1alpha1.ConditionVerified) && !reached,
		"Complete":            is(v1alpha1.ConditionComplete) && (!e.confirmed || pending),
		"no Complete":         !is(v1alpha1.ConditionComplete) && e.confirmed && !pending && !deleting,
		"Stalled":             is(v1alpha1.ConditionStalled) && !failed && !e.broken && !deleting,
		"no Stalled":          !is(v1alpha1.ConditionStalled) && failed && !deleting,
		"Paused":              is(v1alpha1.ConditionPaused) != e.held,
		"Deleting":            is(v1alpha1.ConditionDeleting) != deleting,
		"Reconciling, held":   is(v1alpha1.ConditionReconciling) && !works && (e.held || deleting),
		"Reconciling, failed": is(v1alpha1.ConditionReconciling) && failed,
		"Reconciling, done":   is(v1alpha1.ConditionReconciling) && !pending && !works && !e.damaged,
		"no Reconciling": !is(v1alpha1.ConditionReconciling) && !e.held && !deleting && !failed && pending &&
			!e.damaged,
	} {
		if lie {
			e.Fatalf("%s: %+v; truth %s", what, b.Status, e.truth(works))
		}
	}

	e.checkReasons(b, works)
}

// checkReasons holds what conditions give as their reasons against what is so.
func (e *claims) checkReasons(b *v1alpha1.TalosEtcdBackup, works bool) {
	for _, c := range b.Status.Conditions {
		lie := false

		switch c.Reason {
		case v1alpha1.ReasonBackingUp:
			lie = !works || e.confirmed
		case v1alpha1.ReasonVerifying:
			lie = !works || !e.confirmed
		case v1alpha1.ReasonPaused:
			lie = !e.held
		case v1alpha1.ReasonWaitingForControlPlane:
			lie = !e.orphaned || e.broken
		}

		if lie {
			e.Fatalf("%s: %+v; truth %s", c.Reason, c, e.truth(works))
		}
	}
}

func (e *claims) truth(works bool) string {
	return fmt.Sprintf("works %t, held %t, broken %t, orphaned %t, confirmed %t, damaged %t, verified %q, final %d",
		works, e.held, e.broken, e.orphaned, e.confirmed, e.damaged, e.verified, e.final)
}

// TestNoConditionLies: whatever becomes of the work on a backup, of the operator, the spec, the control plane and the
// API server, in any order, no condition claims within its bound what is not so.
func TestNoConditionLies(t *testing.T) {
	happens := []string{
		"time", "work", "work", "work", "end", "end", "end", "edit", "hold", "orphan", "break", "mend", "mend", "restart",
		"delete",
	}

	rapid.Check(t, func(rt *rapid.T) {
		e := newClaims(t.Context(), rt)
		defer func() { e.r.Runner.Stop() }()

		e.pass()

		for range rapid.IntRange(1, 20).Draw(rt, "events") {
			e.happen(rapid.SampledFrom(happens).Draw(rt, "event"))

			// A reconciliation in the middle of it observes what it observes.
			e.pass()
			e.clock.SetTime(e.clock.Now().Add(condition.Bound))
			e.pass()

			b := e.backup()
			if b == nil {
				return
			}

			e.check(b)
		}
	})
}

// TestDamageStays: a spec that asks for less than what found damage does not make the backup good again.
func TestDamageStays(t *testing.T) {
	b := &v1alpha1.TalosEtcdBackup{}
	b.Status.CompletedAt = &metav1.Time{Time: time.Unix(1_800_000_000, 0)}
	b.Status.Verification = &v1alpha1.VerificationStatus{Level: v1alpha1.VerificationChecksum}

	s := newScope(b)
	s.set().False(v1alpha1.ConditionReady, backup.ReasonCorrupt, "a file is not what it was")
	s.settle()

	for _, kind := range []string{v1alpha1.ConditionReady, v1alpha1.ConditionVerified} {
		if c := meta.FindStatusCondition(b.Status.Conditions, kind); c.Reason != backup.ReasonCorrupt {
			t.Errorf("%+v", c)
		}
	}
}
