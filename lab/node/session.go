package node

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"

	"github.com/talos-operator/talos-operator/lab/apid"
	"github.com/talos-operator/talos-operator/lab/cosi"
	"github.com/talos-operator/talos-operator/lab/node/boot"
	"github.com/talos-operator/talos-operator/lab/node/configuration"
	"github.com/talos-operator/talos-operator/lab/node/event"
	"github.com/talos-operator/talos-operator/lab/node/image"
	"github.com/talos-operator/talos-operator/lab/node/journal"
	"github.com/talos-operator/talos-operator/lab/node/pace"
	"github.com/talos-operator/talos-operator/lab/node/service"
)

// session is one boot of a machine, from power on to power off: everything that is in memory.
type session struct {
	n      *Node
	bootID string
	booted time.Time
	slot   string // boot entry that runs; empty from the boot medium
	tag    string // Talos version that runs
	nodeID string
	// again says that the machine has rebooted itself: it takes longer than one that is switched on.
	again bool

	ctx    context.Context //nolint:containedctx // the life of the boot itself
	cancel context.CancelFunc
	work   sync.WaitGroup

	images    image.Store // pulled to the disk
	memory    image.Store // pulled into memory
	events    *event.Log
	services  *service.Set
	store     *cosi.Store
	handlers  map[string]any // by gRPC service
	journal   *journal.Journal
	sequences *boot.Sequencer
	awake     chan struct{} // a token when the cluster changed

	// applying serializes ApplyConfiguration; rebooting refuses it once a config waits for the reboot.
	applying   sync.Mutex
	rebooting  atomic.Bool
	installing sync.Mutex
	// bootstrapped says that a bootstrap was asked for in this boot.
	bootstrapped atomic.Bool
	apidDue      atomic.Bool // the boot has come to where the machine API opens

	configured chan struct{} // closed when there is a config complete for booting

	mu         sync.Mutex // guards the fields below
	live       config.Provider
	persistent config.Provider
	identity   *apid.Identity
	obtaining  sync.Mutex  // held while a certificate is made
	pending    bool        // the identity's certificate is not the cluster's yet
	revert     *time.Timer // of a config applied in mode try
	stage      runtime.MachineStage
	inStatus   machineStatus
	network    bool
	timeSync   bool
	volumes    map[string]volume // as this boot has opened them
	pulling    atomic.Bool       // etcd waits for its image
	pullLost   atomic.Bool       // which never comes in this boot

	etcd etcdService
	kube kubeService

	kubeletMu sync.Mutex // one start of the kubelet at a time

	// extensionConfigs are the configurations that services of extensions run with, by their names.
	extensionMu      sync.Mutex
	extensionConfigs map[string]string
}

// machineStatus is what MachineStatus last said.
type machineStatus struct {
	stage runtime.MachineStage
	ready bool
	unmet []runtime.UnmetCondition
	known bool
}

func newSession(n *Node, again bool) (*session, error) {
	s := &session{
		n: n, bootID: uuid.NewString(), booted: time.Now(), tag: n.opts.TalosVersion, journal: journal.New(n.opts.Log),
		awake: make(chan struct{}, 1), configured: make(chan struct{}), again: again, volumes: map[string]volume{},
		extensionConfigs: map[string]string{},
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())

	if err := s.pickEntry(); err != nil {
		return nil, err
	}

	if err := s.load(); err != nil {
		return nil, err
	}

	if err := s.openStore(); err != nil {
		return nil, err
	}

	s.events = event.NewLog()
	s.sequences = boot.NewSequencer(s.events, s.setStage, s.logf)
	s.services = service.NewSet(s.events, s.serviceChanged)

	s.handlers = s.newHandlers()

	return s, nil
}

// pickEntry asks the boot loader what to boot. An entry that does not boot falls back to the other one.
func (s *session) pickEntry() error {
	loader := s.n.system.Loader()
	if loader == nil {
		return nil
	}

	if !loader.Current().Boots(!s.again) {
		if other := loader.Entries[loader.Other()]; !other.Boots(!s.again) {
			return errors.New("no boot entry works")
		}

		s.logf("boot entry %s does not boot, falling back to %s", loader.Default, loader.Other())

		loader.Default = loader.Other()
		if err := s.n.system.SetLoader(loader); err != nil {
			return err
		}
	}

	s.slot, s.tag = loader.Default, loader.Current().Tag

	return s.verify(loader.Current().Image)
}

