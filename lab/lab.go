// Package lab is a Talos fleet on one computer: emulated machines at loopback addresses, the network between them, and
// the load balancers in front of their clusters.
package lab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/talos-operator/talos-operator/lab/node"
	"github.com/talos-operator/talos-operator/lab/node/disk"
	"github.com/talos-operator/talos-operator/lab/node/pace"
	"github.com/talos-operator/talos-operator/lab/process"
)

// DefaultSubnet is where the machines of a lab live unless told otherwise.
const DefaultSubnet = "127.10.0.0/16"

// Options describe a lab.
type Options struct {
	// Dir keeps the machines with their disks; a lab that is opened again carries on.
	Dir string
	// Assets is the folder with etcd, etcdutl and kube-apiserver; found by itself when empty.
	Assets string
	// Subnet of the machines, within 127.0.0.0/8; DefaultSubnet when empty. Addresses whose third number is 255 stay
	// free for the management plane and for endpoints of clusters.
	Subnet string
	// Scale, Times and Seed say how fast the machines are, as in node.Options.
	Scale float64
	Times pace.Times
	Seed  uint64
	// Modelled replaces the etcd and the API servers of the machines by a model.
	Modelled bool
	// NodeGrace and Heartbeat are as in node.Options.
	NodeGrace, Heartbeat time.Duration
	// Log receives what the machines print. Each writes to console.log in its own folder when nil.
	Log io.Writer
}

// Lab is a set of machines and their network.
type Lab struct {
	opts     Options
	subnet   netip.Prefix
	registry *node.Registry
	balancer *balancer
	done     chan struct{}
	work     sync.WaitGroup

	mu       sync.Mutex // guards the fields below
	machines map[string]*machine
	watchers []func(name string)
	closed   bool
}

// machine is one place in the lab.
type machine struct {
	record

	node     *node.Node
	console  *console
	switched uint64 // as last observed by the watch
	seen     bool
}

var (
	errClosed = errors.New("the lab is closed")
	// ErrNotFound says that there is no machine of that name.
	ErrNotFound = errors.New("no such machine")
)

// New opens the lab kept in o.Dir. Machines that were on when it was closed are powered on.
func New(o Options) (*Lab, error) {
	if o.Subnet == "" {
		o.Subnet = DefaultSubnet
	}

	subnet, err := netip.ParsePrefix(o.Subnet)
	if err != nil || !subnet.Addr().Is4() || !subnet.Addr().IsLoopback() || subnet.Bits() > maxSubnetBits {
		return nil, fmt.Errorf("the subnet %q of a lab must be an IPv4 /%d within 127.0.0.0/8", o.Subnet, maxSubnetBits)
	}

	if o.Assets == "" && !o.Modelled {
		if o.Assets, err = process.Assets(); err != nil {
			return nil, err
		}
	}

	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("creating the directory of a lab: %w", err)
	}

	l := &Lab{
		opts: o, subnet: subnet.Masked(), registry: node.NewRegistry(), machines: map[string]*machine{},
		done: make(chan struct{}),
	}
	l.balancer = newBalancer(l.logf)

	if err := l.restore(); err != nil {
		return nil, err
	}

	l.work.Go(l.watch)

	return l, nil
}

// restore brings back the machines of an earlier run.
func (l *Lab) restore() error {
	records := map[string]record{}
	if _, err := disk.ReadJSON(l.recordsFile(), &records); err != nil {
		return err
	}

	for _, r := range records {
		m, err := l.open(r, nil)
		if err != nil {
			return err
		}

		if r.Off {
			continue
		}

		if err := m.node.PowerOn(context.Background()); err != nil {
			return fmt.Errorf("powering %s on: %w", r.Name, err)
		}
	}

	return nil
}

// Boot powers a machine on. A name that is new gets a new machine, with an empty disk, which boots into maintenance
// mode; options have no effect on a machine that is there already.
func (l *Lab) Boot(ctx context.Context, name string, opts ...NodeOption) (*node.Node, error) {
	n, off, err := l.machine(name, opts)
	if err != nil || off {
		return n, err
	}

	return n, l.PowerOn(ctx, name)
}

// machine returns a machine, making it when it is new, and whether it is new and has to stay off.
func (l *Lab) machine(name string, opts []NodeOption) (n *node.Node, off bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()

	if l.closed {
		return nil, false, errClosed
	}

	if m := l.machines[name]; m != nil {
		return m.node, false, nil
	}

	r := record{Name: name}
	for _, opt := range opts {
		opt(&r)
	}

	if err := l.place(&r); err != nil {
		return nil, false, err
	}

	m, err := l.open(r, r.disks)
	if err != nil {
		return nil, false, err
	}

	return m.node, r.Off, l.save()
}

// open makes the node of a record.
func (l *Lab) open(r record, disks []node.Disk) (*machine, error) {
	if !validName.MatchString(r.Name) {
		return nil, fmt.Errorf("%q is no name for a machine: small letters, digits, '-', '.' and '/'", r.Name)
	}

	dir := l.dir(r.Name)
	m := &machine{record: r, console: &console{path: filepath.Join(dir, "console.log")}}

	log := l.opts.Log
	if log == nil {
		log = m.console
	}

	n, err := node.New(node.Options{
		Name: r.hostname(), Address: r.Address, Gateway: l.Reserved(gatewayNumber).String(), Dir: dir,
		Assets: l.opts.Assets, Scale: l.opts.Scale, Times: l.opts.Times, Seed: l.opts.Seed, Cluster: l.registry,
		Disks: disks, TalosVersion: r.TalosVersion, SecureBoot: r.SecureBoot,
		CPUs: r.CPUs, MemoryMiB: r.MemoryMiB, Modelled: l.opts.Modelled, NodeGrace: l.opts.NodeGrace,
		Heartbeat: l.opts.Heartbeat, Log: log,
	})
	if err != nil {
		return nil, fmt.Errorf("making the machine %s: %w", r.Name, err)
	}

	m.node = n
	l.machines[r.Name] = m

	return m, nil
}

