// Package chaos runs the operator against random faults, edits, kills and restores of its management plane, on modelled
// machines, with an oracle that judges from outside what it does.
package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/talos-operator/talos-operator/lab/bench"
	"github.com/talos-operator/talos-operator/lab/demo"
	"github.com/talos-operator/talos-operator/lab/node/quorum"
	"github.com/talos-operator/talos-operator/lab/stack"
)

// Options say what is run.
type Options struct {
	// Stack is the lab. It runs no operator of its own: each history has one.
	Stack stack.Options
	// Operator is the path of talos-operator.
	Operator string
	// Skewed says that it is the one of hack/skewed, whose clock can jump.
	Skewed bool
	// Seed of the first history; each further one has the next number.
	Seed uint64
	// Duration is for how long histories begin; they are lived to their end. Histories bounds their number; 0 does not.
	Duration  time.Duration
	Histories int
	// Parallel histories at once.
	Parallel int
	// Steps of a history; 0 means the usual number.
	Steps int
	// Bound is how long a cluster may take to come to rest; 0 means the usual time.
	Bound time.Duration
	// Progress is told what goes on, Metrics the numbers at the end.
	Progress io.Writer
	Metrics  func(bench.Metric) error
	// Report gets each violation.
	Report func(Report) error
}

// Report is a violation with what is needed to see it again.
type Report struct {
	Name    string   `json:"name"`
	Rule    Rule     `json:"rule"`
	Message string   `json:"message"`
	Seed    uint64   `json:"seed"`
	Steps   []string `json:"steps"`
	Told    []string `json:"told"`
}

const (
	usualSteps = 20
	// usualBound is more than the ten minutes that the operator waits for a machine whose object was deleted during its
	// reboot, which is the longest that it waits by itself, and leaves as much for an upgrade by two minors of Kubernetes
	// on a busy computer: each component of each machine is watched for five seconds.
	usualBound = 25 * time.Minute
	// maxParallel is how many histories the reserved addresses are enough for.
	maxParallel = 40
)

// ErrViolated says that a rule was violated.
var ErrViolated = errors.New("the operator broke a rule")

// run is all histories of a call of Run.
type run struct {
	opts  Options
	stack *stack.Stack

	mu         sync.Mutex
	next       int
	faults     map[string]int
	histories  int
	settled    time.Duration
	held       int
	violations int
	failed     error
}

// Run runs histories for as long as the options say.
func Run(ctx context.Context, o Options) error {
	if o.Steps == 0 {
		o.Steps = usualSteps
	}

	if o.Bound == 0 {
		o.Bound = usualBound
	}

	if o.Parallel < 1 || o.Parallel > maxParallel {
		return fmt.Errorf("%d histories at once: from 1 to %d are possible", o.Parallel, maxParallel)
	}

	o.Stack.Operator, o.Stack.Modelled = "", true
	o.Stack.NodeGrace, o.Stack.Heartbeat = nodeGrace, heartbeat

	return stack.Run(ctx, o.Stack, func(ctx context.Context, s *stack.Stack) error { return begin(ctx, o, s) })
}

// begin runs the histories in a lab.
func begin(ctx context.Context, o Options, s *stack.Stack) error {
	if err := os.MkdirAll(filepath.Join(s.Dir(), "operators"), 0o700); err != nil {
		return fmt.Errorf("making a directory for the operators: %w", err)
	}

	r := &run{opts: o, stack: s, faults: map[string]int{}}
	r.logf("seed %d, %d histories at once, %d steps each", o.Seed, o.Parallel, o.Steps)
	r.live(ctx)

	if err := errors.Join(r.failed, r.emit()); err != nil {
		return err
	}

	if r.violations > 0 {
		return fmt.Errorf("%w: %d violations", ErrViolated, r.violations)
	}

	return nil
}

// A node is NotReady soon after it becomes unreachable: histories are short.
const (
	nodeGrace = 10 * time.Second
	heartbeat = 2 * time.Second
)

