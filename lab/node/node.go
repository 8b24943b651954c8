// Package node is an emulated Talos v1.13 machine behind the machine API: its disks, its boot, its services, its etcd
// and Kubernetes, and every call of the API with the answers that real machines gave.
package node

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"

	"github.com/talos-operator/talos-operator/lab/apid"
	"github.com/talos-operator/talos-operator/lab/node/disk"
	"github.com/talos-operator/talos-operator/lab/node/hardware"
	"github.com/talos-operator/talos-operator/lab/node/image"
	"github.com/talos-operator/talos-operator/lab/node/pace"
)

// Node is one machine. It exists whether its power is on or off; everything of one boot is in its session.
type Node struct {
	opts   Options
	pace   pace.Pace
	hw     *hardware.Machine
	system *disk.System
	faults *apid.Faults
	api    *apid.Server

	frozen      atomic.Bool
	partitioned atomic.Bool
	snapshotCut atomic.Int64
	full        atomic.Bool // see FillDisk
	broken      networkFaults
	secureBoot  atomic.Bool // see SetSecureBoot
	source      imageSource
	address     atomic.Pointer[string]

	power sync.Mutex // serializes what turns the machine on and off

	mu       sync.Mutex // guards the fields below
	session  *session
	switched uint64 // how often the power came or went
	lastBoot string // the boot ID of the session that was detached last
	timings  []Timing
	thawed   chan struct{} // closed while the machine is not frozen
	upgrades []string      // installer images that fail, see FailInstaller
	pods     []string      // see Outlive
}

// Timing says how long one phase of the node's own work took.
type Timing struct {
	// Phase is boot, install, etcd, apiserver, kubelet or reboot.
	Phase string
	// Start is when the phase began, Duration how long it took.
	Start    time.Time
	Duration time.Duration
}

// Status is what a person wants to know of a machine at a glance.
type Status struct {
	Name, Address string
	// Powered, Frozen, Partitioned and DiskFull are the machine's condition as the lab sees it, SecureBoot what its
	// firmware does from the next boot on.
	Powered, Frozen, Partitioned, DiskFull, SecureBoot bool
	// Stage, Ready and Unmet are what MachineStatus says; empty while the power is off.
	Stage string
	Ready bool
	Unmet []string
	// BootID is new at every boot: that of the last one while the power is off, and until a reboot has come so far.
	BootID string
	// Installed says whether Talos is on the system disk, TalosVersion which one runs.
	Installed    bool
	TalosVersion string
	// Hostname, MachineType, ClusterID, ClusterName and KubernetesVersion are empty before there is a config.
	Hostname, MachineType, ClusterID, ClusterName, KubernetesVersion string
	// EtcdMember is the ID of the local etcd member in hex; empty when there is none.
	EtcdMember string
	// MaintenanceFingerprint is that of the certificate which the machine shows in maintenance mode; empty in every other.
	MaintenanceFingerprint string
}

// New loads the machine kept in o.Dir, or makes a new one there. Its power is off.
func New(o Options) (*Node, error) {
	o, err := o.complete()
	if err != nil {
		return nil, err
	}

	hw, err := hardware.Load(o.Dir, o.Name+"/"+o.Address, o.UUID, o.Disks)
	if err != nil {
		return nil, err
	}

	system, err := disk.Open(filepath.Join(o.Dir, "system"))
	if err != nil {
		return nil, fmt.Errorf("opening the system disk of %s: %w", o.Name, err)
	}

	n := &Node{
		opts: o, pace: pace.Of(o.Scale, o.Seed, o.Name, o.Address).With(o.Times),
		hw: hw, system: system, faults: apid.NewFaults(),
		thawed: make(chan struct{}),
	}
	close(n.thawed)
	n.secureBoot.Store(o.SecureBoot)

	return n, n.connect(o.Address)
}

// connect makes the machine's network face, which stays the same over its boots until its address changes.
func (n *Node) connect(address string) error {
	addr, err := netip.ParseAddr(address)
	if err != nil {
		return fmt.Errorf("parsing the address of %s: %w", n.opts.Name, err)
	}

	n.address.Store(&address)
	n.api = apid.NewServer(apid.Options{
		Address: addr, Backend: backend{n}, Faults: n.faults, Network: n.opts.Cluster.network, Resolve: n.resolve,
		Log: n.opts.Log,
	})

	return nil
}

