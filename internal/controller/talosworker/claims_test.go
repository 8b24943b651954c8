package talosworker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
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
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/condition"
	"github.com/talos-operator/talos-operator/internal/controller/talosworker"
	"github.com/talos-operator/talos-operator/internal/decide/rollout"
)

// node is the real state of a node, and whether the controller of its machine observes it.
type node struct{ answers, ready, same, hidden bool }

// fleet is a group of workers with random faults, and its real state.
type fleet struct {
	*rapid.T

	ctx   context.Context //nolint:containedctx // that of the test
	api   client.Client
	r     *talosworker.Reconciler
	clock *testclock.FakePassiveClock
	nodes map[string]*node

	// broken are the calls to the API server that fail.
	broken  map[string]bool
	refused bool
	hold    string
}

var errAway = errors.New("the API server is away")

// fails makes a call fail while it is broken.
func (e *fleet) fails(call string) error {
	if e.broken[call] {
		return errAway
	}

	return nil
}

func newFleet(ctx context.Context, t *rapid.T) *fleet {
	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), vitistackv1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}

	e := &fleet{
		T: t, ctx: ctx, nodes: map[string]*node{}, broken: map[string]bool{},
		clock: testclock.NewFakePassiveClock(time.Unix(1_800_000_000, 0)),
	}

	of := func(o any) string { return strings.TrimPrefix(fmt.Sprintf("%T", o), "*v1alpha1.") }
	e.api = fake.NewClientBuilder().WithScheme(scheme).WithTypeConverters(managedfields.NewDeducedTypeConverter()).
		WithStatusSubresource(&v1alpha1.TalosWorker{}, &v1alpha1.TalosMachine{}).
		WithObjects(
			&v1alpha1.TalosControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c"}},
			&v1alpha1.TalosWorker{
				ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "w", UID: "w", Generation: 1},
				Spec: v1alpha1.TalosWorkerSpec{
					ControlPlaneRef: v1alpha1.ObjectReference{Name: "c"}, Machines: []v1alpha1.MachineEntry{{Name: "w-0"}, {Name: "w-1"}},
				},
			},
		).Build()

	cut := interceptor.NewClient(e.api.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			return errors.Join(e.fails("get "+of(o)), c.Get(ctx, key, o, opts...))
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			return errors.Join(e.fails("list"), c.List(ctx, list, opts...))
		},
		Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			if err := e.fails("apply"); err != nil {
				return err
			}

			return c.Apply(ctx, o, opts...)
		},
	})
	e.r = &talosworker.Reconciler{
		Client: cut, Reader: cut, Recorder: events.NewFakeRecorder(10000), Clock: e.clock, Resync: time.Minute,
	}

	return e
}

func (e *fleet) worker() *v1alpha1.TalosWorker {
	w := &v1alpha1.TalosWorker{}
	if err := e.api.Get(e.ctx, client.ObjectKey{Namespace: "ns", Name: "w"}, w); err != nil {
		e.Fatal(err)
	}

	return w
}

// edit changes the group as a user does: its generation counts the changes of its spec.
func (e *fleet) edit(change func(*v1alpha1.TalosWorker)) {
	w := e.worker()
	change(w)
	w.Generation++

	if err := e.api.Update(e.ctx, w); err != nil {
		e.Fatal(err)
	}
}

// pass lets the controllers of the machines report their observations, and reconciles the group.
func (e *fleet) pass() {
	list := &v1alpha1.TalosMachineList{}
	if err := e.api.List(e.ctx, list); err != nil {
		e.Fatal(err)
	}

	for i := range list.Items {
		m := &list.Items[i]

		if !m.DeletionTimestamp.IsZero() { // its controller has finished
			m.Finalizers = nil
			if err := e.api.Update(e.ctx, m); err != nil {
				e.Fatal(err)
			}

			continue
		}

		n := e.nodes[m.Name]
		if n == nil {
			continue // its controller has not reconciled it yet
		}

		m.Status.Conditions = nil
		m.Status.ComparedTo = rollout.ComparedTo(&v1alpha1.TalosControlPlane{}, e.worker(), m)

		for kind, is := range n.conditions() {
			meta.SetStatusCondition(&m.Status.Conditions, metav1.Condition{
				Type: kind, Status: is, Reason: "Told", ObservedGeneration: m.Generation,
			})
		}

		if err := e.api.Status().Update(e.ctx, m); err != nil {
			e.Fatal(err)
		}
	}

	// What fails is broken by the test; the conditions tell.
	_, _ = e.r.Reconcile(e.ctx, ctrl.Request{NamespacedName: client.ObjectKey{Namespace: "ns", Name: "w"}})
}

func (n *node) conditions() map[string]metav1.ConditionStatus {
	status := func(is bool) metav1.ConditionStatus {
		switch {
		case n.hidden:
			return metav1.ConditionUnknown
		case is:
			return metav1.ConditionTrue
		}

		return metav1.ConditionFalse
	}

	return map[string]metav1.ConditionStatus{
		v1alpha1.ConditionReachable: status(n.answers), v1alpha1.ConditionReady: status(n.answers && n.ready),
		v1alpha1.ConditionUpToDate: status(n.same),
	}
}

var names = []string{"w-0", "w-1", "w-2"}

