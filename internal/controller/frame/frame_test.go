package frame_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/condition"
	"github.com/talos-operator/talos-operator/internal/controller/frame"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/kube"
)

var now = time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)

// TestRun: the first phase that fails or waits is the last one.
func TestRun(t *testing.T) {
	var ran []string

	phase := func(name string, res ctrl.Result, err error) frame.Phase[int] {
		return func(_ context.Context, scope int) (ctrl.Result, error) {
			if scope != 7 {
				t.Errorf("%s got scope %d", name, scope)
			}

			ran = append(ran, name)

			return res, err
		}
	}

	failed, soon := errors.New("no"), ctrl.Result{RequeueAfter: time.Second}
	never := phase("never", ctrl.Result{}, nil)

	for name, c := range map[string]struct {
		phases []frame.Phase[int]
		ran    string
		res    ctrl.Result
		err    error
	}{
		"all":   {[]frame.Phase[int]{phase("a", ctrl.Result{}, nil), phase("b", ctrl.Result{}, nil)}, "a b", ctrl.Result{}, nil},
		"wait":  {[]frame.Phase[int]{phase("a", soon, nil), never}, "a", soon, nil},
		"error": {[]frame.Phase[int]{phase("a", ctrl.Result{}, failed), never}, "a", ctrl.Result{}, failed},
		"always": {
			[]frame.Phase[int]{frame.Always(func(context.Context, int) error { return nil }), phase("b", ctrl.Result{}, nil)},
			"b",
			ctrl.Result{},
			nil,
		},
		"always fails": {
			[]frame.Phase[int]{frame.Always(func(context.Context, int) error { return failed }), never}, "", ctrl.Result{}, failed,
		},
	} {
		ran = nil

		res, err := frame.Run(t.Context(), 7, c.phases...)
		if res != c.res || !errors.Is(err, c.err) || strings.Join(ran, " ") != c.ran {
			t.Errorf("%s: %v, %v after %v", name, res, err, ran)
		}
	}
}

// bench is one TalosWorker and what is written to it.
type bench struct {
	t      *testing.T
	client client.Client
	events *events.FakeRecorder
	memory frame.Memory
	worker *v1alpha1.TalosWorker
	writes int
	fail   error
	told   []string
}

func newBench(t *testing.T) *bench {
	t.Helper()

	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}

	b := &bench{t: t, events: events.NewFakeRecorder(10)}
	b.worker = &v1alpha1.TalosWorker{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "w"}}
	b.client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(b.worker).WithStatusSubresource(b.worker).
		WithInterceptorFuncs(interceptor.Funcs{
			SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch,
				opts ...client.SubResourcePatchOption,
			) error {
				if b.writes++; b.fail != nil {
					return b.fail
				}

				return c.SubResource(sub).Patch(ctx, o, p, opts...)
			},
		}).Build()

	return b
}

func (b *bench) read() *v1alpha1.TalosWorker {
	b.t.Helper()

	w := &v1alpha1.TalosWorker{}
	if err := b.client.Get(b.t.Context(), client.ObjectKeyFromObject(b.worker), w); err != nil {
		b.t.Fatal(err)
	}

	return w
}

// pass is one reconciliation that sets the status.
func (b *bench) pass(at time.Time, set func(condition.Set, *v1alpha1.TalosWorker), with func(*frame.End),
	res ctrl.Result, err error,
) (ctrl.Result, error) {
	b.t.Helper()

	w := b.read()
	base := w.DeepCopy()
	decided := condition.Begin(&w.Status.Conditions, 1)

	if set != nil {
		set(decided, w)
	}

	e := frame.End{
		Client: b.client, Recorder: b.events, Now: at, Object: w, Base: base,
		Conditions: &w.Status.Conditions, Before: &base.Status.Conditions,
		Decided: decided, Observed: []string{v1alpha1.ConditionReady}, Bound: time.Minute,
		Undo:   func() { w.Status = *base.Status.DeepCopy() },
		Stamp:  func() { b.told = append(b.told, "stamp") },
		Events: kube.Transitions{}, Resync: time.Hour,
		Written:   func() { b.told = append(b.told, "written") },
		Unwritten: func() { b.told = append(b.told, "unwritten") },
	}
	if with != nil {
		with(&e)
	}

	b.told = nil

	return b.memory.Finish(b.t.Context(), e, res, err)
}