// resolve translates a host name of the node's cluster to its address.
func (n *Node) resolve(name string) (netip.Addr, bool) {
	s := n.current()
	if s == nil {
		return netip.Addr{}, false
	}

	for _, a := range s.affiliates() {
		if strings.EqualFold(a.Hostname, name) {
			addr, err := netip.ParseAddr(a.Address)

			return addr, err == nil
		}
	}

	return netip.Addr{}, false
}

// Name returns the machine's name.
func (n *Node) Name() string { return n.opts.Name }

// Address returns the machine's IP.
func (n *Node) Address() string { return *n.address.Load() }

// Readdress gives the machine another address of its network, as a DHCP server does. The power of a running machine is
// cut first; it stays off.
func (n *Node) Readdress(address string) error {
	n.Kill()

	n.power.Lock()
	defer n.power.Unlock()

	if n.current() != nil {
		return errors.New("the machine was powered on meanwhile")
	}

	return n.connect(address)
}

// EtcdDir is where the machine's etcd keeps its data.
func (n *Node) EtcdDir() string { return n.system.EphemeralPath("etcd") }

// UUID returns the machine's system UUID.
func (n *Node) UUID() string { return n.hw.UUID }

// Faults returns what tests and people may do to the machine's API.
func (n *Node) Faults() *apid.Faults { return n.faults }

// PowerOn boots the machine. It returns when the boot has begun; a machine that is on stays as it is.
func (n *Node) PowerOn(context.Context) error {
	n.power.Lock()
	defer n.power.Unlock()

	if n.current() != nil {
		return nil
	}

	return n.boot(false)
}

// boot starts a new session, again after a reboot; the caller holds n.power.
func (n *Node) boot(again bool) error {
	s, err := newSession(n, again)
	if err != nil {
		return fmt.Errorf("booting %s: %w", n.opts.Name, err)
	}

	n.mu.Lock()
	n.session = s
	n.switched++
	n.mu.Unlock()

	s.start()

	return nil
}

// PowerOff shuts the machine down cleanly, as its power button does.
func (n *Node) PowerOff(ctx context.Context) error {
	n.power.Lock()
	defer n.power.Unlock()

	s := n.detach()
	if s == nil {
		return nil
	}

	return s.stop(ctx)
}

// Kill cuts the power: processes and connections end at once, what is on the disks stays.
func (n *Node) Kill() {
	n.power.Lock()
	defer n.power.Unlock()

	if s := n.detach(); s != nil {
		s.kill()
	}
}

// restart ends a session and, where again says so, boots the machine anew. It does nothing when the session is
// already over, because the power was cut meanwhile.
func (n *Node) restart(s *session, again bool) {
	n.power.Lock()
	defer n.power.Unlock()

	if n.current() != s {
		return
	}

	n.detach()

	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()

	if err := s.stop(ctx); err != nil {
		s.logf("stopping: %v", err)
	}

	if !again {
		return
	}

	if err := n.boot(true); err != nil {
		s.logf("%v", err)
	}
}

// stopTimeout bounds how long processes of a machine may take to end.
const stopTimeout = 20 * time.Second

// WipeDisk replaces the machine's disks by empty ones. The power of a running machine is cut first.
func (n *Node) WipeDisk() error {
	n.Kill()

	n.power.Lock()
	defer n.power.Unlock()

	if n.current() != nil {
		return errors.New("the machine was powered on meanwhile")
	}

	n.opts.Cluster.nodes.Silence(n)

	n.mu.Lock()
	defer n.mu.Unlock()

	for i := range n.hw.Disks {
		n.hw.Disks[i].Content = nil
	}

	if err := n.hw.Save(n.opts.Dir); err != nil {
		return err
	}

	return n.system.Wipe()
}

// Freeze stops the machine from answering, or lets it go on: connections are accepted, nothing is answered, its
// processes stand still.
func (n *Node) Freeze(frozen bool) {
	n.mu.Lock()

	if n.frozen.Swap(frozen) == frozen {
		n.mu.Unlock()

		return
	}

	if frozen {
		n.thawed = make(chan struct{})
	} else {
		close(n.thawed)
	}

	n.mu.Unlock()

	n.faults.Freeze(frozen)
	n.isolate()
}

