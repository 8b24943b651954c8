package stack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/talos-operator/talos-operator/lab/control"
	"github.com/talos-operator/talos-operator/lab/management"
	"github.com/talos-operator/talos-operator/lab/process"
)

const (
	metricsPort = 8080
	healthPort  = 8081

	// readyTimeout bounds the start of the operator.
	readyTimeout = 5 * time.Minute
	readyPoll    = 50 * time.Millisecond
	// shortLife is a life after which the operator is not restarted at once: something is wrong with it.
	shortLife    = 5 * time.Second
	restartPause = time.Second
	samplePause  = 250 * time.Millisecond
)

// ManagerOptions describe the operator's process.
type ManagerOptions struct {
	// Binary is the path of talos-operator.
	Binary string
	// Kubeconfig is its access to the management plane.
	Kubeconfig string
	// Address is a loopback address for its metrics (port 8080) and its health probes (port 8081).
	Address string
	// Results is where it writes machine manifests.
	Results string
	// Log is the file that it logs to, appending.
	Log string
	// Args and Env come after what the lab gives it.
	Args, Env []string
}

// Manager runs the operator, and runs it again when it dies.
type Manager struct {
	opts ManagerOptions
	log  *os.File
	stop chan struct{} // closed by Stop
	done chan struct{} // closed when nothing runs any more

	mu       sync.Mutex // guards the fields below
	proc     *process.Process
	restarts int
	peak     int64
	stopped  bool
}

// StartManager starts the operator.
func StartManager(o ManagerOptions) (*Manager, error) {
	log, err := os.OpenFile(o.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the log of the operator: %w", err)
	}

	m := &Manager{
		opts: o, log: log, stop: make(chan struct{}), done: make(chan struct{}),
	}

	proc, err := m.launch()
	if err != nil {
		_ = log.Close()

		return nil, err
	}

	m.proc = proc

	go m.supervise(proc)

	return m, nil
}

func (m *Manager) launch() (*process.Process, error) {
	args := append([]string{"manager", "--leader-election-namespace=" + management.ManagerNamespace}, m.opts.Args...)
	env := append(process.BaseEnv(),
		"KUBECONFIG="+m.opts.Kubeconfig,
		"RECONCILE_INTERVAL=30s",
		fmt.Sprintf("METRICS_BIND_ADDRESS=%s:%d", m.opts.Address, metricsPort),
		"METRICS_SECURE=false",
		fmt.Sprintf("HEALTH_PROBE_BIND_ADDRESS=%s:%d", m.opts.Address, healthPort),
		"RESULTS_PATH="+m.opts.Results,
		// The bucket of the lab is at a loopback address, as everything of it.
		"ALLOWED_ENDPOINTS=*,127.0.0.0/8",
	)

	return process.Start("talos-operator", m.opts.Binary, args, append(env, m.opts.Env...), m.log)
}

// supervise restarts the operator whenever it ends, until Stop.
func (m *Manager) supervise(proc *process.Process) {
	defer close(m.done)

	for proc != nil {
		born := time.Now()

		m.follow(proc)

		if !m.pause(time.Since(born)) {
			return
		}

		proc = m.relaunch()
	}
}

// follow watches a process until it ends.
func (m *Manager) follow(proc *process.Process) {
	tick := time.NewTicker(samplePause)
	defer tick.Stop()

	for {
		m.sample(proc.PID())

		select {
		case <-proc.Done():
			return
		case <-tick.C:
		}
	}
}

// pause waits before a restart, and reports whether there is to be one.
func (m *Manager) pause(lived time.Duration) bool {
	wait := time.Duration(0)
	if lived < shortLife {
		wait = restartPause
	}

	timer := time.NewTimer(wait)
	defer timer.Stop()

	select {
	case <-m.stop:
		return false
	case <-timer.C:
		return true
	}
}

// relaunch starts the operator again. That fails when its binary is being built anew: the next attempt succeeds.
func (m *Manager) relaunch() *process.Process {
	for {
		m.mu.Lock()

		if m.stopped {
			m.mu.Unlock()

			return nil
		}

		proc, err := m.launch()
		if err == nil {
			m.proc = proc
			m.restarts++
		}

		m.mu.Unlock()

		if err == nil {
			return proc
		}

		_, _ = fmt.Fprintln(m.log, err)

		if !m.pause(0) {
			return nil
		}
	}
}