func ready(set condition.Set, _ *v1alpha1.TalosWorker) {
	set.True(v1alpha1.ConditionReady, "Yes", "it is")
}

func (b *bench) expect(what string, writes int, told ...string) {
	b.t.Helper()

	if b.writes != writes || !slices.Equal(b.told, told) {
		b.t.Errorf("%s: %d writes, %v", what, b.writes, b.told)
	}
}

// TestFinish: a status is written once, and not at all where it has not changed; its transitions are told; without a
// result of the phases, the object is reconciled again after the interval, or when a condition would be too old.
func TestFinish(t *testing.T) {
	b := newBench(t)

	res, err := b.pass(now, ready, nil, ctrl.Result{}, nil)
	if b.expect("first", 1, "stamp", "written"); err != nil || res.RequeueAfter != time.Hour {
		t.Errorf("first: %v, %v", res, err)
	}

	if got := <-b.events.Events; !strings.Contains(got, "Ready is True: it is") {
		t.Errorf("event %q", got)
	}

	res, err = b.pass(now.Add(10*time.Second), nil, nil, ctrl.Result{}, nil)
	if b.expect("nothing new", 1, "stamp", "written"); err != nil || res.RequeueAfter != 50*time.Second {
		t.Errorf("before the condition is too old: %v, %v", res, err)
	}

	if _, err = b.pass(now.Add(time.Minute), nil, nil, ctrl.Result{}, nil); err != nil {
		t.Error(err)
	}

	if c := b.read().Status.Conditions[0]; c.Status != metav1.ConditionUnknown {
		t.Errorf("too old: %+v", c)
	}

	if got := <-b.events.Events; !strings.Contains(got, "Ready is Unknown") || len(b.events.Events) > 0 {
		t.Errorf("event %q, and %d more", got, len(b.events.Events))
	}

	// An object of the same name begins anew: its condition counts from now.
	b.memory.Forget(client.ObjectKeyFromObject(b.worker))
	_, _ = b.pass(now.Add(time.Hour), ready, nil, ctrl.Result{}, nil)

	b.memory.Forget(client.ObjectKeyFromObject(b.worker))

	if res, _ := b.pass(now.Add(2*time.Hour), nil, nil, ctrl.Result{}, nil); res.RequeueAfter != time.Minute {
		t.Errorf("forgotten: %v", res)
	}
}

// TestFinishQuietly: an outage that is explained is not told, and neither is its end, unless the object was made anew.
func TestFinishQuietly(t *testing.T) {
	b := newBench(t)

	waits := func(set condition.Set, _ *v1alpha1.TalosWorker) {
		set.False(v1alpha1.ConditionReady, "Waiting", "it boots")
	}
	explained := func(e *frame.End) { e.Cause, e.Waits = condition.Intended, []string{"Waiting"} }
	told := func() int {
		n := len(b.events.Events)
		for range n {
			<-b.events.Events
		}

		return n
	}

	for i, step := range []struct {
		set  func(condition.Set, *v1alpha1.TalosWorker)
		want int
	}{{ready, 1}, {waits, 0}, {ready, 0}, {waits, 0}} {
		if _, err := b.pass(now.Add(time.Duration(i)*time.Second), step.set, explained, ctrl.Result{}, nil); err != nil {
			t.Fatal(err)
		}

		if got := told(); got != step.want {
			t.Errorf("pass %d: %d events", i, got)
		}
	}

	b.memory.Forget(client.ObjectKeyFromObject(b.worker))

	if _, err := b.pass(now.Add(time.Minute), ready, explained, ctrl.Result{}, nil); err != nil || told() != 1 {
		t.Errorf("the end of an outage that is forgotten is not told: %v", err)
	}
}

// TestFinishResults: what the phases returned decides when the object is reconciled again.
func TestFinishResults(t *testing.T) {
	b := newBench(t)
	soon := ctrl.Result{RequeueAfter: time.Second}

	if res, err := b.pass(now, ready, nil, soon, nil); res != soon || err != nil {
		t.Errorf("wait: %v, %v", res, err)
	}

	wait := failure.Waiting("R", "waits", 3*time.Second)
	if res, err := b.pass(now, ready, nil, ctrl.Result{}, wait); res.RequeueAfter != 3*time.Second || err != nil {
		t.Errorf("waiting: %v, %v", res, err)
	}

	refused := failure.Terminal("R", "no", nil)
	if res, err := b.pass(now, ready, nil, ctrl.Result{}, refused); res.RequeueAfter != time.Hour ||
		failure.ClassOf(err) != failure.ClassTerminal {
		t.Errorf("terminal: %v, %v", res, err)
	}
}

