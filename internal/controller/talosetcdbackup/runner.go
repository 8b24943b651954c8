package talosetcdbackup

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/failure"
)

// kind of work that is done beside the passes of the controller.
type kind int

const (
	// preparing: what an earlier try left is resolved, and everything is checked before a byte is read.
	preparing kind = iota
	// taking: the backup is taken.
	taking
	// verifying: what was stored is read back.
	verifying
	// removing: what was stored is deleted.
	removing
)

const (
	// wakeups is how many ended works may wait to be looked at; what does not fit is found by the next pass.
	wakeups = 1024
	// queuePoll is how soon somebody who waits for a place asks again.
	queuePoll = 5 * time.Second
)

// Runner does the long work of backups: passes only start it, watch it and record what came of it. So a backup of
// hours holds up no other object, and its own deletion ends it.
type Runner struct {
	limit int
	ctx   context.Context //nolint:containedctx // the life of the work, which outlives the pass that starts it
	end   context.CancelFunc
	wake  chan event.GenericEvent
	group sync.WaitGroup

	mu   sync.Mutex
	jobs map[types.NamespacedName]*job
}

// NewRunner returns a runner of so many works at once. All of them end with the context.
func NewRunner(ctx context.Context, limit int) *Runner {
	ctx, end := context.WithCancel(ctx)

	return &Runner{
		limit: limit, ctx: ctx, end: end, wake: make(chan event.GenericEvent, wakeups),
		jobs: map[types.NamespacedName]*job{},
	}
}

// Start implements manager.Runnable: when the manager stops, so does the work, and what it has begun is undone.
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

// job is work for one backup.
type job struct {
	kind    kind
	uid     types.UID
	cluster types.NamespacedName
	cancel  context.CancelFunc
	done    chan struct{}

	// out and err may be read once done is closed.
	out outcome
	err error

	mu       sync.Mutex
	progress string
	told     string
	toldAt   time.Time
}

// ended says whether the work is done.
func (j *job) ended() bool {
	select {
	case <-j.done:
		return true
	default:
		return false
	}
}

// tell sets what the work is at.
func (j *job) tell(text string) {
	j.mu.Lock()
	defer j.mu.Unlock()

	j.progress = text
}

// message is what people are told of the work; it changes every few seconds only.
func (j *job) message(now time.Time) string {
	j.mu.Lock()
	defer j.mu.Unlock()

	if j.told == "" || now.Sub(j.toldAt) >= progressPause {
		j.told, j.toldAt = j.progress, now
	}

	return j.told
}

// order is work that is wanted.
type order struct {
	kind    kind
	backup  *v1alpha1.TalosEtcdBackup
	text    string
	timeout time.Duration
	do      func(ctx context.Context, j *job) (outcome, error)
}

// start begins work. It is refused while as many works run as may, or while another backup of the cluster is taken.
func (r *Runner) start(o order) (*job, error) {
	key := keyOf(o.backup)
	cluster := types.NamespacedName{Namespace: o.backup.Namespace, Name: o.backup.Spec.ControlPlaneRef.Name}

	r.mu.Lock()
	defer r.mu.Unlock()

	if err := r.ctx.Err(); err != nil {
		return nil, fmt.Errorf("starting work on %s: %w", key, err)
	}

	if err := r.room(o.kind, cluster, key); err != nil {
		return nil, err
	}

	ctx, cancel := context.WithTimeout(r.ctx, o.timeout)
	j := &job{
		kind: o.kind, uid: o.backup.UID, cluster: cluster, cancel: cancel, done: make(chan struct{}), progress: o.text,
	}
	r.jobs[key] = j

	r.group.Go(func() {
		defer cancel()

		j.out, j.err = o.do(ctx, j)
		if j.err != nil && context.Cause(ctx) == context.DeadlineExceeded { //nolint:errorlint // it is that very error
			j.err = failure.Transient(v1alpha1.ReasonBackupTimeout, "it took longer than its timeout", j.err)
		}

		close(j.done)

		select {
		case r.wake <- event.GenericEvent{Object: &v1alpha1.TalosEtcdBackup{ObjectMeta: objectMeta(key)}}:
		default:
		}
	})

	return j, nil
}

// room says whether there is a place for more work.
func (r *Runner) room(k kind, cluster, key types.NamespacedName) error {
	running := 0

	for other, j := range r.jobs {
		if other == key || j.ended() {
			continue
		}

		running++

		if exclusive(k) && exclusive(j.kind) && j.cluster == cluster {
			return failure.Waiting(v1alpha1.ReasonBackupInProgress,
				fmt.Sprintf("waiting for TalosEtcdBackup %s of the same cluster", other.Name), queuePoll)
		}
	}

	if running >= r.limit {
		return failure.Waiting(v1alpha1.ReasonBackupInProgress,
			fmt.Sprintf("waiting for one of the %d backups that run at once", r.limit), queuePoll)
	}

	return nil
}

// exclusive work reads from the nodes of a cluster: one at a time.
func exclusive(k kind) bool { return k == preparing || k == taking }

// find returns the work for an object. That for an earlier object of the same name is ended.
func (r *Runner) find(key types.NamespacedName, uid types.UID) *job {
	r.mu.Lock()
	defer r.mu.Unlock()

	j := r.jobs[key]
	if j == nil {
		return nil
	}

	if j.uid != uid {
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
