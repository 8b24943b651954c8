// Package etcd runs real etcd members the way a Talos control-plane node does: TLS in both directions from the
// cluster's own etcd CA, joining as a learner that is promoted later, leaving, and recovery from a snapshot.
package etcd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/siderolabs/crypto/x509"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/talos-operator/talos-operator/lab/process"
)

const (
	clientPort = "2379"
	peerPort   = "2380"
	// httpPort is none that machine configs give to etcd for its metrics, which is usually 2381.
	httpPort = "2382"

	// defaultRetry is how often joining and promotion are tried. A real node waits 3 s and 15 s.
	defaultRetry = 500 * time.Millisecond
	// attemptTimeout bounds one try against peers that may be frozen or partitioned.
	attemptTimeout = 5 * time.Second
	// healthTimeout is how long a member may take to answer a health check.
	healthTimeout = 15 * time.Second
	// leaveTimeout is how long leaving is retried while the cluster calls itself unhealthy, as on a real node.
	leaveTimeout = 5 * time.Minute
	// stopGrace is how long a member may take to end; without clients it needs a fraction of it.
	stopGrace = 2 * time.Second
)

// Options describe the etcd member of one node.
type Options struct {
	// Binary and Utl are the paths to etcd and etcdutl.
	Binary, Utl string
	// Dir is the data directory, /var/lib/etcd of the node.
	Dir string
	// PKI is where certificates are written at each start; Dir with the suffix "-pki" when empty. A real node keeps
	// them in memory, so nothing there is state.
	PKI string
	// Name is the host name, Address the node's IP.
	Name, Address string
	// CA issues every certificate of the etcd cluster.
	CA *x509.PEMEncodedCertificateAndKey
	// Log receives what etcd prints; it may be nil.
	Log io.Writer
	// ExtraArgs are flags of the machine config. Flags that decide identity, addresses and TLS are not overridden.
	ExtraArgs map[string]string
	// Peers returns the addresses of the other control-plane nodes as they are known now; it may be nil.
	Peers func() []string
	// Retry is the pause between two tries to join, to be promoted or to leave; 500 ms when zero.
	Retry time.Duration
}

// Member is one running etcd member.
type Member struct {
	opts   Options
	proc   *process.Process
	client *clientv3.Client
	stop   context.CancelFunc
	work   sync.WaitGroup
}

// HasData says whether an etcd data directory holds anything: what a node checks before it accepts a bootstrap.
// An unreadable directory counts as one with data, because the answer no permits a second cluster.
func HasData(dir string) bool {
	entries, err := os.ReadDir(dir)
	if os.IsNotExist(err) {
		return false
	}

	return err != nil || len(entries) > 0
}

// Bootstrap starts the first member of a new cluster. It refuses a directory with data. It returns once the process
// runs; Health tells when it serves.
func Bootstrap(_ context.Context, o Options) (*Member, error) {
	if HasData(o.Dir) {
		return nil, ErrNotEmpty
	}

	return o.start(nil, "--initial-cluster-state=new", "--initial-cluster="+o.Name+"="+o.peerURL())
}

// Resume starts a member from the data it has. It never founds a cluster: without usable data the process ends by
// itself.
func Resume(_ context.Context, o Options) (*Member, error) {
	if !HasData(o.Dir) {
		return nil, ErrEmpty
	}

	// A node that lost power while it was a learner is still one.
	return o.start(o.knownPeers, "--initial-cluster-state=existing", "--initial-cluster="+o.Name+"="+o.peerURL())
}

// start runs the process with the flags of a Talos node and those of its way into the cluster. With promoters it
// lets them promote the member, if it is a learner.
func (o Options) start(promoters func() []string, way ...string) (*Member, error) {
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("creating the etcd data directory: %w", err)
	}

	if err := o.writePKI(); err != nil {
		return nil, err
	}

	client, err := Dial(o.CA, []string{o.Address})
	if err != nil {
		return nil, err
	}

	args := append(o.flags(), way...)

	proc, err := process.Start("etcd "+o.Name, o.Binary, args, process.Node(), o.Log)
	if err != nil {
		_ = client.Close()

		return nil, err
	}

	ctx, stop := context.WithCancel(context.Background())
	m := &Member{opts: o, proc: proc, client: client, stop: stop}

	m.work.Go(func() {
		defer stop()

		select {
		case <-proc.Done():
		case <-ctx.Done():
		}
	})

	if promoters != nil {
		m.work.Go(func() { m.promoteUntilVoter(ctx, promoters) })
	}

	m.work.Go(func() { m.advertise(ctx) })

	return m, nil
}

// Client talks to this member alone, over mutual TLS. Stop, Kill and Leave close it; a member that died by itself
// still needs one of them.
func (m *Member) Client() *clientv3.Client { return m.client }

// PID is the process ID of the member.
func (m *Member) PID() int { return m.proc.PID() }

// Health is nil when the member takes part in a cluster with a leader. A learner answers
// "etcdserver: rpc not supported for learner", as on a real node.
func (m *Member) Health(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()

	_, err := m.client.Get(ctx, "health")

	return err
}

// Status is the member's own view of itself; it works on a learner and without a leader.
func (m *Member) Status(ctx context.Context) (*clientv3.StatusResponse, error) {
	resp, err := m.client.Status(ctx, m.opts.clientURL())
	if err != nil {
		return nil, fmt.Errorf("reading the etcd status of %s: %w", m.opts.Name, err)
	}

	return resp, nil
}

// ID is the member's ID.
func (m *Member) ID(ctx context.Context) (uint64, error) {
	resp, err := m.Status(ctx)
	if err != nil {
		return 0, err
	}

	return resp.Header.MemberId, nil
}

// Snapshot streams the database, followed by its sha256, as EtcdSnapshot does.
func (m *Member) Snapshot(ctx context.Context) (io.ReadCloser, error) {
	resp, err := m.client.SnapshotWithVersion(ctx)
	if err != nil {
		return nil, fmt.Errorf("taking an etcd snapshot of %s: %w", m.opts.Name, err)
	}

	return resp.Snapshot, nil
}

// Stop ends the member cleanly, as far as its clients let it: etcd waits seven seconds for those that watch, and what
// is lost by not waiting is only their goodbye. The data stays.
func (m *Member) Stop(ctx context.Context) error {
	m.retire()

	grace, cancel := context.WithTimeout(ctx, stopGrace)
	defer cancel()

	if err := m.proc.Stop(grace); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}

	return nil
}

// Kill ends the member as a power cut does. The data stays as it was on the disk.
func (m *Member) Kill() {
	m.retire()
	m.proc.Kill()
}

// retire ends the background work and closes the client.
func (m *Member) retire() {
	m.stop()
	m.work.Wait()
	_ = m.client.Close()
}

// Freeze halts the member: its connections stay open and nothing responds.
func (m *Member) Freeze(frozen bool) error { return m.proc.Freeze(frozen) }

// Done is closed when the process is gone, for whatever reason.
func (m *Member) Done() <-chan struct{} { return m.proc.Done() }

// Err says how the process ended; nil while it runs.
func (m *Member) Err() error { return m.proc.Err() }

func (o Options) clientURL() string { return "https://" + net.JoinHostPort(o.Address, clientPort) }

func (o Options) peerURL() string { return "https://" + net.JoinHostPort(o.Address, peerPort) }

func (o Options) retry() time.Duration {
	if o.Retry > 0 {
		return o.Retry
	}

	return defaultRetry
}

// knownPeers are the other control-plane nodes as discovery knows them now.
func (o Options) knownPeers() []string {
	if o.Peers == nil {
		return nil
	}

	return o.Peers()
}