// TestFinishLater: details are collected, and a status that was not written is told.
func TestFinishLater(t *testing.T) {
	b := newBench(t)
	detail := func(e *frame.End) {
		e.Weigh, e.Details = func() condition.Weight { return condition.Detail }, 5*time.Second
	}
	count := func(n int32) func(condition.Set, *v1alpha1.TalosWorker) {
		return func(_ condition.Set, w *v1alpha1.TalosWorker) { w.Status.Replicas = n }
	}

	_, _ = b.pass(now, count(1), detail, ctrl.Result{}, nil)
	b.expect("the first detail", 1, "stamp", "written")

	res, err := b.pass(now.Add(time.Second), count(2), detail, ctrl.Result{}, nil)
	if b.expect("a second later", 1, "unwritten", "written"); err != nil || res.RequeueAfter != 4*time.Second ||
		b.read().Status.Replicas != 1 {
		t.Errorf("a second later: %v, %v, %+v", res, err, b.read().Status)
	}

	_, _ = b.pass(now.Add(5*time.Second), count(2), detail, ctrl.Result{}, nil)
	if b.expect("in time", 2, "stamp", "written"); b.read().Status.Replicas != 2 {
		t.Errorf("in time: %+v", b.read().Status)
	}

	b.fail = errors.New("the API server is away")
	if _, err := b.pass(now, count(3), nil, ctrl.Result{}, nil); !errors.Is(err, b.fail) {
		t.Errorf("a failed write: %v", err)
	}

	b.expect("a failed write", 3, "stamp", "unwritten")

	b.fail = apierrors.NewNotFound(v1alpha1.GroupVersion.WithResource("talosworkers").GroupResource(), "w")
	if res, err := b.pass(now, count(3), nil, ctrl.Result{}, nil); res.RequeueAfter != time.Hour || err != nil {
		t.Errorf("gone: %v, %v", res, err)
	}
}

// TestFinishClaim: a decision is not written over one that a stale cache does not show.
func TestFinishClaim(t *testing.T) {
	b := newBench(t)

	_, err := b.pass(now, func(_ condition.Set, w *v1alpha1.TalosWorker) {
		other := b.read()
		other.Status.ReadyReplicas = 9

		if err := b.client.Status().Update(t.Context(), other); err != nil {
			t.Fatal(err)
		}

		w.Status.Replicas = 1
	}, func(e *frame.End) { e.Claim = true }, ctrl.Result{}, nil)
	if err != nil {
		t.Errorf("a conflict is no failure: %v", err)
	}

	if got := b.read().Status; got.Replicas != 0 || got.ReadyReplicas != 9 {
		t.Errorf("written over: %+v", got)
	}
}

// TestFinalizer: it is added once, with the next patch counting from there, and an object that is gone may be let go.
func TestFinalizer(t *testing.T) {
	b := newBench(t)
	w := b.read()

	base, err := frame.EnsureFinalizer(t.Context(), b.client, w, w.DeepCopy(), v1alpha1.Finalizer)
	if err != nil || !slices.Contains(b.read().Finalizers, v1alpha1.Finalizer) || base.ResourceVersion != w.ResourceVersion {
		t.Fatalf("%v, %v", b.read().Finalizers, err)
	}

	again, err := frame.EnsureFinalizer(t.Context(), b.client, w, base, v1alpha1.Finalizer)
	if err != nil || again != base {
		t.Errorf("twice: %v", err)
	}

	if err := frame.RemoveFinalizer(t.Context(), b.client, w, base, v1alpha1.Finalizer); err != nil ||
		len(b.read().Finalizers) > 0 {
		t.Errorf("removed: %v, %v", b.read().Finalizers, err)
	}

	gone := &v1alpha1.TalosWorker{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "gone", Finalizers: []string{v1alpha1.Finalizer},
	}}
	if err := frame.RemoveFinalizer(t.Context(), b.client, gone, gone.DeepCopy(), v1alpha1.Finalizer); err != nil {
		t.Errorf("gone: %v", err)
	}

	_, err = frame.EnsureFinalizer(t.Context(), b.client, gone, gone.DeepCopy(), "other")
	if err == nil || !strings.Contains(err.Error(), "adding the finalizer to TalosWorker gone") {
		t.Errorf("gone: %v", err)
	}
}
