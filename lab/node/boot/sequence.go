// Package boot runs the sequences of an emulated machine: phases of tasks, with the events of a real node.
package boot

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"

	"github.com/talos-operator/talos-operator/lab/node/event"
)

// Sequences of the machine.
const (
	Initialize   = "initialize"
	Install      = "install"
	Boot         = "boot"
	Reboot       = "reboot"
	Shutdown     = "shutdown"
	Reset        = "reset"
	Upgrade      = "upgrade"
	StageUpgrade = "stageUpgrade"
)

// takeOver says which sequences may interrupt a running one.
var takeOver = map[string][]string{
	Initialize: {Reboot, Reset, Upgrade, StageUpgrade},
	Install:    {},
	Boot:       {Reboot, Reset, Upgrade, StageUpgrade},
	Reboot:     {Reboot},
	Reset:      {Reboot},
}

// Task is one task of a phase; without Run it only shows in the events.
type Task struct {
	Name string
	Run  func(context.Context) error
}

// Phase is one phase of a sequence.
type Phase struct {
	Name  string
	Tasks []Task
}

// Sequencer runs one sequence at a time.
type Sequencer struct {
	events   *event.Log
	setStage func(runtime.MachineStage)
	logf     func(string, ...any)

	mu      sync.Mutex
	running string
	cancel  context.CancelFunc
	done    chan struct{}
}

// NewSequencer returns a sequencer that publishes events, sets the stage of the machine, and logs.
func NewSequencer(
	events *event.Log, setStage func(runtime.MachineStage), logf func(string, ...any),
) *Sequencer {
	return &Sequencer{events: events, setStage: setStage, logf: logf}
}

// ErrLocked says that a sequence may not interrupt the one that runs.
var ErrLocked = errors.New("locked")

// lock waits for the right to run a sequence: it takes over what it may, and force takes over everything.
func (q *Sequencer) lock(ctx context.Context, name string, force bool) (context.Context, func(), error) {
	for {
		q.mu.Lock()

		if q.running == "" {
			ctx, cancel := context.WithCancel(ctx)
			q.running, q.cancel, q.done = name, cancel, make(chan struct{})
			q.mu.Unlock()

			return ctx, q.unlock, nil
		}

		running, done := q.running, q.done
		if !force && !slices.Contains(takeOver[running], name) {
			q.mu.Unlock()

			return nil, nil, ErrLocked
		}

		q.cancel()
		q.mu.Unlock()

		select {
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		case <-done:
		}
	}
}

func (q *Sequencer) unlock() {
	q.mu.Lock()
	defer q.mu.Unlock()

	q.cancel()
	close(q.done)
	q.running = ""
}

// Busy reports whether a sequence runs.
func (q *Sequencer) Busy() bool {
	q.mu.Lock()
	defer q.mu.Unlock()

	return q.running != ""
}

// Run runs a sequence with its events. ctx carries the actor.
func (q *Sequencer) Run(ctx context.Context, name string, force bool, phases []Phase) error {
	ctx, unlock, err := q.lock(ctx, name, force)
	if err != nil {
		if errors.Is(err, ErrLocked) {
			q.failed(context.Background(), name, common.Code_LOCKED, "sequence not started: locked")
		}

		return err
	}

	defer unlock()

	err = q.runPhases(ctx, name, phases)

	switch {
	case err == nil:
	case ctx.Err() != nil:
		q.failed(ctx, name, common.Code_CANCELED, "sequence failed: "+err.Error())
	default:
		q.failed(ctx, name, common.Code_FATAL, "sequence failed: "+err.Error())
		q.setStage(runtime.MachineStageRebooting)
	}

	return err
}

func (q *Sequencer) failed(ctx context.Context, name string, code common.Code, message string) {
	q.events.Publish(ctx, &machine.SequenceEvent{
		Sequence: name, Action: machine.SequenceEvent_NOOP, Error: &common.Error{Code: code, Message: message},
	})
}

func (q *Sequencer) runPhases(ctx context.Context, name string, phases []Phase) error {
	start := time.Now()

	q.logf("%s sequence: %d phase(s)", name, len(phases))
	q.events.Publish(ctx, &machine.SequenceEvent{Sequence: name, Action: machine.SequenceEvent_START})

	if stage, ok := startStages[name]; ok {
		q.setStage(stage)
	}

	for i, p := range phases {
		if err := q.runPhase(ctx, name, p); err != nil {
			q.events.Publish(ctx, &machine.SequenceEvent{Sequence: name, Action: machine.SequenceEvent_STOP})

			return fmt.Errorf("error running phase %d in %s sequence: %w", i+1, name, err)
		}
	}

	q.events.Publish(ctx, &machine.SequenceEvent{Sequence: name, Action: machine.SequenceEvent_STOP})
	q.logf("%s sequence: done: %s", name, time.Since(start).Round(time.Millisecond))

	if name == Boot {
		q.setStage(runtime.MachineStageRunning)
	}

	return nil
}

// startStages are the stages that a sequence begins with.
var startStages = map[string]runtime.MachineStage{
	Initialize:   runtime.MachineStageBooting,
	Boot:         runtime.MachineStageBooting,
	Shutdown:     runtime.MachineStageShuttingDown,
	Upgrade:      runtime.MachineStageUpgrading,
	StageUpgrade: runtime.MachineStageUpgrading,
	Reset:        runtime.MachineStageResetting,
	Reboot:       runtime.MachineStageRebooting,
}

// runPhase runs the tasks of a phase at the same time, as a real node does.
func (q *Sequencer) runPhase(ctx context.Context, sequence string, p Phase) error {
	q.events.Publish(ctx, &machine.PhaseEvent{Phase: p.Name, Action: machine.PhaseEvent_START})
	defer q.events.Publish(ctx, &machine.PhaseEvent{Phase: p.Name, Action: machine.PhaseEvent_STOP})

	switch {
	case sequence == Install && p.Name == "install":
		q.setStage(runtime.MachineStageInstalling)
	case p.Name == "kexec" && (sequence == Install || sequence == Upgrade):
		q.setStage(runtime.MachineStageRebooting)
	}

	errs := make([]error, len(p.Tasks))

	var group sync.WaitGroup

	for i, t := range p.Tasks {
		if len(p.Tasks) == 1 {
			errs[i] = q.runTask(ctx, t)

			break
		}

		group.Go(func() { errs[i] = q.runTask(ctx, t) })
	}

	group.Wait()

	for i, err := range errs {
		if err != nil {
			return fmt.Errorf("task %d/%d: failed, %w", i+1, len(p.Tasks), err)
		}
	}

	return ctx.Err()
}

func (q *Sequencer) runTask(ctx context.Context, t Task) error {
	q.events.Publish(ctx, &machine.TaskEvent{Task: t.Name, Action: machine.TaskEvent_START})
	defer q.events.Publish(ctx, &machine.TaskEvent{Task: t.Name, Action: machine.TaskEvent_STOP})

	if t.Run == nil {
		return nil
	}

	return t.Run(ctx)
}

// Single makes a phase of one task.
func Single(name, taskName string, run func(context.Context) error) Phase {
	return Phase{Name: name, Tasks: []Task{{Name: taskName, Run: run}}}
}
