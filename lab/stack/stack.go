// Package stack puts a whole lab together: the management plane, the machines, the machine provider, the operator as a
// process of its own under its own roles, and the control socket.
package stack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/talos-operator/talos-operator/lab"
	"github.com/talos-operator/talos-operator/lab/control"
	"github.com/talos-operator/talos-operator/lab/management"
	"github.com/talos-operator/talos-operator/lab/node/pace"
	"github.com/talos-operator/talos-operator/lab/process"
	"github.com/talos-operator/talos-operator/lab/provider"
	"github.com/talos-operator/talos-operator/lab/s3"
)

const (
	// managementNumber, replicaNumber and endpointNumber are last numbers of reserved addresses of the lab's subnet: the
	// management plane, the second replica of the operator, and the endpoint of the quickstart's cluster.
	managementNumber = 1
	replicaNumber    = 3
	endpointNumber   = 100
)

// Options describe a lab.
type Options struct {
	// Dir keeps everything; a lab started again with the same directory carries on.
	Dir string
	// Assets is the folder with etcd, etcdutl and kube-apiserver; found by itself when empty.
	Assets string
	// Operator is the path of talos-operator; empty runs no operator.
	Operator string
	// OperatorArgs and OperatorEnv come after what the lab gives the operator itself.
	OperatorArgs, OperatorEnv []string
	// Shards gives the operator the rights that it needs to share the clusters with others.
	Shards bool
	// Subnet, Scale, Times, Seed, Modelled, NodeGrace and Heartbeat are as in lab.Options.
	Subnet               string
	Scale                float64
	Times                pace.Times
	Seed                 uint64
	Modelled             bool
	NodeGrace, Heartbeat time.Duration
	// Logger receives what the machine provider has to say; nothing when empty.
	Logger logr.Logger
	// Log receives what machines and the management plane print; each has a file of its own when nil.
	Log io.Writer
	// Store runs an S3 server for backups too.
	Store bool
}

// Stack is a running lab.
type Stack struct {
	opts    Options
	replica *Manager
	lock    *control.Lock
	control *control.Server
	ready   atomic.Bool
	downs   chan struct{}
	down    sync.Once

	stopping sync.Once

	cancel   context.CancelFunc
	provider chan error

	storeOutput *os.File // the log of the S3 server, when it is ours

	// Plane is the management plane, Lab the fleet, Manager the operator's process and Store the S3 server; the last two
	// are nil when there is none.
	Plane   *management.Plane
	Lab     *lab.Lab
	Manager *Manager
	Store   *s3.Server
}

// Start starts a lab and returns once everything runs. What ctx ends is the start, not the lab.
func Start(ctx context.Context, o Options) (*Stack, error) {
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("finding the lab's directory: %w", err)
	}

	o.Dir = dir

	if o.Assets == "" {
		if o.Assets, err = process.Assets(); err != nil {
			return nil, err
		}
	}

	lock, err := control.Acquire(dir)
	if err != nil {
		return nil, err
	}

	s := &Stack{opts: o, lock: lock, downs: make(chan struct{}), provider: make(chan error, 1)}

	if err := s.start(ctx); err != nil {
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), StopTimeout)
		defer cancel()

		return nil, errors.Join(err, s.Stop(stopping))
	}

	return s, nil
}

// StopTimeout is a reasonable time for a lab to stop.
const StopTimeout = 45 * time.Second

func (s *Stack) start(ctx context.Context) error {
	subnet, err := settle(s.opts.Dir, s.opts.Subnet)
	if err != nil {
		return err
	}

	address := lab.Reserved(subnet, managementNumber).String()

	s.Plane, err = management.Start(ctx, management.Options{
		Dir: filepath.Join(s.opts.Dir, "management"), Assets: s.opts.Assets, Address: address, Log: s.opts.Log,
	})
	if err != nil {
		return err
	}

	if err := keep(s.opts.Dir, subnet); err != nil {
		return err
	}

	if s.opts.Shards {
		if err := s.Plane.InstallShards(ctx, ""); err != nil {
			return err
		}
	}

	if err := management.WriteKubeconfig(s.Kubeconfig(), s.Plane.Config(), "default"); err != nil {
		return err
	}

	s.Lab, err = lab.New(lab.Options{
		Dir: s.opts.Dir, Assets: s.opts.Assets, Subnet: subnet.String(), Scale: s.opts.Scale,
		Times: s.opts.Times, Seed: s.opts.Seed, Modelled: s.opts.Modelled,
		NodeGrace: s.opts.NodeGrace, Heartbeat: s.opts.Heartbeat, Log: s.opts.Log,
	})
	if err != nil {
		return err
	}

	if err := s.startProvider(ctx); err != nil {
		return err
	}

	if err := s.startStore(ctx); err != nil {
		return err
	}

	if s.control, err = control.Serve(s.opts.Dir, s.Lab, s.info, s.requestDown); err != nil {
		return err
	}

	if err := s.startManager(ctx); err != nil {
		return err
	}

	s.ready.Store(true)

	return nil
}

