package talosetcdbackup

import (
	"context"
	"fmt"
	"iter"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/controller/backupwork"
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

// queuePoll is how soon somebody who waits for a place asks again.
const queuePoll = 5 * time.Second

// Runner does the work of backups.
type Runner struct {
	*backupwork.Runner[about, outcome]

	limit int
}

// NewRunner returns a runner of so many works at once. All of them end with the context.
func NewRunner(ctx context.Context, limit int) *Runner {
	return &Runner{limit: limit, Runner: backupwork.New[about, outcome](ctx, func(key types.NamespacedName) client.Object {
		return &v1alpha1.TalosEtcdBackup{ObjectMeta: objectMeta(key)}
	})}
}

// job is work for one backup.
type job = backupwork.Job[about, outcome]

// about describes work.
type about struct {
	kind     kind
	cluster  types.NamespacedName
	progress *progress
	// generation of the spec that the work follows.
	generation int64
}

// progress is how far work is.
type progress struct {
	mu     sync.Mutex
	now    string
	told   string
	toldAt time.Time
}

// tell sets what the work is at.
func (p *progress) tell(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()

	p.now = text
}

// message is what people are told of the work; it changes every few seconds only.
func (p *progress) message(now time.Time) string {
	p.mu.Lock()
	defer p.mu.Unlock()

	if p.told == "" || now.Sub(p.toldAt) >= progressPause {
		p.told, p.toldAt = p.now, now
	}

	return p.told
}

// order is work that is wanted.
type order struct {
	kind    kind
	backup  *v1alpha1.TalosEtcdBackup
	text    string
	timeout time.Duration
	do      func(ctx context.Context, p *progress) (outcome, error)
}

// start begins work. It is refused while as many works run as may, or while another backup of the cluster is taken.
func (r *Runner) start(o order) (*job, error) {
	p := &progress{now: o.text}
	a := about{
		kind: o.kind, progress: p, generation: o.backup.Generation,
		cluster: types.NamespacedName{Namespace: o.backup.Namespace, Name: o.backup.Spec.ControlPlaneRef.Name},
	}

	return r.Do(backupwork.Order[about, outcome]{
		Key: keyOf(o.backup), UID: o.backup.UID, About: a, Timeout: o.timeout,
		Admit: func(running iter.Seq2[types.NamespacedName, about]) error { return r.room(a, running) },
		Do:    func(ctx context.Context) (outcome, error) { return o.do(ctx, p) },
	})
}

// room says whether there is a place for more work.
func (r *Runner) room(wanted about, running iter.Seq2[types.NamespacedName, about]) error {
	count := 0

	for key, other := range running {
		count++

		if exclusive(wanted.kind) && exclusive(other.kind) && other.cluster == wanted.cluster {
			return failure.Waiting(v1alpha1.ReasonBackupInProgress,
				fmt.Sprintf("waiting for TalosEtcdBackup %s of the same cluster", key.Name), queuePoll)
		}
	}

	if count >= r.limit {
		return failure.Waiting(v1alpha1.ReasonBackupInProgress,
			fmt.Sprintf("waiting for one of the %d backups that run at once", r.limit), queuePoll)
	}

	return nil
}

// exclusive work reads from the nodes of a cluster: one at a time.
func exclusive(k kind) bool { return k == preparing || k == taking }