// happen causes one event.
func (e *fleet) happen() {
	switch name := rapid.SampledFrom(names).Draw(e.T, "machine"); rapid.SampledFrom([]string{
		"node", "node", "list", "list", "delete", "refuse", "hold", "break", "break", "mend", "restart",
	}).Draw(e.T, "event") {
	case "node":
		e.nodes[name] = &node{
			answers: rapid.Bool().Draw(e.T, "answers"), ready: rapid.Bool().Draw(e.T, "ready"),
			same: rapid.Bool().Draw(e.T, "same"), hidden: rapid.IntRange(0, 3).Draw(e.T, "hidden") == 0,
		}
	case "list":
		e.edit(func(w *v1alpha1.TalosWorker) {
			is := func(m v1alpha1.MachineEntry) bool { return m.Name == name }
			if slices.ContainsFunc(w.Spec.Machines, is) {
				w.Spec.Machines = slices.DeleteFunc(w.Spec.Machines, is)
			} else {
				w.Spec.Machines = append(w.Spec.Machines, v1alpha1.MachineEntry{Name: name})
			}
		})
	case "delete":
		m := &v1alpha1.TalosMachine{}

		err := e.api.Get(e.ctx, client.ObjectKey{Namespace: "ns", Name: name}, m)
		if err == nil {
			m.Finalizers = nil // its controller has finished
			err = errors.Join(e.api.Update(e.ctx, m), e.api.Delete(e.ctx, m))
		}

		if client.IgnoreNotFound(err) != nil {
			e.Fatal(err)
		}

		delete(e.nodes, name)
	case "refuse":
		e.refused = !e.refused
		e.edit(func(w *v1alpha1.TalosWorker) {
			if w.Spec.ConfigPatches = nil; e.refused {
				w.Spec.ConfigPatches = []string{"machine: ["}
			}
		})
	case "hold":
		e.hold = rapid.SampledFrom([]string{"", "paused", "DryRun"}).Draw(e.T, "hold")
		e.edit(func(w *v1alpha1.TalosWorker) {
			w.Annotations = map[string]map[string]string{
				"": nil, "paused": {v1alpha1.PausedAnnotation: "true"}, "DryRun": {v1alpha1.ReconcileModeAnnotation: "DryRun"},
			}[e.hold]
		})
	case "break":
		e.broken[rapid.SampledFrom([]string{"list", "get TalosControlPlane", "apply"}).Draw(e.T, "call")] = true
	case "mend":
		clear(e.broken)
	case "restart":
		e.r = &talosworker.Reconciler{
			Client: e.r.Client, Reader: e.r.Reader, Recorder: e.r.Recorder, Clock: e.clock, Resync: e.r.Resync,
		}
	}
}

// is reports whether a condition is true of all listed machines: each has an object, and its node shows it.
func (e *fleet) is(kind string) bool {
	return !slices.ContainsFunc(e.worker().Spec.Machines, func(entry v1alpha1.MachineEntry) bool {
		m, n := &v1alpha1.TalosMachine{}, e.nodes[entry.Name]
		err := e.api.Get(e.ctx, client.ObjectKey{Namespace: "ns", Name: entry.Name}, m)

		return err != nil || !m.DeletionTimestamp.IsZero() || n == nil || n.conditions()[kind] != metav1.ConditionTrue
	})
}

// leaving reports whether a machine was removed from the list and still exists.
func (e *fleet) leaving() bool {
	list := &v1alpha1.TalosMachineList{}
	if err := e.api.List(e.ctx, list); err != nil {
		e.Fatal(err)
	}

	return slices.ContainsFunc(list.Items, func(m v1alpha1.TalosMachine) bool {
		return !slices.ContainsFunc(e.worker().Spec.Machines, func(entry v1alpha1.MachineEntry) bool { return entry.Name == m.Name })
	})
}

// check compares the conditions with the real state.
func (e *fleet) check() {
	w := e.worker()

	for _, kind := range []string{v1alpha1.ConditionReady, v1alpha1.ConditionReachable, v1alpha1.ConditionUpToDate} {
		c := meta.FindStatusCondition(w.Status.Conditions, kind)

		is := e.is(kind) && (kind == v1alpha1.ConditionReachable || !e.refused)
		if kind == v1alpha1.ConditionUpToDate {
			is = is && !e.leaving()
		}

		switch {
		case c == nil:
			e.Fatalf("%s is missing", kind)
		case c.Status == metav1.ConditionTrue && !is:
			e.Fatalf("%s is claimed: %+v", kind, c)
		case c.Status == metav1.ConditionTrue && e.broken["list"]:
			e.Fatalf("%s is claimed by a controller that cannot know: %+v", kind, c)
		case c.Status != metav1.ConditionTrue && is && len(e.broken) == 0:
			e.Fatalf("%s is not told: %+v", kind, c)
		}
	}
}

// TestNoConditionLies: whatever happens to nodes, machines, the list, the spec and the API server, in any order, no
// condition of a group makes a false claim for longer than its bound.
func TestNoConditionLies(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		e := newFleet(t.Context(), rt)
		e.nodes["w-0"], e.nodes["w-1"] = &node{answers: true, ready: true, same: true}, &node{answers: true, ready: true, same: true}

		for range 3 {
			e.pass()
		}

		e.check()

		for range rapid.IntRange(1, 5).Draw(rt, "steps") {
			for range rapid.IntRange(1, 3).Draw(rt, "events") {
				e.happen()
			}

			// A reconciliation in between observes an intermediate state. Its effects are visible to the next ones.
			for range 3 {
				e.pass()
			}

			e.clock.SetTime(e.clock.Now().Add(condition.Bound))
			e.pass()
			e.check()
		}
	})
}
