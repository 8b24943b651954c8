// Package harness is what the tests of controllers stand on: a namespace of the API server, an operator that is called
// by hand and dies when a test says so, and the machines of a control plane.
package harness

import (
	"context"
	"fmt"
	"reflect"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/talos-operator/talos-operator/internal/app"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/test/plane"
	"github.com/talos-operator/talos-operator/test/wait"
)

// Env is a namespace for one test, and one replica of the operator, which is called by hand.
type Env struct {
	*testing.T

	// Namespace is the test's own, as everything in it.
	Namespace string
	// Admin may do everything. It is what tests read and write with.
	Admin client.WithWatch
	// Client is what the operator reads and writes with, under its own roles. Restart replaces it.
	Client *Client
	// Events are those of all replicas that the test has had.
	Events *events.FakeRecorder
	// Logs has what they logged.
	Logs *Log
	// Clock is theirs. That of nodes and stores is the real one.
	Clock *Clock

	plane   *plane.Plane
	manager client.WithWatch
	began   time.Time
}

// New makes an env whose clock stands still.
func New(t *testing.T, p *plane.Plane) *Env {
	t.Helper()

	e := &Env{
		T: t, Events: events.NewFakeRecorder(10000), Logs: &Log{}, Clock: NewClock(), plane: p, began: time.Now(),
	}
	e.Admin, e.manager = open(t, p)

	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	e.Create(ns)
	e.Namespace = ns.Name
	e.Restart()

	return e
}

// opened are the clients of the planes: each knows the kinds of its API server, which it learns only once.
var (
	openedMu sync.Mutex
	opened   = map[*plane.Plane][2]client.WithWatch{}
)

func open(t *testing.T, p *plane.Plane) (admin, manager client.WithWatch) {
	t.Helper()

	openedMu.Lock()
	defer openedMu.Unlock()

	if _, ok := opened[p]; !ok {
		opened[p] = [2]client.WithWatch{p.Admin(t), p.Manager(t)}
	}

	return opened[p][0], opened[p][1]
}

// Restart is a crash of the operator, which comes back with another client. What its controllers keep in memory is the
// business of their tests.
func (e *Env) Restart() { e.Client = NewClient(e.manager) }

// Key is that of an object in the namespace.
func (e *Env) Key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: e.Namespace, Name: name}
}

// Create makes an object.
func (e *Env) Create(o client.Object) {
	e.Helper()

	if err := e.Admin.Create(e.Context(), o); err != nil {
		e.Fatal(err)
	}
}

// CreateSecret makes a Secret.
func (e *Env) CreateSecret(name string, data map[string]string) {
	e.Helper()
	e.Create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: name}, StringData: data})
}

// Get reads an object of the namespace.
func (e *Env) Get(o client.Object, name string) {
	e.Helper()

	if err := e.Admin.Get(e.Context(), e.Key(name), o); err != nil {
		e.Fatal(err)
	}
}

// Delete asks for the deletion of an object.
func (e *Env) Delete(o client.Object) {
	e.Helper()

	if err := e.Admin.Delete(e.Context(), o); err != nil {
		e.Fatal(err)
	}
}

// Gone tells whether an object does not exist. The object stays as it is.
func (e *Env) Gone(o client.Object) bool {
	e.Helper()

	err := e.Admin.Get(e.Context(), client.ObjectKeyFromObject(o), fresh(o))
	if client.IgnoreNotFound(err) != nil {
		e.Fatal(err)
	}

	return apierrors.IsNotFound(err)
}

// Update writes an object that a test has changed.
func (e *Env) Update(o client.Object) {
	e.Helper()

	if err := e.Admin.Update(e.Context(), o); err != nil {
		e.Fatal(err)
	}
}

// UpdateStatus writes a status as the controller of the object does.
func (e *Env) UpdateStatus(o client.Object) {
	e.Helper()

	if err := e.Admin.Status().Update(e.Context(), o); err != nil {
		e.Fatal(err)
	}
}

