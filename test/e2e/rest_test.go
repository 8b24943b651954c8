package e2e

import (
	"context"
	"fmt"
	"time"

	"github.com/talos-operator/talos-operator/internal/condition"
	"github.com/talos-operator/talos-operator/lab/metrics"
	"github.com/talos-operator/talos-operator/test/wait"
)

// restful is how long no manager writes at rest: details of a status wait for each other, and are no write of rest.
const restful = condition.SummaryTogether + time.Second

// quiet waits until the last writes of a convergence are through: no manager is in the middle of a reconciliation, and
// none has written for a while. A reconciliation that waits for an unreachable node takes longer than that while.
func (w *world) quiet() {
	w.t.Helper()

	w.eventually("the manager comes to rest", func(ctx context.Context) error {
		if err := w.rests(ctx); err != nil {
			return err
		}

		writes, err := w.writes(wait.Now().Add(-restful))
		if err == nil && len(writes) > 0 {
			err = fmt.Errorf("%v", writes)
		}

		return err
	})
}

// rests tells by nil that every manager that runs has nothing to do, and the world's own one has begun to work.
func (w *world) rests(ctx context.Context) error {
	w.mu.Lock()
	managers := w.managers
	w.mu.Unlock()

	for i, m := range managers {
		select {
		case <-m.done:
			continue
		default:
		}

		now, err := metrics.Scrape(ctx, "http://"+m.metrics+"/metrics")
		if err != nil {
			return fmt.Errorf("manager %d: %w", i+1, err)
		}

		if n := now.Total("controller_runtime_active_workers") + now.Total("workqueue_depth"); n > 0 {
			return fmt.Errorf("manager %d has %v objects to look at", i+1, n)
		}

		if m == w.manager && now.Total("controller_runtime_reconcile_total") == 0 {
			return fmt.Errorf("manager %d has not begun", i+1)
		}
	}

	return nil
}
