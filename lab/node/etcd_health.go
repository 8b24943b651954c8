package node

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/talos-operator/talos-operator/lab/node/pace"
	"github.com/talos-operator/talos-operator/lab/node/quorum"
)

// superviseEtcd checks the member's health until it ends. Its first check comes seconds after the start, and each one
// may take its time: until then the service's health is what it was before, whatever has happened to etcd.
func (s *session) superviseEtcd(ctx context.Context, member quorum.Member, start time.Time) {
	timer := time.NewTimer(s.n.pace.Lasts(pace.EtcdHealth))
	defer timer.Stop()

	for {
		select {
		case <-ctx.Done():
			return
		case <-member.Done():
			return
		case <-timer.C:
		}

		checkCtx, cancel := context.WithTimeout(ctx, max(s.n.pace.Lasts(pace.EtcdLimit), leastHealthLimit))
		err := member.Health(checkCtx)

		cancel()

		select {
		case <-ctx.Done():
			return
		case <-member.Done():
			return
		default:
		}

		if worthTelling(err, start) {
			s.services.Health(ctx, svcEtcd, err)
			s.showMember(ctx, member, err == nil, start)
		}

		pause := s.n.pace.Lasts(pace.EtcdCheck)
		if err == nil {
			pause = max(pause, leastHealthPause)
		}

		timer.Reset(pause)
	}
}

// showMember shows the local member while it is healthy, and only then: that it does not show says nothing about
// whether there is one.
func (s *session) showMember(ctx context.Context, member quorum.Member, healthy bool, start time.Time) {
	if healthy && s.memberID() == 0 {
		s.n.timed("etcd", start)
		s.etcdServes(ctx, member)

		return
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	switch {
	case s.etcd.member != member || s.etcd.leaving:
	case healthy:
		s.store.SetEtcdMember(s.etcd.id)
	default:
		s.store.SetEtcdMember(0)
	}
}

// LagEtcd keeps a modelled member of the machine so many entries behind the others, over reboots, until it is zero. It
// serves meanwhile, as a real one does that catches up.
func (n *Node) LagEtcd(entries uint64) { n.opts.Cluster.model.Lag(n.Address(), entries) }

// startupGrace is how long a member that has just started may refuse connections before that counts as a failure.
const startupGrace = 10 * time.Second

// worthTelling leaves out that a process which has just been started does not listen yet.
func worthTelling(err error, start time.Time) bool {
	return err == nil || err.Error() == quorum.ErrLearner.Error() || errors.Is(err, context.DeadlineExceeded) ||
		status.Code(err) == codes.DeadlineExceeded || time.Since(start) > startupGrace
}
