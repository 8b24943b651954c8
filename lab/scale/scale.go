// Package scale measures the operator against an estate of hundreds of clusters: emulated nodes over real TLS, with
// etcd and Kubernetes modelled, a real management plane, and the operator as a process of its own.
package scale

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/talos-operator/talos-operator/lab/management"
	"github.com/talos-operator/talos-operator/lab/stack"
)

// Metric is one measured value.
type Metric struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
}

// Options describe a run.
type Options struct {
	// Stack is the lab to run in. Its nodes are always modelled.
	Stack stack.Options
	// Clusters is how many clusters of three control-plane nodes and two workers there are.
	Clusters int
	// Idle is how long the operator is watched with nothing to do.
	Idle time.Duration
	// Kill is how many nodes lose their power; fewer when there are fewer.
	Kill int
	// Gone is the share of nodes that go off the network without a word, Hostile that of those that hang, answer or
	// change without an end, both from 0 to 1. Nothing is measured with them when both are 0.
	Gone, Hostile float64
	// Metrics receives each value as soon as it is known.
	Metrics func(Metric) error
	// Progress receives lines for a person.
	Progress io.Writer
}

// bench is a run.
type bench struct {
	opts  Options
	began time.Time
	stack *stack.Stack
	watch *observer
}

// Run starts a lab, measures, and stops the lab.
func Run(ctx context.Context, o Options) (err error) {
	if o.Clusters < 1 || o.Clusters > maxClusters {
		return fmt.Errorf("the number of clusters must be between 1 and %d", maxClusters)
	}

	if o.Gone < 0 || o.Hostile < 0 || o.Gone+o.Hostile >= 1 {
		return errors.New("the shares of nodes that are gone and of hostile ones must be less than 1 together")
	}

	o.Stack.Modelled = true
	b := &bench{opts: o, began: time.Now()}

	b.logf("starting a lab for %d clusters, %d nodes", o.Clusters, o.Clusters*machinesPerCluster)

	if b.stack, err = stack.Start(ctx, o.Stack); err != nil {
		return err
	}

	defer func() {
		b.logf("stopping the lab")

		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stack.StopTimeout)
		defer cancel()

		err = errors.Join(err, b.stack.Stop(stopping))
	}()

	watching, cancel := context.WithCancel(ctx)
	defer cancel()

	if b.watch, err = observe(watching, b.stack.Plane.Config()); err != nil {
		return err
	}

	for _, phase := range []func(context.Context) error{b.create, b.idle, b.outage, b.restart, b.besieged} {
		if err := phase(ctx); err != nil {
			return err
		}
	}

	return b.emit(Metric{"manager_rss_peak_mib", mib(b.stack.Manager.RSSPeak()), "MiB"})
}

func (b *bench) logf(format string, args ...any) {
	if b.opts.Progress != nil {
		_, _ = fmt.Fprintf(b.opts.Progress, "%6.1f s  %s\n", time.Since(b.began).Seconds(), fmt.Sprintf(format, args...))
	}
}

func (b *bench) emit(metrics ...Metric) error {
	for _, m := range metrics {
		m.Value = round(m.Value)

		if err := b.opts.Metrics(m); err != nil {
			return fmt.Errorf("printing %s: %w", m.Name, err)
		}
	}

	return nil
}

// await waits for a condition and tells a person how it goes.
func (b *bench) await(ctx context.Context, what string, done func() (bool, error), progress func() string) error {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()

	told := time.Now()

	for {
		ok, err := done()
		if ok || err != nil {
			return err
		}

		if progress != nil && time.Since(told) >= progressInterval {
			told = time.Now()

			b.logf("%s", progress())
		}

		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting until %s: %w", what, ctx.Err())
		case <-b.stack.Plane.Done():
			return errors.New("the API server of the management plane ended")
		case <-tick.C:
		}
	}
}

const (
	pollInterval     = 250 * time.Millisecond
	progressInterval = 10 * time.Second
	// calm is how long nothing may be written before the operator counts as idle.
	calm = 5 * time.Second
	// calmTimeout is how long that is waited for: an operator that never rests is measured as it is.
	calmTimeout = 2 * time.Minute
)

// settle waits until the operator has stopped writing.
func (b *bench) settle(ctx context.Context) error {
	limit := time.Now().Add(calmTimeout)

	return b.await(ctx, "nothing is written any more", func() (bool, error) {
		now := time.Now()
		if now.After(limit) || !b.watch.quiet(calm) {
			return now.After(limit), nil
		}

		writes, err := b.writes(now.Add(-calm))

		return len(writes) == 0, err
	}, nil)
}

// writes of the operator since a moment.
func (b *bench) writes(since time.Time) ([]management.Write, error) {
	return b.stack.Plane.Writes(management.ManagerUser, since)
}

func mib(bytes int64) float64 { return float64(bytes) / (1 << 20) }

// round keeps four digits after the point.
func round(f float64) float64 { return float64(int64(f*1e4+0.5)) / 1e4 }
