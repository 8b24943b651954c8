// Package child runs the operator's binary on a database in a separate process: a damaged database can crash the
// process that opens it.
package child

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"syscall"
	"time"
)

// waitDelay is how long the output of a killed process may stay open.
const waitDelay = 5 * time.Second

// Command is a hidden command of the operator's binary.
type Command struct {
	// Exe is the path of the binary.
	Exe  string
	Args []string
	// Dir is a scratch directory: its working directory, and where it stores temporary files.
	Dir string
	// Env is added to its minimal environment, which contains no credentials and no settings of the operator.
	Env []string
	// Stdout and Stderr receive its output, unless they are nil.
	Stdout, Stderr io.Writer
}

// Process is a running command.
type Process struct {
	cmd   *exec.Cmd
	alive io.Closer
}

// Start starts a command. It is killed, together with all processes that it started, when the context ends. Its
// standard input ends when the parent process does, for whatever reason: a command that watches its input does not
// outlive its parent.
func Start(ctx context.Context, c Command) (*Process, error) {
	cmd := exec.CommandContext(ctx, c.Exe, c.Args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = c.Dir, c.Stdout, c.Stderr, waitDelay
	cmd.Env = append([]string{"GOTRACEBACK=none", "TMPDIR=" + c.Dir}, c.Env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}

	p := &Process{cmd: cmd}
	cmd.Cancel = p.kill

	alive, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("preparing the input of %s: %w", c.Exe, err)
	}

	p.alive = alive

	if err := cmd.Start(); err != nil {
		_ = alive.Close()

		return nil, fmt.Errorf("starting %s: %w", c.Exe, err)
	}

	return p, nil
}

// Wait waits for the end of the process, and of the processes that it started. Its error is that of exec.Cmd.Wait.
func (p *Process) Wait() error {
	defer p.alive.Close()

	err := p.cmd.Wait()

	_ = p.kill()

	return err
}

func (p *Process) kill() error { return syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) }

// Orphaned returns a channel that is closed when the parent of a command is gone. input is the command's standard
// input.
func Orphaned(input io.Reader) <-chan struct{} {
	gone := make(chan struct{})

	go func() {
		_, _ = io.Copy(io.Discard, input)
		close(gone)
	}()

	return gone
}
