package node

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
)

// Sequences of the machine.
const (
	seqInitialize   = "initialize"
	seqInstall      = "install"
	seqBoot         = "boot"
	seqReboot       = "reboot"
	seqShutdown     = "shutdown"
	seqReset        = "reset"
	seqUpgrade      = "upgrade"
	seqStageUpgrade = "stageUpgrade"
)

// takeOver says which sequences may interrupt a running one.
var takeOver = map[string][]string{
	seqInitialize: {seqReboot, seqReset, seqUpgrade, seqStageUpgrade},
	seqInstall:    {},
	seqBoot:       {seqReboot, seqReset, seqUpgrade, seqStageUpgrade},
	seqReboot:     {seqReboot},
	seqReset:      {seqReboot},
}

// task is one task of a phase; without run it only shows in the events.
type task struct {
	name string
	run  func(context.Context) error
}

// phase is one phase of a sequence.
type phase struct {
	name  string
	tasks []task
}

// sequencer runs one sequence at a time.
type sequencer struct {
	mu      sync.Mutex
	running string
	cancel  context.CancelFunc
	done    chan struct{}
}

var errLocked = errors.New("locked")

// lock waits for the right to run a sequence: it takes over what it may, and force takes over everything.
func (q *sequencer) lock(ctx context.Context, name string, force bool) (context.Context, func(), error) {
	for {
		q.mu.Lock()

		if q.running == "" {
			ctx, cancel := context.WithCancel(ctx)
			q.running, q.cancel, q.done = name, cancel, make(chan struct{})
			q.mu.Unlock()

			return ctx, q.unlock, nil
		}

		running, done := q.running, q.done
		if !force && !mayTakeOver(name, running) {
			q.mu.Unlock()

			return nil, nil, errLocked
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

func (q *sequencer) unlock() {
	q.mu.Lock()
	defer q.mu.Unlock()

	q.cancel()
	close(q.done)
	q.running = ""
}

func mayTakeOver(name, running string) bool {
	for _, other := range takeOver[running] {
		if other == name {
			return true
		}
	}

	return false
}

// run runs a sequence with its events. ctx carries the actor.
func (s *session) run(ctx context.Context, name string, force bool, phases []phase) error {
	ctx, unlock, err := s.sequences.lock(ctx, name, force)
	if err != nil {
		if errors.Is(err, errLocked) {
			s.sequenceFailed(ctx, name, common.Code_LOCKED, "sequence not started: locked")
		}

		return err
	}

	defer unlock()

	err = s.runPhases(ctx, name, phases)

	switch {
	case err == nil:
	case ctx.Err() != nil:
		s.sequenceFailed(ctx, name, common.Code_CANCELED, "sequence failed: "+err.Error())
	default:
		s.sequenceFailed(ctx, name, common.Code_FATAL, "sequence failed: "+err.Error())
		s.setStage(runtime.MachineStageRebooting)
	}

	return err
}

func (s *session) sequenceFailed(ctx context.Context, name string, code common.Code, message string) {
	if ctx == nil {
		ctx = s.ctx
	}

	s.events.Publish(ctx, &machine.SequenceEvent{
		Sequence: name, Action: machine.SequenceEvent_NOOP, Error: &common.Error{Code: code, Message: message},
	})
}

func (s *session) runPhases(ctx context.Context, name string, phases []phase) error {
	start := time.Now()

	s.logf("%s sequence: %d phase(s)", name, len(phases))
	s.events.Publish(ctx, &machine.SequenceEvent{Sequence: name, Action: machine.SequenceEvent_START})

	if stage, ok := startStages[name]; ok {
		s.setStage(stage)
	}

	for i, p := range phases {
		if err := s.runPhase(ctx, name, p); err != nil {
			s.events.Publish(ctx, &machine.SequenceEvent{Sequence: name, Action: machine.SequenceEvent_STOP})

			return fmt.Errorf("error running phase %d in %s sequence: %w", i+1, name, err)
		}
	}

	s.events.Publish(ctx, &machine.SequenceEvent{Sequence: name, Action: machine.SequenceEvent_STOP})
	s.logf("%s sequence: done: %s", name, time.Since(start).Round(time.Millisecond))

	if name == seqBoot {
		s.setStage(runtime.MachineStageRunning)
	}

	return nil
}

// startStages are the stages that a sequence begins with.
var startStages = map[string]runtime.MachineStage{
	seqInitialize:   runtime.MachineStageBooting,
	seqBoot:         runtime.MachineStageBooting,
	seqShutdown:     runtime.MachineStageShuttingDown,
	seqUpgrade:      runtime.MachineStageUpgrading,
	seqStageUpgrade: runtime.MachineStageUpgrading,
	seqReset:        runtime.MachineStageResetting,
	seqReboot:       runtime.MachineStageRebooting,
}

// runPhase runs the tasks of a phase at the same time, as a real node does.
func (s *session) runPhase(ctx context.Context, sequence string, p phase) error {
	s.events.Publish(ctx, &machine.PhaseEvent{Phase: p.name, Action: machine.PhaseEvent_START})
	defer s.events.Publish(ctx, &machine.PhaseEvent{Phase: p.name, Action: machine.PhaseEvent_STOP})

	switch {
	case sequence == seqInstall && p.name == "install":
		s.setStage(runtime.MachineStageInstalling)
	case p.name == "kexec" && (sequence == seqInstall || sequence == seqUpgrade):
		s.setStage(runtime.MachineStageRebooting)
	}

	errs := make([]error, len(p.tasks))

	var group sync.WaitGroup

	for i, t := range p.tasks {
		if len(p.tasks) == 1 {
			errs[i] = s.runTask(ctx, t)

			break
		}

		group.Go(func() { errs[i] = s.runTask(ctx, t) })
	}

	group.Wait()

	for i, err := range errs {
		if err != nil {
			return fmt.Errorf("task %d/%d: failed, %w", i+1, len(p.tasks), err)
		}
	}

	return ctx.Err()
}

func (s *session) runTask(ctx context.Context, t task) error {
	s.events.Publish(ctx, &machine.TaskEvent{Task: t.name, Action: machine.TaskEvent_START})
	defer s.events.Publish(ctx, &machine.TaskEvent{Task: t.name, Action: machine.TaskEvent_STOP})

	if t.run == nil {
		return nil
	}

	return t.run(ctx)
}

// single makes a phase of one task.
func single(name, taskName string, run func(context.Context) error) phase {
	return phase{name: name, tasks: []task{{name: taskName, run: run}}}
}
