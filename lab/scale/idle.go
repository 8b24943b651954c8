package scale

import (
	"context"
	"fmt"
	"time"

	"github.com/talos-operator/talos-operator/lab/bench"
	"github.com/talos-operator/talos-operator/lab/metrics"
	"github.com/talos-operator/talos-operator/lab/process"
)

// look is what the operator has used until a moment.
type look struct {
	at      time.Time
	cpu     time.Duration
	metrics metrics.Samples
}

func (r *run) look(ctx context.Context) (look, error) {
	cpu, err := r.Stack.Manager.CPU()
	if err != nil {
		return look{}, err
	}

	found, err := r.Scrape(ctx)

	return look{at: time.Now(), cpu: cpu, metrics: found}, err
}

// idle measures what the operator does, and has in its memory, when there is nothing to do.
func (r *run) idle(ctx context.Context) error {
	if err := r.Settle(ctx); err != nil {
		return err
	}

	r.Logf("watching the idle operator for %s", r.opts.Idle)

	mutating := r.MutatingCalls()

	before, err := r.look(ctx)
	if err != nil {
		return err
	}

	end := before.at.Add(r.opts.Idle)
	if err := r.Await(ctx, "the idle time is over", func() (bool, error) { return time.Now().After(end), nil },
		nil); err != nil {
		return err
	}

	after, err := r.look(ctx)
	if err != nil {
		return err
	}

	rss, err := process.RSS(r.Stack.Manager.PID())
	if err != nil {
		return fmt.Errorf("measuring the idle operator: %w", err)
	}

	writes, err := r.Writes(before.at)
	if err != nil {
		return err
	}

	for _, w := range writes {
		r.Logf("written while idle: %s", w)
	}

	if err := r.Emit(
		bench.Metric{Name: "idle_api_writes", Value: float64(len(writes)), Unit: "requests"},
		bench.Metric{Name: "idle_mutating_calls", Value: float64(r.MutatingCalls() - mutating), Unit: "calls"},
		bench.Metric{Name: "idle_rss_mib", Value: bench.MiB(rss), Unit: "MiB"},
	); err != nil {
		return err
	}

	return r.Emit(use(before, after, r.opts.Clusters*machinesPerCluster)...)
}

// use is what an idle operator used between two moments. Allocations are counted, so they are comparable between runs
// on a busy computer, which processor time is not.
func use(before, after look, nodes int) []bench.Metric {
	lasted := after.at.Sub(before.at).Seconds()
	rate := func(name string) float64 {
		return (after.metrics.Total(name) - before.metrics.Total(name)) / lasted
	}
	goroutines := after.metrics.Total("go_goroutines")
	mib := func(name string) float64 { return bench.MiB(int64(after.metrics.Total(name))) }

	return []bench.Metric{
		{Name: "idle_cpu_share", Value: (after.cpu - before.cpu).Seconds() / lasted, Unit: "cores"},
		{Name: "idle_allocated_mib_s", Value: rate("go_memstats_alloc_bytes_total") / (1 << 20), Unit: "MiB/s"},
		{Name: "idle_allocations_s", Value: rate("go_memstats_mallocs_total"), Unit: "objects/s"},
		{Name: "idle_heap_mib", Value: mib("go_memstats_heap_alloc_bytes"), Unit: "MiB"},
		{Name: "idle_stacks_mib", Value: mib("go_memstats_stack_inuse_bytes"), Unit: "MiB"},
		{Name: "goroutines", Value: goroutines, Unit: "goroutines"},
		{Name: "goroutines_per_node", Value: goroutines / float64(nodes), Unit: "goroutines"},
	}
}
