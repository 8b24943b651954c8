package workload

import (
	"context"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
)

// A cluster is queried often at first, because it is coming up or was briefly unavailable, and less often the longer it
// is unavailable.
const (
	minAsk = 250 * time.Millisecond
	maxAsk = 5 * time.Second
	// unhurried determines how late the end of an outage may be noticed, as a fraction of the outage.
	unhurried = 20
)

// Waiter triggers control planes whose Kubernetes API responds again. No node event reports that, and reconciling the
// control plane until then would query all its nodes repeatedly.
type Waiter struct {
	ctx     context.Context //nolint:containedctx // the life of all waits
	clients *Clients
	events  chan event.GenericEvent

	mu    sync.Mutex
	waits map[types.NamespacedName]*apiWait
	wg    sync.WaitGroup
}

// apiWait is the wait for one cluster; a later reconciliation may add addresses.
type apiWait struct {
	bundle    *clusterstate.Bundle
	addresses []string
	cancel    context.CancelFunc
}

// NewWaiter returns a waiter whose waits end with the context.
func NewWaiter(ctx context.Context, clients *Clients) *Waiter {
	return &Waiter{
		ctx: ctx, clients: clients, events: make(chan event.GenericEvent, 1024), waits: map[types.NamespacedName]*apiWait{},
	}
}

// Events returns the control planes whose API responds again, as objects with only a name.
func (w *Waiter) Events() <-chan event.GenericEvent { return w.events }

// Await triggers a control plane once an API server of its cluster responds. Calling it again in the meantime is cheap.
func (w *Waiter) Await(key types.NamespacedName, b *clusterstate.Bundle, addresses []string) {
	w.mu.Lock()
	defer w.mu.Unlock()

	if have := w.waits[key]; have != nil {
		have.bundle, have.addresses = b, addresses

		return
	}

	ctx, cancel := context.WithCancel(w.ctx)
	one := &apiWait{bundle: b, addresses: addresses, cancel: cancel}
	w.waits[key] = one

	w.wg.Go(func() { w.run(ctx, key, one) })
}

// Forget ends a wait: the API responds, or the control plane is deleted.
func (w *Waiter) Forget(key types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()

	if one := w.waits[key]; one != nil {
		one.cancel()
		delete(w.waits, key)
	}
}

// Wait returns once all waits have ended, after the context of the waiter has ended.
func (w *Waiter) Wait() { w.wg.Wait() }

func (w *Waiter) run(ctx context.Context, key types.NamespacedName, one *apiWait) {
	began := time.Now()

	for {
		timer := time.NewTimer(min(max(time.Since(began)/unhurried, minAsk), maxAsk))

		select {
		case <-ctx.Done():
			timer.Stop()

			return
		case <-timer.C:
		}

		w.mu.Lock()
		bundle, addresses := one.bundle, one.addresses
		w.mu.Unlock()

		if _, err := w.clients.Version(ctx, bundle, addresses); err == nil {
			w.tell(ctx, key, one)

			return
		}
	}
}

// tell ends the wait and triggers the control plane, in this order, because its reconciliation may begin another wait.
func (w *Waiter) tell(ctx context.Context, key types.NamespacedName, one *apiWait) {
	w.mu.Lock()

	if w.waits[key] == one {
		delete(w.waits, key)
	}

	w.mu.Unlock()

	defer one.cancel()

	cp := &v1alpha1.TalosControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}

	select {
	case w.events <- event.GenericEvent{Object: cp}:
	case <-ctx.Done():
	}
}
