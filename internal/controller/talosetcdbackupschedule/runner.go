package talosetcdbackupschedule

import (
	"context"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/backup/retention"
	"github.com/talos-operator/talos-operator/internal/backup/verify"
	"github.com/talos-operator/talos-operator/internal/failure"
)

// kind of work that is done beside the passes of the controller.
type kind int

const (
	// retaining looks what lies in the store, and deletes what need not be kept.
	retaining kind = iota
	// verifying reads the newest backup back.
	verifying
)

// wakeups is how many ended works may wait to be looked at; what does not fit is found by the next pass.
const wakeups = 1024

// Runner does the long work of schedules, at most one for each: passes only start it and record what came of it.
type Runner struct {
	limit int
	ctx   context.Context //nolint:containedctx // the life of the work, which outlives the pass that starts it
	end   context.CancelFunc
	wake  chan event.GenericEvent
	group sync.WaitGroup

	mu   sync.Mutex
	jobs map[types.NamespacedName]*job
	// rests are when failed work may be tried again.
	rests map[rest]time.Time
}

type rest struct {
	schedule types.NamespacedName
	kind     kind
}

// NewRunner returns a runner of so many works at once. All of them end with the context.
func NewRunner(ctx context.Context, limit int) *Runner {
	ctx, end := context.WithCancel(ctx)

	return &Runner{
		limit: limit, ctx: ctx, end: end, wake: make(chan event.GenericEvent, wakeups),
		jobs: map[types.NamespacedName]*job{}, rests: map[rest]time.Time{},
	}
}

// Start implements manager.Runnable: when the manager stops, so does the work.
func (r *Runner) Start(ctx context.Context) error {
	select {
	case <-ctx.Done():
	case <-r.ctx.Done():
	}

	r.Stop()

	return nil
}

// Stop ends all work and waits for that.
func (r *Runner) Stop() {
	r.end()
	r.group.Wait()
}

// outcome of work; one of its fields is set where there is no error.
type outcome struct {
	retained *retention.Result
	report   *verify.Report
}

// job is work for one schedule, as its spec was then.
type job struct {
	kind       kind
	uid        types.UID
	generation int64
	// slot is the time that it was due at.
	slot   time.Time
	cancel context.CancelFunc
	done   chan struct{}

	// out and err may be read once done is closed.
	out outcome
	err error
}

func (j *job) ended() bool {
	select {
	case <-j.done:
		return true
	default:
		return false
	}
}

// order is work that is wanted.
type order struct {
	kind     kind
	schedule *v1alpha1.TalosEtcdBackupSchedule
	slot     time.Time
	timeout  time.Duration
	do       func(ctx context.Context) (outcome, error)
}

// start begins work. It is false while as many works run as may.
func (r *Runner) start(o order) (bool, error) {
	key := types.NamespacedName{Namespace: o.schedule.Namespace, Name: o.schedule.Name}

	r.mu.Lock()
	defer r.mu.Unlock()

	if err := r.ctx.Err(); err != nil {
		return false, fmt.Errorf("starting work on %s: %w", key, err)
	}

	running := 0

	for _, j := range r.jobs {
		if !j.ended() {
			running++
		}
	}

	if running >= r.limit {
		return false, nil
	}

	ctx, cancel := context.WithTimeout(r.ctx, o.timeout)
	j := &job{
		kind: o.kind, uid: o.schedule.UID, generation: o.schedule.Generation, slot: o.slot, cancel: cancel,
		done: make(chan struct{}),
	}
	r.jobs[key] = j

	r.group.Go(func() {
		defer cancel()

		j.out, j.err = o.do(ctx)
		if j.err != nil && context.Cause(ctx) == context.DeadlineExceeded { //nolint:errorlint // it is that very error
			j.err = failure.Transient(v1alpha1.ReasonBackupTimeout, "it took longer than its timeout", j.err)
		}

		close(j.done)

		select {
		case r.wake <- event.GenericEvent{Object: &v1alpha1.TalosEtcdBackupSchedule{
			ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name},
		}}:
		default:
		}
	})

	return true, nil
}

// find returns the work for a schedule. That for an earlier object of the same name is ended.
func (r *Runner) find(key types.NamespacedName, uid types.UID) *job {
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

// drop forgets work.
func (r *Runner) drop(key types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()

	if j := r.jobs[key]; j != nil {
		j.cancel()
		delete(r.jobs, key)
	}
}

// forget a schedule that is gone.
func (r *Runner) forget(key types.NamespacedName) {
	r.drop(key)

	r.mu.Lock()
	defer r.mu.Unlock()

	for _, k := range []kind{retaining, verifying} {
		delete(r.rests, rest{key, k})
	}
}

// rest puts off work that failed.
func (r *Runner) rest(key types.NamespacedName, k kind, until time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()

	r.rests[rest{key, k}] = until
}

// restsUntil is when work may be tried again, where that is later than now.
func (r *Runner) restsUntil(key types.NamespacedName, k kind, now time.Time) (time.Time, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()

	until, ok := r.rests[rest{key, k}]

	return until, ok && now.Before(until)
}