// startProvider runs the machine provider in this process: it is the one that has the machines.
func (s *Stack) startProvider(ctx context.Context) error {
	for _, obj := range []any{provider.Role(), provider.RoleBinding()} {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
		if err != nil {
			return fmt.Errorf("encoding the role of the provider: %w", err)
		}

		if err := s.Plane.ApplyObject(ctx, &unstructured.Unstructured{Object: content}); err != nil {
			return err
		}
	}

	cfg, err := s.Plane.User(provider.User)
	if err != nil {
		return err
	}

	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s.cancel = cancel

	go func() { s.provider <- provider.Run(running, cfg, s.Lab, s.opts.Logger) }()

	return nil
}

func (s *Stack) startManager(ctx context.Context) error {
	if s.opts.Operator == "" {
		return nil
	}

	cfg, err := s.Plane.ManagerConfig()
	if err != nil {
		return err
	}

	if err := management.WriteKubeconfig(s.managerKubeconfig(), cfg, management.ManagerNamespace); err != nil {
		return err
	}

	s.Manager, err = s.runManager(s.Plane.Address(), s.ManagerLog())
	if err != nil {
		return err
	}

	return s.Manager.Await(ctx)
}

func (s *Stack) runManager(address, log string) (*Manager, error) {
	return StartManager(ManagerOptions{
		Binary: s.opts.Operator, Kubeconfig: s.managerKubeconfig(), Address: address,
		Results: filepath.Join(s.opts.Dir, "results"), Log: log, Args: s.opts.OperatorArgs, Env: s.opts.OperatorEnv,
	})
}

// StartReplica starts a second replica of the operator, which does not lead as long as the first one does. It ends with
// the lab, and is ready when Manager.IsReady says so.
func (s *Stack) StartReplica() (*Manager, error) {
	var err error

	s.replica, err = s.runManager(s.Lab.Reserved(replicaNumber).String(), filepath.Join(s.opts.Dir, "replica.log"))

	return s.replica, err
}

func (s *Stack) managerKubeconfig() string { return filepath.Join(s.opts.Dir, "manager.kubeconfig") }

// Kubeconfig is the path of the admin's kubeconfig of the management plane.
func (s *Stack) Kubeconfig() string { return filepath.Join(s.opts.Dir, "kubeconfig") }

// ManagerLog is the path of the operator's log.
func (s *Stack) ManagerLog() string { return filepath.Join(s.opts.Dir, "manager.log") }

// Dir is the lab's directory.
func (s *Stack) Dir() string { return s.opts.Dir }

// Endpoint is a URL for the Kubernetes API of a cluster in the lab, at an address that the lab's load balancer serves.
func (s *Stack) Endpoint() string { return Endpoint(s.Lab.Subnet()) }

// Endpoint is the URL that the quickstart uses, in a subnet.
func Endpoint(subnet netip.Prefix) string {
	return fmt.Sprintf("https://%s:6443", lab.Reserved(subnet, endpointNumber))
}

// Down is closed when the lab was asked to stop over its socket.
func (s *Stack) Down() <-chan struct{} { return s.downs }

func (s *Stack) requestDown() { s.down.Do(func() { close(s.downs) }) }

func (s *Stack) info() control.Info {
	info := control.Info{
		Dir: s.opts.Dir, PID: os.Getpid(), Subnet: s.Lab.Subnet().String(), Kubeconfig: s.Kubeconfig(),
		Server: s.Plane.Host(), Store: s.StoreEndpoint(), Ready: s.ready.Load(),
	}

	// Set before the lab is ready, and never again.
	if info.Ready && s.Manager != nil {
		info.Manager = s.Manager.info()
	}

	return info
}

// Stop stops everything in order: the operator, the provider, the machines, the management plane. What ctx cuts short
// is killed. Stopping again does nothing.
func (s *Stack) Stop(ctx context.Context) error {
	var err error

	s.stopping.Do(func() { err = s.stop(ctx) })

	return err
}

func (s *Stack) stop(ctx context.Context) error {
	var errs []error

	for _, m := range []*Manager{s.replica, s.Manager} {
		if m != nil {
			errs = append(errs, m.Stop(ctx))
		}
	}

	if s.cancel != nil {
		s.cancel()

		select {
		case err := <-s.provider:
			errs = append(errs, err)
		case <-ctx.Done():
		}
	}

	if s.control != nil {
		errs = append(errs, s.control.Close(ctx))
	}

	if s.Lab != nil {
		errs = append(errs, s.Lab.Close(ctx))
	}

	if s.Plane != nil {
		errs = append(errs, s.Plane.Stop(ctx))
	}

	errs = append(errs, s.stopStore())

	s.lock.Release()

	return errors.Join(errs...)
}
