// Package process runs the lab's child processes: real etcd members and real Kubernetes API servers.
package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// reapGrace bounds how long the end of a process waits for its output pipes. A grandchild that keeps one open must
// not keep the process alive in our eyes.
const reapGrace = 2 * time.Second

// Process is one running child. It never outlives the lab: the kernel kills it when the lab dies, however it dies.
type Process struct {
	name string
	cmd  *exec.Cmd
	done chan struct{}

	mu     sync.Mutex
	err    error
	exited bool
	frozen bool
}

// Start runs the program at path. The environment is exactly env, nothing is inherited; log receives both output
// streams and may be nil.
func Start(name, path string, args, env []string, log io.Writer) (*Process, error) {
	cmd := exec.Command(path, args...)
	cmd.Env = env
	cmd.WaitDelay = reapGrace
	cmd.SysProcAttr = &syscall.SysProcAttr{
		// A group of its own: Ctrl-C in the terminal must reach the lab alone, which then stops its children in order.
		Setpgid:   true,
		Pdeathsig: syscall.SIGKILL,
	}

	if cmd.Env == nil {
		cmd.Env = []string{}
	}

	if log != nil {
		cmd.Stdout, cmd.Stderr = log, log
	}

	if err := launch(cmd); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}

	p := &Process{name: name, cmd: cmd, done: make(chan struct{})}

	go p.reap()

	return p, nil
}

// reap waits for the end of the process and publishes it.
func (p *Process) reap() {
	// Signalling and reaping must not race, or a signal could hit a stranger that got the process ID next. So the exit
	// is observed first without reaping, and the reaping happens under the lock that guards signals.
	waitExit(p.cmd.Process.Pid)

	p.mu.Lock()
	p.exited = true
	p.mu.Unlock()

	err := p.cmd.Wait()
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil
	}

	p.mu.Lock()
	p.err = err
	p.mu.Unlock()

	close(p.done)
}

// Stop asks the process to end and kills it when ctx is done first. It returns once the process is gone.
func (p *Process) Stop(ctx context.Context) error {
	if err := p.signal(syscall.SIGTERM); err != nil {
		return err
	}

	// A stopped process would leave the request pending for ever.
	if err := p.Freeze(false); err != nil {
		return err
	}

	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		p.Kill()

		return fmt.Errorf("stopping %s, killed instead: %w", p.name, ctx.Err())
	}
}

// Kill ends the process at once, as a power cut would, and returns when it is gone.
func (p *Process) Kill() {
	// The only error is that it is gone already.
	_ = p.signal(syscall.SIGKILL)

	<-p.done
}

// Freeze halts the process (it keeps its sockets and responds to nothing) or lets it continue.
func (p *Process) Freeze(frozen bool) error {
	sig := syscall.SIGCONT
	if frozen {
		sig = syscall.SIGSTOP
	}

	if err := p.signal(sig); err != nil {
		return err
	}

	if frozen {
		// The signal stops the threads one by one, and until the last one stands, the process still responds.
		waitStopped(p.cmd.Process.Pid)
	}

	p.mu.Lock()
	p.frozen = frozen
	p.mu.Unlock()

	return nil
}

// Frozen says whether the process is halted by Freeze.
func (p *Process) Frozen() bool {
	p.mu.Lock()
	defer p.mu.Unlock()

	return p.frozen && !p.exited
}

// signal sends sig to the process and its group. A process that is gone needs no signal.
func (p *Process) signal(sig syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()

	if p.exited {
		return nil
	}

	if err := syscall.Kill(-p.cmd.Process.Pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("sending %s to %s: %w", sig, p.name, err)
	}

	return nil
}

// Done is closed when the process is gone.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err says how the process ended: nil while it runs and after a clean exit.
func (p *Process) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()

	if p.err == nil {
		return nil
	}

	return fmt.Errorf("%s ended: %w", p.name, p.err)
}

// PID is the ID of the process, also after its end.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Node is the environment of the processes of an emulated machine: one processor each, because a lab has many of
// them, and what they would do side by side costs more in waking up than it saves.
func Node() []string { return append(BaseEnv(), LazyGC(), "GOMAXPROCS=1") }

// LazyGC has etcd and kube-apiserver collect garbage half as often, for a third more memory: a lab has many of
// them. The lab's own GOGC takes its place.
func LazyGC() string {
	if v := os.Getenv("GOGC"); v != "" {
		return "GOGC=" + v
	}

	return "GOGC=200"
}

// BaseEnv is the part of the lab's own environment that a child needs. Everything else stays out: variables such as
// ETCD_NAME or HTTPS_PROXY in the terminal of a user must not change what a node does.
func BaseEnv() []string {
	var env []string

	for _, key := range []string{"PATH", "HOME", "TMPDIR", "TZ", "GOCOVERDIR", "LAB_KUBERNETES_OPENAPI"} {
		if v, ok := os.LookupEnv(key); ok {
			env = append(env, key+"="+v)
		}
	}

	return env
}