// load reads the config from the STATE partition.
func (s *session) load() error {
	s.n.raiseFirewall(nil)

	data, err := s.n.system.Config()
	if err != nil || data == nil {
		return err
	}

	cfg, err := configloader.NewFromBytes(data)
	if err != nil {
		return fmt.Errorf("loading the machine config: %w", err)
	}

	s.live, s.persistent = cfg, cfg

	if cfg.CompleteForBoot() {
		s.n.raiseFirewall(cfg)
		close(s.configured)
	}

	return nil
}

// openStore makes the node's resources.
func (s *session) openStore() error {
	addr, err := netip.ParsePrefix(fmt.Sprintf("%s/%d", s.n.Address(), subnetBits))
	if err != nil {
		return fmt.Errorf("parsing the address: %w", err)
	}

	gateway, err := netip.ParseAddr(s.n.opts.Gateway)
	if err != nil {
		return fmt.Errorf("parsing the gateway: %w", err)
	}

	fresh := func() string { return cosi.NewNodeID([]byte(uuid.NewString())) }
	s.nodeID = fresh()

	if s.n.system.Installed() || s.n.system.StateUsed() {
		if s.nodeID, err = s.n.system.NodeIdentity(fresh); err != nil {
			return err
		}
	}

	s.store, err = cosi.NewStore(cosi.Identity{
		Hostname: s.hostname(), Address: addr, Gateway: gateway, NodeID: s.nodeID, Platform: configuration.Platform,
		TalosVersion: s.tag, MoreLinks: s.n.opts.Links,
	})
	if err != nil {
		return fmt.Errorf("making the node's resources: %w", err)
	}

	if faults := s.n.NetworkFaults(); faults.any() {
		s.store.SetNetworkFaults(faults.NetworkFaults)
	}

	return nil
}

// start runs the boot in the background.
func (s *session) start() {
	s.spawn(s.main)
	s.spawn(s.watchCluster)
}

// spawn runs f in the background of this boot; a boot that is over starts nothing.
func (s *session) spawn(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.ctx.Err() == nil {
		s.work.Go(f)
	}
}

// end lets nothing new begin.
func (s *session) end() {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.cancel()
}

// answerGrace is how long unary calls under way may take while the machine goes down. The call that has caused it is
// one of them, and a client of a busy computer reads slowly.
const answerGrace = 10 * time.Second

// stop ends the session as a clean shutdown does.
func (s *session) stop(ctx context.Context) error {
	s.end()
	s.n.api.Shutdown(answerGrace) // the call that caused this is still to be answered
	s.cancelRevert()
	s.stopKubelet()

	err := errors.Join(s.stopAPIServer(ctx), s.stopMember(ctx))

	s.work.Wait()
	s.n.api.Stop() // in case the boot was about to start it
	s.n.opts.Cluster.nodes.Silence(s.n)

	return err
}

// kill ends the session as a power cut does.
func (s *session) kill() {
	s.end()

	s.mu.Lock()
	member, api := s.etcd.member, s.kube.server
	s.mu.Unlock()

	if member != nil {
		member.Kill()
	}

	if api != nil {
		api.Kill()
	}

	s.n.api.Stop()
	s.cancelRevert()
	s.stopKubelet()
	s.work.Wait()
	s.n.api.Stop() // in case the boot was about to start it
	s.n.opts.Cluster.nodes.Silence(s.n)
}

// freeze stops the machine's processes, or lets them go on.
func (s *session) freeze(frozen bool) {
	s.mu.Lock()
	member, api := s.etcd.member, s.kube.server
	s.mu.Unlock()

	if member != nil {
		if err := member.Freeze(frozen); err != nil {
			s.logf("freezing etcd: %v", err)
		}
	}

	if api != nil {
		if err := api.Freeze(frozen); err != nil {
			s.logf("freezing the API server: %v", err)
		}
	}
}

// wake lets the session check its cluster again.
func (s *session) wake() {
	select {
	case s.awake <- struct{}{}:
	default:
	}
}

// logf writes a line to the kernel log, where machined logs too.
func (s *session) logf(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	s.journal.Kernel(line)
	s.journal.Service("machined", line)
}

// spend waits for as long as the machine is in a state, and while the machine is frozen.
func (s *session) spend(ctx context.Context, state pace.State) error {
	if err := s.n.pass(ctx); err != nil {
		return err
	}

	timer := time.NewTimer(s.n.pace.Lasts(state))
	defer timer.Stop()

	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return s.n.pass(ctx)
	}
}