// live runs histories until the time is up.
func (r *run) live(ctx context.Context) {
	limit := time.Now().Add(r.opts.Duration)

	var work sync.WaitGroup

	for slot := range r.opts.Parallel {
		work.Go(func() {
			for ctx.Err() == nil && (r.opts.Duration == 0 || time.Now().Before(limit)) {
				i, ok := r.take()
				if !ok {
					return
				}

				if err := r.one(ctx, slot, r.opts.Seed+uint64(i)); err != nil && ctx.Err() == nil {
					r.fail(err)

					return
				}
			}
		})
	}

	work.Wait()

	if ctx.Err() != nil {
		r.fail(ctx.Err())
	}
}

// take returns the number of the next history.
func (r *run) take() (int, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()

	if r.failed != nil || r.opts.Histories > 0 && r.next >= r.opts.Histories {
		return 0, false
	}

	r.next++

	return r.next - 1, true
}

func (r *run) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()

	r.failed = errors.Join(r.failed, err)
}

// one runs one history.
func (r *run) one(ctx context.Context, slot int, seed uint64) error {
	c, err := demo.NewClient(r.stack.Plane.Config())
	if err != nil {
		return err
	}

	etcd := r.stack.Lab.Registry().Etcd()
	h := &history{
		ctx: ctx, script: NewScript(seed, r.opts.Steps), stack: r.stack, client: c, opts: &r.opts, slot: slot,
		ns: fmt.Sprintf("chaos-%d", seed), oracle: NewOracle(etcd, time.Now), heals: map[int][]heal{},
		faults: map[string]int{}, surrendered: map[string]bool{},
	}

	defer etcd.Founded(func(f quorum.Founding) { h.oracle.Founded(f) })()

	log, err := os.Create(filepath.Join(r.stack.Dir(), "operators", h.ns+".txt"))
	if err != nil {
		return fmt.Errorf("writing down a history: %w", err)
	}

	defer log.Close()

	h.log = log

	got, err := h.run()
	if err != nil {
		return fmt.Errorf("history %d: %w", seed, err)
	}

	return r.count(h.script, got)
}

// count adds up what came of a history, and reports what it found.
func (r *run) count(s Script, got result) error {
	r.mu.Lock()
	defer r.mu.Unlock()

	r.histories++
	r.settled += got.Took

	for name, n := range got.Faults {
		r.faults[name] += n
	}

	end := "at rest"
	if got.Held != "" {
		r.held++

		end = "held: " + got.Held
	}

	r.logf("history %d: %d + %d machines, %s, %d violations, %.0f s", s.Seed, s.Members, s.Workers, end,
		len(got.Violations), got.Took.Seconds())

	for _, v := range got.Violations {
		r.violations++
		r.logf("history %d: %s: %s", s.Seed, v.Rule, v.Message)

		report := Report{Name: "violation", Rule: v.Rule, Message: v.Message, Seed: s.Seed, Told: got.Told}
		for _, step := range s.Steps {
			report.Steps = append(report.Steps, step.String())
		}

		if err := r.opts.Report(report); err != nil {
			return err
		}
	}

	return nil
}

// emit tells the numbers.
func (r *run) emit() error {
	total := 0
	for _, n := range r.faults {
		total += n
	}

	metrics := []bench.Metric{
		{Name: "histories", Value: float64(r.histories), Unit: "histories"},
		{Name: "faults", Value: float64(total), Unit: "faults"},
	}

	for _, name := range slices.Sorted(maps.Keys(r.faults)) {
		metrics = append(metrics, bench.Metric{Name: "faults_" + name, Value: float64(r.faults[name]), Unit: "faults"})
	}

	metrics = append(metrics,
		bench.Metric{Name: "held", Value: float64(r.held), Unit: "histories"},
		bench.Metric{Name: "violations", Value: float64(r.violations), Unit: "violations"})

	for _, m := range metrics {
		if err := r.opts.Metrics(m); err != nil {
			return err
		}
	}

	return nil
}

func (r *run) logf(format string, args ...any) {
	_, _ = fmt.Fprintf(r.opts.Progress, time.Now().Format(time.TimeOnly)+" "+format+"\n", args...)
}