// Change reads an object, and writes what is edited. Other clients that write at the same time do not matter.
func Change[T client.Object](e *Env, o T, edit func(T)) {
	e.Helper()

	// What no other client wrote at the same time is refused for a reason of its own.
	var refused error

	e.Eventually("an edit of "+o.GetName(), func(ctx context.Context) error {
		if refused = e.read(ctx, o); refused != nil {
			return nil
		}

		edit(o)

		err := e.Admin.Update(ctx, o)
		if apierrors.IsConflict(err) {
			return err
		}

		refused = err

		return nil
	})

	if refused != nil {
		e.Fatal(refused)
	}
}

// Pass reconciles an object once, as the manager does, and reads it again. One that is gone stays as it was.
func (e *Env) Pass(r reconcile.Reconciler, o client.Object) (ctrl.Result, error) {
	e.Helper()

	logger, err := app.NewLogger(e.Logs, "debug")
	if err != nil {
		e.Fatal(err)
	}

	req := ctrl.Request{NamespacedName: client.ObjectKeyFromObject(o)}

	res, err := r.Reconcile(ctrl.LoggerInto(e.Context(), logger), req)
	if err != nil {
		logger.Error(err, "Reconciler error")
	}

	if rerr := e.read(e.Context(), o); client.IgnoreNotFound(rerr) != nil {
		e.Fatal(rerr)
	}

	return res, err
}

// read fills an object anew: where it is read into one that has been filled already, what is no longer there stays.
func (e *Env) read(ctx context.Context, o client.Object) error {
	now := fresh(o)
	if err := e.Admin.Get(ctx, client.ObjectKeyFromObject(o), now); err != nil {
		return err
	}

	reflect.ValueOf(o).Elem().Set(reflect.ValueOf(now).Elem())

	return nil
}

func fresh(o client.Object) client.Object {
	return reflect.New(reflect.TypeOf(o).Elem()).Interface().(client.Object)
}

// Until passes until the check is content. A pass that has changed the object is followed by the next one at once, as
// the event of that has it. Before is called before each of the others, to move the clock for example; it may be nil.
func (e *Env) Until(o client.Object, what string, before func(), pass func() error, check func() bool) {
	e.Helper()
	e.Eventually(o.GetName()+": "+what, func(ctx context.Context) error {
		if before != nil {
			before()
		}

		for {
			was := o.GetResourceVersion()
			err := pass()

			switch {
			case check():
				return nil
			case was == o.GetResourceVersion() || ctx.Err() != nil:
				return fmt.Errorf("last pass: %w; status %s", err, Show(o))
			}
		}
	})
}

// Eventually waits until a check is content.
func (e *Env) Eventually(what string, check func(context.Context) error) {
	e.Helper()

	if err := wait.Until(e.Context(), what, check); err != nil {
		e.Fatalf("%v\n%s", err, e.Logs.Tail(20))
	}
}

// States are the states of clusters, as an admin sees them.
func (e *Env) States() *clusterstate.Store {
	return &clusterstate.Store{Client: e.Admin, Reader: e.Admin, Clock: e.Clock}
}

// CreateState makes the state of a cluster.
func (e *Env) CreateState(cluster string, st *clusterstate.State) {
	e.Helper()

	if _, err := e.States().Create(e.Context(), e.Key(cluster), st); err != nil {
		e.Fatal(err)
	}
}

// State is the state of a cluster.
func (e *Env) State(cluster string) *clusterstate.State {
	e.Helper()

	held, err := e.States().Load(e.Context(), e.Key(cluster))
	if err != nil {
		e.Fatal(err)
	}

	return held.State
}

// Record changes the state of a cluster behind the back of the operator.
func (e *Env) Record(cluster string, change func(*clusterstate.State)) {
	e.Helper()

	if err := e.States().Record(e.Context(), e.Key(cluster), change); err != nil {
		e.Fatal(err)
	}
}
