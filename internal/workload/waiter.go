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

// A cluster is asked often at first: it comes up, or was away for a moment. The longer it is away the less it is asked.
const (
	minAsk = 250 * time.Millisecond
	maxAsk = 5 * time.Second
	// unhurried is the part of an outage that its end may be noticed late.
	unhurried = 20
)

// Waiter wakes control planes whose Kubernetes API answers again. No node tells of that, and to look at a control plane
// as a whole until then would ask all its nodes everything over and over.
type Waiter struct {
	ctx     context.Context //nolint:containedctx // the life of all waits
	clients *Clients
	events  chan event.GenericEvent

	mu    sync.Mutex
	waits map[types.NamespacedName]*apiWait
	wg    sync.WaitGroup
}

// apiWait is one cluster that is waited for; a later pass may know more addresses.
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

// Events carries the control planes whose API answers again, as objects with nothing but a name.
func (w *Waiter) Events() <-chan event.GenericEvent { return w.events }

// Await wakes a control plane once an API server of its cluster answers. It is cheap to call again meanwhile.
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

// Forget ends a wait: the API answers, or the control plane is gone.
func (w *Waiter) Forget(key types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()

	if one := w.waits[key]; one != nil {
		one.cancel()
		delete(w.waits, key)
	}
}

// Wait returns once all waits have ended, after the context of the waiter has.
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

// tell ends the wait and wakes the control plane, in this order: its pass may begin another wait.
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