// Partition cuts the machine's network off, or connects it again. Its etcd and API server are stopped meanwhile: for
// everybody else that is the same as a network that swallows their packets.
func (n *Node) Partition(partitioned bool) {
	if n.partitioned.Swap(partitioned) == partitioned {
		return
	}

	n.faults.Partition(partitioned)
	n.isolate()
}

// isolate brings processes and discovery in line with the machine's faults.
func (n *Node) isolate() {
	s := n.current()
	if s == nil {
		return
	}

	s.freeze(n.isolated())

	if n.isolated() {
		n.opts.Cluster.nodes.Silence(n)

		return
	}

	s.announce()
}

func (n *Node) isolated() bool { return n.frozen.Load() || n.partitioned.Load() }

// Reachable reports whether the machine is on and on the network: whether other nodes can talk to it.
func (n *Node) Reachable() bool { return n.current() != nil && !n.isolated() }

func (n *Node) current() *session {
	n.mu.Lock()
	defer n.mu.Unlock()

	return n.session
}

// detach ends the session's hold on the machine.
func (n *Node) detach() *session {
	n.mu.Lock()
	defer n.mu.Unlock()

	s := n.session
	if n.session = nil; s != nil {
		n.switched++
		n.lastBoot = s.bootID
	}

	return s
}

// ClusterChanged is called when something about the other nodes of the cluster changed.
func (n *Node) ClusterChanged() {
	if s := n.current(); s != nil {
		s.wake()
	}
}

// pass waits while the machine is frozen.
func (n *Node) pass(ctx context.Context) error {
	n.mu.Lock()
	thawed := n.thawed
	n.mu.Unlock()

	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-thawed:
		return nil
	}
}

// Timings returns how long each phase of the machine's own work took, since it was made.
func (n *Node) Timings() []Timing {
	n.mu.Lock()
	defer n.mu.Unlock()

	return append([]Timing(nil), n.timings...)
}

// maxTimings bounds what a long-lived machine remembers.
const maxTimings = 256

func (n *Node) timed(phase string, start time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()

	if len(n.timings) < maxTimings {
		n.timings = append(n.timings, Timing{Phase: phase, Start: start, Duration: time.Since(start)})
	}
}

// Status returns the machine's state at a glance.
func (n *Node) Status() Status {
	st := Status{
		Name: n.opts.Name, Address: n.Address(), Frozen: n.frozen.Load(), Partitioned: n.partitioned.Load(),
		DiskFull: n.full.Load(), SecureBoot: n.secureBoot.Load(),
		Installed: n.system.Installed(),
	}

	n.mu.Lock()
	s, last := n.session, n.lastBoot
	n.mu.Unlock()

	if s == nil {
		st.BootID = last

		return st
	}

	st.Powered, st.BootID, st.TalosVersion, st.Hostname = true, s.bootID, s.tag, s.hostname()

	st.MaintenanceFingerprint = s.maintenanceFingerprint()

	stage, ready, unmet := s.machineStatus()
	st.Stage, st.Ready = stage.String(), ready

	for _, c := range unmet {
		st.Unmet = append(st.Unmet, c.Name)
	}

	if id := s.memberID(); id != 0 {
		st.EtcdMember = fmt.Sprintf("%016x", id)
	}

	if cfg := s.config(); cfg != nil && cfg.CompleteForBoot() {
		st.MachineType = cfg.Machine().Type().String()
		st.ClusterID, st.ClusterName = cfg.Cluster().ID(), cfg.Cluster().Name()
		st.KubernetesVersion = image.Tag(cfg.Machine().Kubelet().Image())
	}

	return st
}

// machineType returns what the node's config makes of it.
func (s *session) machineType() machine.Type {
	cfg := s.config()
	if cfg == nil || !cfg.CompleteForBoot() {
		return machine.TypeUnknown
	}

	return cfg.Machine().Type()
}

// stageUnknown is the stage before the first event of a boot.
const stageUnknown = runtime.MachineStageUnknown
