package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/talos-operator/talos-operator/lab/cosi"
	"github.com/talos-operator/talos-operator/lab/etcd"
	"github.com/talos-operator/talos-operator/lab/node/pace"
	"github.com/talos-operator/talos-operator/lab/node/quorum"
	"github.com/talos-operator/talos-operator/lab/node/service"
)

// etcdService is the state of the etcd service; session.mu guards it.
type etcdService struct {
	member  quorum.Member
	id      uint64
	leaving bool               // the member ends because it was asked to
	cancel  context.CancelFunc // ends the service's goroutine
	done    chan struct{}      // closed when that goroutine has ended
}

// etcdStart is how the etcd service is to come up.
type etcdStart struct{ bootstrap, recover, skipHash bool }

// Health checks of an API server: often until it is healthy, then now and then.
const (
	healthSoon  = 200 * time.Millisecond
	healthLater = 5 * time.Second
	healthLimit = 15 * time.Second
)

// However fast a machine is, its etcd is a process of a computer that is not: a health check takes its time, and one
// that is healthy is asked no more often than that.
const (
	leastHealthLimit = 5 * time.Second
	leastHealthPause = time.Second
)

func (s *session) etcdDir() string { return s.n.system.EphemeralPath("etcd") }

// recoverySnapshot is where EtcdRecover leaves the snapshot for Bootstrap.
func (s *session) recoverySnapshot() string { return s.n.system.EphemeralPath("etcd.snapshot") }

// startEtcd starts the etcd service. It waits in the background for what it needs.
func (s *session) startEtcd(how etcdStart) {
	ctx, cancel := context.WithCancel(s.ctx)
	done := make(chan struct{})

	s.mu.Lock()
	s.etcd = etcdService{cancel: cancel, done: done}
	s.mu.Unlock()

	s.update(svcEtcd, service.Starting, "Starting service")
	s.update(svcEtcd, service.Waiting, "%s", waitEtcd)
	s.spawn(func() {
		defer close(done)

		s.runEtcd(ctx, how)
	})
}

// stopEtcd ends the etcd service; its data stays.
func (s *session) stopEtcd(ctx context.Context) error {
	s.mu.Lock()
	cancel, done := s.etcd.cancel, s.etcd.done
	s.mu.Unlock()

	if cancel == nil {
		return nil
	}

	cancel()
	s.endControlPlane(ctx)

	err := s.stopMember(ctx)

	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-done:
	}

	s.stopService(svcEtcd)

	return err
}

// stopMember ends the local member, if there is one.
func (s *session) stopMember(ctx context.Context) error {
	member := s.setMember(nil)
	if member == nil {
		return nil
	}

	if err := member.Stop(ctx); err != nil {
		return fmt.Errorf("stopping etcd: %w", err)
	}

	return nil
}

// setMember exchanges the local member and returns the former one.
func (s *session) setMember(member quorum.Member) quorum.Member {
	s.mu.Lock()
	former := s.etcd.member
	s.etcd.member, s.etcd.id = member, 0
	s.mu.Unlock()

	return former
}

// adopt makes a member that has just been opened the local one. Where the service was told to end meanwhile, nothing
// would stop the member any more: it would go on beside the next one, on a disk that may be gone.
func (s *session) adopt(ctx context.Context, member quorum.Member) bool {
	s.mu.Lock()

	wanted := ctx.Err() == nil
	if wanted {
		s.etcd.member, s.etcd.id = member, 0
	}

	s.mu.Unlock()

	if !wanted {
		member.Kill()
	}

	return wanted
}

func (s *session) localMember() quorum.Member {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.etcd.member
}

func (s *session) memberID() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.etcd.id
}

// runEtcd is the life of the etcd service.
func (s *session) runEtcd(ctx context.Context, how etcdStart) {
	start := time.Now()

	if !how.bootstrap && s.spend(ctx, pace.EtcdSpec) != nil {
		return
	}

	if st, _ := s.services.Get(svcCRI); !st.Up() {
		s.update(svcEtcd, service.Waiting, waitForCRI)
	}

	if s.services.Wait(ctx, svcCRI, service.Status.Up) != nil {
		return
	}

	s.update(svcEtcd, service.Preparing, "Running pre state")

	if s.spend(ctx, pace.EtcdStart) != nil || s.pullEtcd(ctx) != nil {
		return
	}

	for {
		member, err := s.openMember(ctx, how)
		if err != nil {
			if ctx.Err() == nil {
				s.update(svcEtcd, service.Failed, "Failed to run pre stage: %v", err)
			}

			return
		}

		s.update(svcEtcd, service.Preparing, "Creating service runner")

		if !s.adopt(ctx, member) {
			return
		}

		if s.n.isolated() {
			_ = member.Freeze(true) // it is as if it had been stopped a moment later
		}

		s.taskStarted(svcEtcd)
		s.superviseEtcd(ctx, member, start)

		if s.restartEtcd(ctx) != nil {
			return
		}

		how = etcdStart{}
	}
}

