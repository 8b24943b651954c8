package talosetcdbackupschedule

import (
	"context"
	"errors"
	"iter"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/backup/retention"
	"github.com/talos-operator/talos-operator/internal/backup/verify"
	"github.com/talos-operator/talos-operator/internal/controller/work"
)

// kind of work that runs outside of the reconciliations of the controller.
type kind int

const (
	// retaining lists the backups in the store, and deletes those that need not be kept.
	retaining kind = iota
	// verifying reads the newest backup back.
	verifying
)

// Runner runs the work of schedules, at most one per schedule.
type Runner struct {
	*work.Runner[about, outcome]

	limit int

	mu sync.Mutex
	// rests are the times at which failed work may be tried again.
	rests map[rest]time.Time
}

type rest struct {
	schedule types.NamespacedName
	kind     kind
}

// NewRunner returns a runner with a limit of concurrent work. All work ends with the context.
func NewRunner(ctx context.Context, limit int) *Runner {
	return &Runner{
		limit: limit, rests: map[rest]time.Time{},
		Runner: work.New[about, outcome](ctx, func(key types.NamespacedName) client.Object {
			return &v1alpha1.TalosEtcdBackupSchedule{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
		}),
	}
}

// outcome is the result of work; one of its fields is set if there is no error.
type outcome struct {
	retained *retention.Result
	report   *verify.Report
}

// about describes work for one schedule, with its spec at that time.
type about struct {
	kind       kind
	generation int64
	// slot is the time at which the work was due.
	slot time.Time
}

// order is requested work.
type order struct {
	kind     kind
	schedule *v1alpha1.TalosEtcdBackupSchedule
	slot     time.Time
	timeout  time.Duration
	do       func(ctx context.Context) (outcome, error)
}

var errNoPlace = errors.New("as much work runs as may")

// start starts work. It returns false while the limit is reached.
func (r *Runner) start(o order) (bool, error) {
	_, err := r.Do(work.Order[about, outcome]{
		Key: client.ObjectKeyFromObject(o.schedule), UID: o.schedule.UID, Timeout: o.timeout, Do: o.do,
		TimeoutReason: v1alpha1.ReasonBackupTimeout,
		About:         about{kind: o.kind, generation: o.schedule.Generation, slot: o.slot},
		Admit: func(running iter.Seq2[types.NamespacedName, about]) error {
			count := 0
			for range running {
				count++
			}

			if count >= r.limit {
				return errNoPlace
			}

			return nil
		},
	})
	if errors.Is(err, errNoPlace) {
		return false, nil
	}

	return err == nil, err
}

// forget drops the state of a deleted schedule.
func (r *Runner) forget(key types.NamespacedName) {
	r.Drop(key)

	r.mu.Lock()
	defer r.mu.Unlock()

	for _, k := range []kind{retaining, verifying} {
		delete(r.rests, rest{key, k})
	}
}

// rest delays failed work.
func (r *Runner) rest(key types.NamespacedName, k kind, until time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()

	r.rests[rest{key, k}] = until
}

// restsUntil returns when work may be tried again, if that is in the future.
func (r *Runner) restsUntil(key types.NamespacedName, k kind, now time.Time) (time.Time, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()

	until, ok := r.rests[rest{key, k}]

	return until, ok && now.Before(until)
}
