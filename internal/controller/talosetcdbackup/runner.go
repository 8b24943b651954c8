package talosetcdbackup

import (
	"context"
	"fmt"
	"iter"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/controller/work"
	"github.com/talos-operator/talos-operator/internal/failure"
)

// kind of work that runs outside of the reconciliations of the controller.
type kind int

const (
	// preparing: the remains of an earlier attempt are resolved, and all preconditions are checked before any data is
	// read.
	preparing kind = iota
	// taking: the backup is being taken.
	taking
	// verifying: the stored data is being read back.
	verifying
	// removing: the stored data is being deleted.
	removing
)

// queuePoll is how soon work that waits for a free slot is tried again.
const queuePoll = 5 * time.Second

// Runner runs the work of backups.
type Runner struct {
	*work.Runner[about, outcome]

	limit int
}

// NewRunner returns a runner with a limit of concurrent work. All work ends with the context.
func NewRunner(ctx context.Context, limit int) *Runner {
	return &Runner{limit: limit, Runner: work.New[about, outcome](ctx, func(key types.NamespacedName) client.Object {
		return &v1alpha1.TalosEtcdBackup{ObjectMeta: objectMeta(key)}
	})}
}

// job is work for one backup.
type job = work.Job[about, outcome]

// about describes work.
type about struct {
	kind     kind
	cluster  types.NamespacedName
	progress *work.Line
	// generation of the spec that the work is based on.
	generation int64
}

// order is requested work.
type order struct {
	kind    kind
	backup  *v1alpha1.TalosEtcdBackup
	text    string
	timeout time.Duration
	do      func(ctx context.Context, p *work.Line) (outcome, error)
}

// start starts work. It is rejected while the limit is reached, or while another backup of the cluster is being taken.
func (r *Runner) start(o order) (*job, error) {
	p := work.NewLine(o.text, progressPause)
	a := about{
		kind: o.kind, progress: p, generation: o.backup.Generation,
		cluster: types.NamespacedName{Namespace: o.backup.Namespace, Name: o.backup.Spec.ControlPlaneRef.Name},
	}

	return r.Do(work.Order[about, outcome]{
		Key: keyOf(o.backup), UID: o.backup.UID, About: a, Timeout: o.timeout,
		TimeoutReason: v1alpha1.ReasonBackupTimeout,
		Admit:         func(running iter.Seq2[types.NamespacedName, about]) error { return r.room(a, running) },
		Do:            func(ctx context.Context) (outcome, error) { return o.do(ctx, p) },
	})
}

// room reports whether there is a free slot for more work.
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

// exclusive reports whether the work reads from the nodes of a cluster, of which only one may run at a time.
func exclusive(k kind) bool { return k == preparing || k == taking }
