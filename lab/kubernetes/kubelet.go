package kubernetes

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config/config"
	clientset "k8s.io/client-go/kubernetes"
)

const (
	defaultHeartbeat = 10 * time.Second
	// registerRetry is the pause after a failure: API servers come up while nodes wait for them.
	registerRetry = 500 * time.Millisecond
	// syncTimeout bounds one pass against an API server that may be frozen.
	syncTimeout = 10 * time.Second
	// silence is how many missed heartbeats make a node call itself not ready: what the cluster thinks of it by then.
	silence = 4
)

// KubeletOptions describe the kubelet of one node.
type KubeletOptions struct {
	// NodeName and Address are the name and IP that the node registers with.
	NodeName, Address string
	// Version is the kubelet's version for a config without a kubelet image; TalosVersion goes into the OS image.
	Version, TalosVersion string
	// Config is the machine config: labels, taints, annotations, images.
	Config config.Config
	// ControlPlane adds the role label, the taint and the static pods.
	ControlPlane bool
	// BootID, MachineUUID identify the machine and its present boot.
	BootID, MachineUUID string
	// CPUs and MemoryMiB are the node's capacity; 2 and 2048 when zero.
	CPUs, MemoryMiB int
	// Client returns a client of some live API server of the cluster.
	Client func() (clientset.Interface, error)
	// Run says why a static pod does not run from an image; nil means that each does.
	Run func(image string) error
	// APIServerReady says whether the node's own API server is ready; nil means it is. Control planes only.
	APIServerReady func(context.Context) error
	// Heartbeat is the pause between two renewals of the lease; 10 s when zero.
	Heartbeat time.Duration
	// Log receives a line for each new failure; it may be nil.
	Log io.Writer
	// OnReady is called when the Node object has become Ready, and when it could not be kept so for as long as it
	// takes the cluster to notice; it may be nil.
	OnReady func(bool)
}

// Kubelet keeps one Node object alive.
type Kubelet struct {
	opts   KubeletOptions
	wake   chan struct{}
	done   chan struct{}
	cancel context.CancelFunc

	mu  sync.Mutex
	cfg config.Config

	// Only the goroutine of run touches what follows.
	reported  bool
	ready     bool
	lastError string
}

// StartKubelet registers the node and keeps it Ready until Stop or the end of ctx.
func StartKubelet(ctx context.Context, o KubeletOptions) *Kubelet {
	ctx, cancel := context.WithCancel(ctx)
	k := &Kubelet{
		opts: o, cfg: o.Config, cancel: cancel,
		wake: make(chan struct{}, 1), done: make(chan struct{}),
	}

	go func() {
		defer close(k.done)

		k.run(ctx)
	}()

	return k
}

// SetConfig applies a changed machine config: labels, taints, annotations, versions of images.
func (k *Kubelet) SetConfig(cfg config.Config) {
	k.mu.Lock()
	k.cfg = cfg
	k.mu.Unlock()

	k.Wake()
}

// Wake asks for a pass now, because something that the Node object or the static pods show has changed.
func (k *Kubelet) Wake() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// Stop ends the heartbeats. The Node object stays and goes stale, as on a real cluster.
func (k *Kubelet) Stop() {
	k.cancel()
	<-k.done
}

func (k *Kubelet) config() config.Config {
	k.mu.Lock()
	defer k.mu.Unlock()

	return k.cfg
}

func (k *Kubelet) heartbeat() time.Duration {
	if k.opts.Heartbeat > 0 {
		return k.opts.Heartbeat
	}

	return defaultHeartbeat
}

// run repeats the pass until ctx ends.
func (k *Kubelet) run(ctx context.Context) {
	last := time.Now()

	for {
		// A pass that is due again at once is one that the static pods wait for.
		settled, err := k.sync(ctx)
		if ctx.Err() != nil {
			return
		}

		wait := k.heartbeat()

		switch {
		case err != nil:
			wait = min(wait, registerRetry+rand.N(registerRetry/2))
		case !settled:
			last, wait = time.Now(), min(wait, registerRetry)
		default:
			last = time.Now()
		}

		k.report(err, time.Since(last))

		timer := time.NewTimer(wait)

		select {
		case <-ctx.Done():
			timer.Stop()

			return
		case <-timer.C:
		case <-k.wake:
			timer.Stop()
		}
	}
}

// report tells the node what became of its Node object.
func (k *Kubelet) report(err error, silent time.Duration) {
	if err != nil {
		if text := err.Error(); text != k.lastError && k.opts.Log != nil {
			k.lastError = text
			// A log that cannot be written has no place to say so.
			_, _ = fmt.Fprintln(k.opts.Log, text)
		}

		if k.reported && (!k.ready || silent < silence*k.heartbeat()) {
			return
		}
	} else {
		k.lastError = ""
	}

	if ready := err == nil; !k.reported || k.ready != ready {
		k.reported, k.ready = true, ready

		if k.opts.OnReady != nil {
			k.opts.OnReady(ready)
		}
	}
}

// sync is one pass: the Node object, its lease, its pods. It is not settled while static pods wait for the
// API server.
func (k *Kubelet) sync(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()

	client, err := k.opts.Client()
	if err != nil {
		return false, fmt.Errorf("reaching the API server: %w", err)
	}

	cfg := k.config()

	node, err := k.syncNode(ctx, client, cfg)
	if err != nil {
		return false, err
	}

	if err := k.renewLease(ctx, client, node); err != nil {
		return false, err
	}

	if err := k.runPods(ctx, client); err != nil {
		return false, err
	}

	if !k.opts.ControlPlane {
		return true, nil
	}

	ready := k.opts.APIServerReady == nil || k.opts.APIServerReady(ctx) == nil

	return ready, k.syncPods(ctx, pass{client: client, cfg: cfg, node: node, ready: ready})
}
