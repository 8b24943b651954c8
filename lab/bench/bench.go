// Package bench is what benchmarks of the operator share: a lab, a watch on the objects in it, counters, and values
// that are printed as soon as they are known.
package bench

import (
	"cmp"
	"context"
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
	// SizeMiB of the database that it was measured with; 0 where it does not depend on one.
	SizeMiB int `json:"size_mib,omitempty"`
}

// Options describe a run.
type Options struct {
	// Stack is the lab to run in.
	Stack stack.Options
	// Calm is how long nothing may be written before the operator counts as idle; five seconds when zero.
	Calm time.Duration
	// Metrics receives each value as soon as it is known.
	Metrics func(Metric) error
	// Progress receives lines for a person; it may be nil.
	Progress io.Writer
}

// Bench is a run in a lab.
type Bench struct {
	// Stack is the lab, Watch follows the status of its objects.
	Stack *stack.Stack
	Watch *Observer

	opts  Options
	began time.Time
}

// Run starts a lab, measures in it, and stops it.
func Run(ctx context.Context, o Options, measure func(context.Context, *Bench) error) error {
	o.Calm = cmp.Or(o.Calm, usualCalm)
	b := &Bench{opts: o, began: time.Now()}

	b.Logf("starting a lab")

	return stack.Run(ctx, o.Stack, func(ctx context.Context, s *stack.Stack) error {
		watching, cancel := context.WithCancel(ctx)
		defer cancel()

		var err error

		b.Stack = s
		if b.Watch, err = observe(watching, s.Plane.Config()); err != nil {
			return err
		}

		err = measure(ctx, b)

		b.Logf("stopping the lab")

		return err
	})
}

// Logf tells a person how it goes.
func (b *Bench) Logf(format string, args ...any) {
	if b.opts.Progress != nil {
		_, _ = fmt.Fprintf(b.opts.Progress, "%6.1f s  %s\n", time.Since(b.began).Seconds(), fmt.Sprintf(format, args...))
	}
}

// Emit prints values.
func (b *Bench) Emit(metrics ...Metric) error {
	for _, m := range metrics {
		m.Value = round(m.Value)

		if err := b.opts.Metrics(m); err != nil {
			return fmt.Errorf("printing %s: %w", m.Name, err)
		}
	}

	return nil
}

// Await waits for a condition and tells a person how it goes; progress may be nil.
func (b *Bench) Await(ctx context.Context, what string, done func() (bool, error), progress func() string) error {
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

			b.Logf("%s", progress())
		}

		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting until %s: %w", what, ctx.Err())
		case <-tick.C:
		}
	}
}

const (
	pollInterval     = 250 * time.Millisecond
	progressInterval = 10 * time.Second
	usualCalm        = 5 * time.Second
	// calmTimeout is how long idleness is waited for: an operator that never rests is measured as it is.
	calmTimeout = 2 * time.Minute
)

// Settle waits until the operator has stopped writing.
func (b *Bench) Settle(ctx context.Context) error {
	limit := time.Now().Add(calmTimeout)

	return b.Await(ctx, "nothing is written any more", func() (bool, error) {
		now := time.Now()
		if now.After(limit) || !b.Watch.quiet(b.opts.Calm) {
			return now.After(limit), nil
		}

		writes, err := b.Writes(now.Add(-b.opts.Calm))

		return len(writes) == 0, err
	}, nil)
}

// Writes of the operator since a moment.
func (b *Bench) Writes(since time.Time) ([]management.Write, error) {
	return b.Stack.Plane.Writes(management.ManagerUser, since)
}

// MiB is a number of bytes in MiB.
func MiB(bytes int64) float64 { return float64(bytes) / (1 << 20) }

// round keeps four digits after the point.
func round(f float64) float64 { return float64(int64(f*1e4+0.5)) / 1e4 }