// restartEtcd waits for the next try after a member has died by itself.
func (s *session) restartEtcd(ctx context.Context) error {
	if ctx.Err() != nil || s.isLeaving() {
		return context.Canceled
	}

	if dead := s.setMember(nil); dead != nil {
		dead.Kill() // its client is still open
	}

	s.update(svcEtcd, service.Waiting, "Error running Containerd(etcd), going to restart forever: task \"etcd\" "+
		"failed: exit code 1")
	s.endControlPlane(ctx)

	timer := time.NewTimer(max(s.n.pace.Lasts(pace.Restart), minRestart))
	defer timer.Stop()

	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// minRestart is the least pause before a process that died is started again.
const minRestart = 500 * time.Millisecond

func (s *session) isLeaving() bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.etcd.leaving
}

// openMember brings the local member up: from its data where there is some, as the first of a cluster where that was
// asked for, otherwise by joining the other control-plane nodes, which may take for ever.
func (s *session) openMember(ctx context.Context, how etcdStart) (quorum.Member, error) {
	cfg, ok := s.complete()
	if !ok {
		return nil, errors.New("there is no machine config")
	}

	start := quorum.Start{
		Dir: s.etcdDir(), PKI: filepath.Join(s.n.opts.Dir, "run", "etcd"), Name: s.hostname(), Address: s.n.Address(),
		CA: cfg.Cluster().Etcd().CA(), Peers: s.etcdPeers, Log: s.journal.Writer(svcEtcd),
		ExtraArgs: flatten(cfg.Cluster().Etcd().ExtraArgs()),
	}
	engine := s.n.opts.engine()

	switch {
	case how.recover:
		defer os.Remove(s.recoverySnapshot()) //nolint:errcheck // a leftover is overwritten by the next upload

		return engine.Recover(ctx, start, s.recoverySnapshot(), how.skipHash)
	case etcd.HasData(start.Dir):
		return engine.Resume(ctx, start)
	case how.bootstrap:
		return engine.Bootstrap(ctx, start)
	}

	return engine.Join(ctx, start)
}

func flatten(args map[string][]string) map[string]string {
	out := make(map[string]string, len(args))

	for name, values := range args {
		if len(values) > 0 {
			out[name] = values[len(values)-1]
		}
	}

	return out
}

// etcdPeers are the addresses of the other control-plane nodes that run etcd.
func (s *session) etcdPeers() []string {
	if s.n.isolated() {
		return nil
	}

	var peers []string

	for _, other := range s.others() {
		if other.localMember() != nil && other.acceptsEtcd(s) {
			peers = append(peers, other.n.Address())
		}
	}

	return peers
}

// etcdServes is called once a member responds: its ID shows, and the control plane's pods may start.
func (s *session) etcdServes(ctx context.Context, member quorum.Member) {
	id, err := member.ID(ctx)
	if err != nil {
		s.logf("asking etcd for its member ID: %v", err)

		return
	}

	s.mu.Lock()

	current := s.etcd.member == member
	if current {
		s.etcd.id = id
		s.store.SetEtcdMember(id)
	}

	s.mu.Unlock()

	if !current {
		return
	}

	s.setKind(cosi.ControlPlaneRunning)
	s.startControlPlane(ctx)
	s.notifyCluster()
}

// bootstrapEtcd starts a new etcd cluster on this node. The old service ends first, with the events of a real node.
func (s *session) bootstrapEtcd(ctx context.Context, how etcdStart) error {
	if err := s.stopEtcd(ctx); err != nil {
		return fmt.Errorf("failed to stop etcd: %w", err)
	}

	s.bootstrapped.Store(true)
	s.update(svcEtcd, service.Finished, "Bootstrap requested")

	if etcd.HasData(s.etcdDir()) {
		return etcd.ErrNotEmpty
	}

	s.services.Reset(svcEtcd)
	s.startEtcd(how)

	return nil
}

// leaveEtcd takes the local member out of its cluster and deletes its data.
func (s *session) leaveEtcd(ctx context.Context, member quorum.Member) error {
	s.setLeaving(true)
	defer s.setLeaving(false)

	if err := member.Leave(ctx); err != nil {
		return err
	}

	s.store.SetEtcdMember(0)

	if err := s.stopEtcd(ctx); err != nil {
		return fmt.Errorf("failed to stop etcd: %w", err)
	}

	return os.RemoveAll(s.etcdDir())
}

func (s *session) setLeaving(leaving bool) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.etcd.leaving = leaving
}
