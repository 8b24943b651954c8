package talosmachine

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/check"
	"github.com/talos-operator/talos-operator/internal/controller/group"
	"github.com/talos-operator/talos-operator/internal/decide/change"
	"github.com/talos-operator/talos-operator/internal/workload"
)

const (
	// checkAgain is how soon checks are made again of a machine that settles, checkFailed of one whose change has failed.
	checkAgain  = 5 * time.Second
	checkFailed = time.Minute
)

// verdicts records for machines that settle what the checks of their upgrade have found, because such a machine is
// reconciled every second. A restart loses them, which costs one more check. The zero value is ready to use and safe
// for concurrent use.
type verdicts struct {
	mu   sync.Mutex
	last map[types.NamespacedName]verdict
}

// verdict is why the checks are not satisfied, for one change and one generation of the spec.
type verdict struct {
	of, why string
	until   time.Time
}

func (v *verdicts) get(key types.NamespacedName, of string, now time.Time) (string, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()

	last, ok := v.last[key]

	return last.why, ok && last.of == of && now.Before(last.until)
}

func (v *verdicts) put(key types.NamespacedName, last verdict) {
	v.mu.Lock()
	defer v.mu.Unlock()

	if v.last == nil {
		v.last = map[types.NamespacedName]verdict{}
	}

	v.last[key] = last
}

func (v *verdicts) forget(key types.NamespacedName) {
	v.mu.Lock()
	defer v.mu.Unlock()

	delete(v.last, key)
}

// findLag finds what the machine waits for although what its change brings is live and the node reports itself as
// healthy.
func (r *Reconciler) findLag(ctx context.Context, s *scope) (ctrl.Result, error) {
	if !s.compared || s.facts == nil {
		return ctrl.Result{}, nil
	}

	if s.lagging = r.lags(ctx, s); s.lagging == "" {
		s.lagging = r.unsatisfied(ctx, s)
	}

	return ctrl.Result{}, nil
}

// unsatisfied says which check of its upgrade a machine waits for that runs the new version; empty if for none. What
// the cluster says before the node itself is healthy is not of interest, and not read.
func (r *Reconciler) unsatisfied(ctx context.Context, s *scope) string {
	c, due := s.machine.Status.Change, check.Due(s.controlPlane.Spec.Upgrade, v1alpha1.CheckAfter)

	if len(due) == 0 || !check.Concerns(c) || !s.runs(c) || s.facts.Stage != change.StageRunning || !s.facts.Ready {
		r.verdicts.forget(s.key())

		return ""
	}

	now, of := r.Clock.Now(), fmt.Sprintf("%d/%s", s.controlPlane.Generation, c.ID)
	if why, ok := r.verdicts.get(s.key(), of, now); ok {
		return why
	}

	name, why := group.Unsatisfied(ctx, due, func(ctx context.Context) (*workload.Cluster, error) {
		return r.cluster(ctx, s)
	})
	if name == "" {
		r.verdicts.forget(s.key())

		return ""
	}

	again := checkAgain
	if c.Phase == v1alpha1.ChangeFailed {
		again = checkFailed
	}

	why = "check " + name + ": " + why
	r.verdicts.put(s.key(), verdict{of: of, why: why, until: now.Add(again)})

	return why
}

// runs reports whether the node runs what a change of a version brings.
func (s *scope) runs(c *v1alpha1.MachineChange) bool {
	if isUpgrade(c) {
		return s.systems != nil && s.systems.live.hash() == c.Target
	}

	return s.liveHash == c.Target
}