// PowerOn switches a machine on. It stays on over restarts of the lab.
func (l *Lab) PowerOn(ctx context.Context, name string) error {
	return l.power(name, false, func(n *node.Node) error { return n.PowerOn(ctx) })
}

// PowerOff shuts a machine down. It stays off over restarts of the lab.
func (l *Lab) PowerOff(ctx context.Context, name string) error {
	return l.power(name, true, func(n *node.Node) error { return n.PowerOff(ctx) })
}

// Kill cuts the power of a machine. It stays off over restarts of the lab.
func (l *Lab) Kill(name string) error {
	return l.power(name, true, func(n *node.Node) error { n.Kill(); return nil })
}

// Wipe replaces the disks of a machine by empty ones, cutting its power before.
func (l *Lab) Wipe(name string) error { return l.power(name, true, (*node.Node).WipeDisk) }

// SetSecureBoot switches Secure Boot in the firmware of a machine on or off, from its next boot on. It stays so over
// restarts of the lab.
func (l *Lab) SetSecureBoot(name string, on bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()

	m := l.machines[name]
	if m == nil {
		return fmt.Errorf("%w: %s", ErrNotFound, name)
	}

	m.node.SetSecureBoot(on)
	m.SecureBoot = on

	return l.save()
}

func (l *Lab) power(name string, off bool, change func(*node.Node) error) error {
	l.mu.Lock()
	m := l.machines[name]
	l.mu.Unlock()

	if m == nil {
		return fmt.Errorf("%w: %s", ErrNotFound, name)
	}

	if err := change(m.node); err != nil {
		return fmt.Errorf("switching %s: %w", name, err)
	}

	l.mu.Lock()
	defer l.mu.Unlock()

	if m.Off == off {
		return nil
	}

	m.Off = off

	return l.save()
}

// Remove destroys a machine with its disks. A name that is not there is no error.
func (l *Lab) Remove(_ context.Context, name string) error {
	l.mu.Lock()
	m := l.machines[name]
	l.mu.Unlock()

	if m == nil {
		return nil
	}

	// Wiping cuts the power and makes the other nodes notice.
	if err := m.node.WipeDisk(); err != nil {
		return fmt.Errorf("destroying %s: %w", name, err)
	}

	l.mu.Lock()
	defer l.mu.Unlock()

	delete(l.machines, name)
	m.console.close()

	if err := os.RemoveAll(l.dir(name)); err != nil {
		return fmt.Errorf("destroying %s: %w", name, err)
	}

	return l.save()
}

// Node returns the machine of a name, nil when there is none.
func (l *Lab) Node(name string) *node.Node {
	l.mu.Lock()
	defer l.mu.Unlock()

	if m := l.machines[name]; m != nil {
		return m.node
	}

	return nil
}

// Nodes returns all machines, by address.
func (l *Lab) Nodes() []*node.Node {
	machines := l.list()
	nodes := make([]*node.Node, len(machines))

	for i, m := range machines {
		nodes[i] = m.node
	}

	return nodes
}

// Names returns the names of all machines, in the order of Nodes.
func (l *Lab) Names() []string {
	machines := l.list()
	names := make([]string, len(machines))

	for i, m := range machines {
		names[i] = m.Name
	}

	return names
}

// list returns the machines by address.
func (l *Lab) list() []*machine {
	l.mu.Lock()
	defer l.mu.Unlock()

	machines := make([]*machine, 0, len(l.machines))
	for _, m := range l.machines {
		machines = append(machines, m)
	}

	slices.SortFunc(machines, func(a, b *machine) int {
		return cmp.Or(a.addr().Compare(b.addr()), cmp.Compare(a.Name, b.Name))
	})

	return machines
}

// Registry is what stands between the machines, for partitions between some of them.
func (l *Lab) Registry() *node.Registry { return l.registry }

// Subnet is where the machines live.
func (l *Lab) Subnet() netip.Prefix { return l.subnet }

// closeGrace is how long machines may take to shut down together. API servers take long when all etcd members of their
// cluster end at once; the power cut that follows is one that every disk survives.
const closeGrace = 4 * time.Second

// Close shuts all machines down, and cuts the power of those that take long. Their disks stay.
func (l *Lab) Close(ctx context.Context) error {
	l.mu.Lock()

	if l.closed {
		l.mu.Unlock()

		return nil
	}

	l.closed = true
	err := l.save()
	l.mu.Unlock()

	close(l.done)
	l.work.Wait()
	l.balancer.close()

	ctx, cancel := context.WithTimeout(ctx, closeGrace)
	defer cancel()

	l.shutDown(ctx)

	return err
}

// shutDown switches all machines off at once.
func (l *Lab) shutDown(ctx context.Context) {
	var work sync.WaitGroup

	for _, m := range l.list() {
		work.Go(func() {
			if err := m.node.PowerOff(ctx); err != nil {
				m.node.Kill()
				l.logf("cutting the power of %s: %v", m.Name, err)
			}

			m.console.close()
		})
	}

	work.Wait()
}

func (l *Lab) logf(format string, args ...any) {
	if l.opts.Log != nil {
		_, _ = fmt.Fprintf(l.opts.Log, "lab: "+format+"\n", args...)
	}
}
