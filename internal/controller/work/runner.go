// Package work runs what takes long, such as backups and installers, outside of reconciliations: a reconciliation only
// starts work, monitors it and records its result. Work that takes hours therefore delays no other object, and the
// deletion of its own object can cancel it.
package work

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/talos-operator/talos-operator/internal/failure"
)

// wakeups is how many completed works may wait for a reconciliation; those that do not fit are found by the next
// resync.
const wakeups = 1024

// Runner runs work for one kind of object, at most one per object. A describes work, O is its result. Its state is lost
// with the process.
type Runner[A, O any] struct {
	object func(types.NamespacedName) client.Object
	ctx    context.Context //nolint:containedctx // the life of the work, which outlives the reconciliation that starts it
	end    context.CancelFunc
	wake   chan event.GenericEvent
	group  sync.WaitGroup

	mu   sync.Mutex
	jobs map[types.NamespacedName]*Job[A, O]
	// queue has what was rejected by its Admit, in the order in which it was rejected first.
	queue []queued[A]
}

// queued is work that was rejected because of other work.
type queued[A any] struct {
	key   types.NamespacedName
	admit func(running iter.Seq2[types.NamespacedName, A]) error
}

// New returns a runner. Its work ends with the context; object returns what represents an object in events.
func New[A, O any](ctx context.Context, object func(types.NamespacedName) client.Object) *Runner[A, O] {
	ctx, end := context.WithCancel(ctx)

	return &Runner[A, O]{
		object: object, ctx: ctx, end: end, wake: make(chan event.GenericEvent, wakeups),
		jobs: map[types.NamespacedName]*Job[A, O]{},
	}
}

// Start implements manager.Runnable: when the manager stops, the work is cancelled, and what it has begun is undone.
func (r *Runner[A, O]) Start(ctx context.Context) error {
	select {
	case <-ctx.Done():
	case <-r.ctx.Done():
	}

	r.Stop()

	return nil
}

// Stop cancels all work and waits until it has ended.
func (r *Runner[A, O]) Stop() {
	r.end()
	r.group.Wait()
}

// Ends returns a channel that reports each object whose work has ended.
func (r *Runner[A, O]) Ends() <-chan event.GenericEvent { return r.wake }

// Job is work for one object.
type Job[A, O any] struct {
	About A

	uid    types.UID
	cancel context.CancelFunc
	done   chan struct{}
	out    O
	err    error
}

// Ended reports whether the work has ended.
func (j *Job[A, O]) Ended() bool {
	select {
	case <-j.done:
		return true
	default:
		return false
	}
}

// Result returns the result of the work. It may be called only after the work has ended.
func (j *Job[A, O]) Result() (O, error) { return j.out, j.err }

// Cancel cancels the work without waiting for it to end.
func (j *Job[A, O]) Cancel() { j.cancel() }

// Order is requested work.
type Order[A, O any] struct {
	Key     types.NamespacedName
	UID     types.UID
	About   A
	Timeout time.Duration
	// TimeoutReason is the reason of the error of work that took longer than its timeout.
	TimeoutReason string
	// Admit may reject the work with an error, given the work that is running for other objects; nil admits it. Its object
	// is then reconciled again once other work has ended and Admit, which must not use the runner, no longer rejects it.
	Admit func(running iter.Seq2[types.NamespacedName, A]) error
	Do    func(context.Context) (O, error)
}

// Do starts work. The error is that of Admit, or says that the runner has been stopped.
func (r *Runner[A, O]) Do(o Order[A, O]) (*Job[A, O], error) {
	r.mu.Lock()
	defer r.mu.Unlock()

	if err := r.ctx.Err(); err != nil {
		return nil, fmt.Errorf("starting work on %s: %w", o.Key, err)
	}

	if o.Admit != nil {
		if err := o.Admit(r.running(o.Key)); err != nil {
			r.enqueue(o.Key, o.Admit)

			return nil, err
		}
	}

	r.dequeue(o.Key)

	ctx, cancel := context.WithTimeout(r.ctx, o.Timeout)
	j := &Job[A, O]{About: o.About, uid: o.UID, cancel: cancel, done: make(chan struct{})}
	r.jobs[o.Key] = j

	r.group.Go(func() {
		defer cancel()

		j.out, j.err = o.Do(ctx)
		if j.err != nil && context.Cause(ctx) == context.DeadlineExceeded { //nolint:errorlint // it is that very error
			j.err = failure.Transient(o.TimeoutReason, "it took longer than its timeout", j.err)
		}

		close(j.done)

		r.reconcile(o.Key)
		r.wakeNext()
	})

	return j, nil
}

// reconcile has an object reconciled.
func (r *Runner[A, O]) reconcile(key types.NamespacedName) {
	select {
	case r.wake <- event.GenericEvent{Object: r.object(key)}:
	default:
	}
}

// enqueue remembers rejected work, at its place in the queue if it has one. The lock is held.
func (r *Runner[A, O]) enqueue(
	key types.NamespacedName, admit func(running iter.Seq2[types.NamespacedName, A]) error,
) {
	for i := range r.queue {
		if r.queue[i].key == key {
			r.queue[i].admit = admit

			return
		}
	}

	r.queue = append(r.queue, queued[A]{key, admit})
}

// dequeue forgets rejected work. The lock is held.
func (r *Runner[A, O]) dequeue(key types.NamespacedName) {
	r.queue = slices.DeleteFunc(r.queue, func(q queued[A]) bool { return q.key == key })
}

// wakeNext has the first object reconciled whose work is no longer rejected: one, because work that has ended makes
// room for one. An object that does not begin leaves that room to those that check by themselves.
func (r *Runner[A, O]) wakeNext() {
	r.mu.Lock()
	defer r.mu.Unlock()

	for _, q := range r.queue {
		if q.admit(r.running(q.key)) == nil {
			r.dequeue(q.key)
			r.reconcile(q.key)

			return
		}
	}
}

// running returns the unfinished work of other objects.
func (r *Runner[A, O]) running(but types.NamespacedName) iter.Seq2[types.NamespacedName, A] {
	return func(yield func(types.NamespacedName, A) bool) {
		for key, j := range r.jobs {
			if key != but && !j.Ended() && !yield(key, j.About) {
				return
			}
		}
	}
}

// Find returns the work for an object, or nil. Work for an earlier object of the same name is cancelled.
func (r *Runner[A, O]) Find(key types.NamespacedName, uid types.UID) *Job[A, O] {
	r.mu.Lock()
	defer r.mu.Unlock()

	j := r.jobs[key]
	if j != nil && j.uid != uid {
		j.cancel()
		delete(r.jobs, key)

		return nil
	}

	return j
}

// Drop cancels and forgets the work for an object.
func (r *Runner[A, O]) Drop(key types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()

	r.dequeue(key)

	if j := r.jobs[key]; j != nil {
		j.cancel()
		delete(r.jobs, key)
	}
}