// Stop ends the operator in order; what ctx cuts short is killed.
func (m *Manager) Stop(ctx context.Context) error {
	m.mu.Lock()
	proc := m.proc

	if !m.stopped {
		m.stopped = true
		close(m.stop)
	}

	m.mu.Unlock()

	err := proc.Stop(ctx)

	<-m.done
	_ = m.log.Close()

	return err
}

// Kill kills the operator with SIGKILL; it is started again.
func (m *Manager) Kill() {
	m.mu.Lock()
	proc := m.proc
	m.mu.Unlock()

	proc.Kill()
}

// Restart ends the operator in order, as a rollout does; it is started again.
func (m *Manager) Restart(ctx context.Context) error {
	m.mu.Lock()
	proc := m.proc
	m.mu.Unlock()

	return proc.Stop(ctx)
}

// CPU is the processor time that the operator process of now has used.
func (m *Manager) CPU() (time.Duration, error) { return process.CPU(m.PID()) }

// PID is the process that runs now.
func (m *Manager) PID() int {
	m.mu.Lock()
	defer m.mu.Unlock()

	return m.proc.PID()
}

// Restarts is how often the operator was started again.
func (m *Manager) Restarts() int {
	m.mu.Lock()
	defer m.mu.Unlock()

	return m.restarts
}

// RSSPeak is the most memory in bytes that an operator process has used.
func (m *Manager) RSSPeak() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()

	return m.peak
}

// Metrics is the URL of the operator's metrics.
func (m *Manager) Metrics() string {
	return fmt.Sprintf("http://%s:%d/metrics", m.opts.Address, metricsPort)
}

// Health is the URL of the operator's readiness.
func (m *Manager) Health() string {
	return fmt.Sprintf("http://%s:%d/readyz", m.opts.Address, healthPort)
}

func (m *Manager) info() control.ManagerInfo {
	return control.ManagerInfo{
		PID: m.PID(), Restarts: m.Restarts(), Metrics: m.Metrics(), Health: m.Health(), Log: m.opts.Log,
		RSSPeakBytes: m.RSSPeak(),
	}
}

// sample keeps the high-water mark of the memory of a process; the kernel forgets it with the process.
func (m *Manager) sample(pid int) {
	peak, err := process.RSSPeak(pid)
	if err != nil {
		return // it has just ended
	}

	m.mu.Lock()
	defer m.mu.Unlock()

	m.peak = max(m.peak, peak)
}

var errNotReady = errors.New("the operator does not become ready; its log says why")

// Await waits until the operator is ready and leads.
func (m *Manager) Await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()

	if wait.PollUntilContextCancel(ctx, readyPoll, true, func(ctx context.Context) (bool, error) {
		return m.IsReady(ctx) && m.Leads(ctx), nil
	}) != nil {
		return fmt.Errorf("%w: %s", errNotReady, m.opts.Log)
	}

	return nil
}

// IsReady reports whether the operator is ready: a standby is, too.
func (m *Manager) IsReady(ctx context.Context) bool {
	_, ok := get(ctx, m.Health())

	return ok
}

// Leads reports whether the operator holds its lease: one that died has to be waited for. An operator that runs without
// election has no such metric, or none that is about it.
func (m *Manager) Leads(ctx context.Context) bool {
	if slices.Contains(m.opts.Args, "--leader-elect=false") {
		return true
	}

	metrics, ok := get(ctx, m.Metrics())

	return ok && leading.Match(metrics)
}

var leading = regexp.MustCompile(`(?m)^leader_election_master_status\{.*\} 1$`)

// get returns what a URL returns, if it succeeds.
func get(ctx context.Context, url string) ([]byte, bool) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()

	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, false
	}

	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, false
	}

	defer res.Body.Close()

	body, err := io.ReadAll(res.Body)

	return body, err == nil && res.StatusCode == http.StatusOK
}
