package quorum

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
)

// modelVersion is the etcd version that the model claims, that of Talos 1.13.9.
const modelVersion = "3.6.12"

// noLeaderAfter is how long a member list takes to fail without a quorum: the client tries again meanwhile.
const noLeaderAfter = 1400 * time.Millisecond

var errStopped = errors.New("etcdserver: server stopped")

// modelMember is a running member of a modelled cluster.
type modelMember struct {
	model   *Model
	cluster *modelCluster
	entry   *modelEntry
	dir     string
	frozen  bool
	// led: it has had a leader since it was started. Until then it answers nothing at all.
	led bool

	once sync.Once
	done chan struct{}
}

// serve waits until the cluster responds through this member: it hangs without a quorum, as etcd does.
func (m *modelMember) serve(ctx context.Context, learnerToo bool, f func() error) error {
	return m.when(ctx, func() (bool, error) {
		if m.answers() && m.entry.Learner && !learnerToo {
			return false, ErrLearner
		}

		return m.answers() && m.cluster.hasQuorum(), nil
	}, f)
}

// serveAlone waits until the member has once had a leader since it was started: from then on it answers some calls
// without a quorum, too. A member that was started without one answers none.
func (m *modelMember) serveAlone(ctx context.Context, f func() error) error {
	return m.when(ctx, func() (bool, error) { return m.answers() && m.led, nil }, f)
}

// answers reports whether the member runs; the caller holds the lock.
func (m *modelMember) answers() bool { return !m.frozen && m.entry.running == m }

// when waits until the member is ready for a call, and makes it. Both hold the lock.
func (m *modelMember) when(ctx context.Context, ready func() (bool, error), f func() error) error {
	try := func() (done bool, changed <-chan struct{}, err error) {
		m.model.mu.Lock()
		defer m.model.mu.Unlock()

		if ok, err := ready(); err != nil || !ok {
			return err != nil, m.cluster.changed, err
		}

		return true, nil, f()
	}

	for {
		done, changed, err := try()
		if done {
			return err
		}

		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-m.done:
			return errStopped
		case <-changed:
		}
	}
}

// requireLeader fails where serve would hang: some clients of the node's API ask for a leader.
func (m *modelMember) requireLeader(ctx context.Context, after time.Duration) error {
	err := m.serveAlone(ctx, func() error {
		if !m.cluster.hasQuorum() {
			return errNoLeader
		}

		return nil
	})
	if !errors.Is(err, errNoLeader) || after == 0 {
		return err
	}

	timer := time.NewTimer(after)
	defer timer.Stop()

	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return err
	}
}

// ID implements Member.
func (m *modelMember) ID(context.Context) (uint64, error) { return m.entry.ID, nil }

// Health implements Member.
func (m *modelMember) Health(ctx context.Context) error {
	return m.serve(ctx, false, func() error { return nil })
}

// Members implements Member.
func (m *modelMember) Members(ctx context.Context) ([]*machine.EtcdMember, error) {
	if err := m.requireLeader(ctx, noLeaderAfter); err != nil {
		return nil, err
	}

	var list []*machine.EtcdMember

	err := m.serve(ctx, true, func() error {
		for _, e := range m.cluster.members {
			list = append(list, e.message())
		}

		slices.SortFunc(list, func(a, b *machine.EtcdMember) int { return cmp.Compare(a.GetId(), b.GetId()) })

		return nil
	})

	return list, err
}

// Status implements Member. It answers without a quorum, as the real one does, naming no leader, unless the member was
// started without one.
func (m *modelMember) Status(ctx context.Context) (*machine.EtcdMemberStatus, error) {
	var s *machine.EtcdMemberStatus

	err := m.serveAlone(ctx, func() error {
		c, has := m.cluster, m.cluster.index-m.model.lags[m.entry.Address]
		s = &machine.EtcdMemberStatus{
			MemberId: m.entry.ID, ProtocolVersion: modelVersion, StorageVersion: "3.6.0",
			DbSize: 36864, DbSizeInUse: 36864, Leader: c.leader, IsLearner: m.entry.Learner,
			RaftIndex: has, RaftTerm: c.term, RaftAppliedIndex: has,
		}

		if c.leader == 0 {
			s.Errors = []string{errNoLeader.Error()}
		}

		return nil
	})

	return s, err
}

// Alarms implements Member.
func (m *modelMember) Alarms(ctx context.Context) ([]*machine.EtcdMemberAlarm, error) {
	return nil, m.serve(ctx, true, func() error { return nil })
}

// Disarm implements Member.
func (m *modelMember) Disarm(ctx context.Context) ([]*machine.EtcdMemberAlarm, error) {
	return m.Alarms(ctx)
}

// Defragment implements Member.
func (m *modelMember) Defragment(ctx context.Context) error {
	return m.serveAlone(ctx, func() error { return nil })
}

// Downgrade implements Member.
func (m *modelMember) Downgrade(ctx context.Context, action DowngradeAction, version string) (string, error) {
	if action != DowngradeCancel && version != "3.5" {
		return "", errors.New("etcdserver: invalid downgrade target version")
	}

	return "3.6.0", m.serve(ctx, false, func() error { return nil })
}

// Snapshot implements Member.
func (m *modelMember) Snapshot(ctx context.Context) (io.ReadCloser, error) {
	var data []byte

	if err := m.serveAlone(ctx, func() error {
		data = fmt.Appendf(nil, "modelled etcd cluster %016x, revision %d\n", m.cluster.id, m.cluster.index)

		return nil
	}); err != nil {
		return nil, err
	}

	const page = 36864

	data = append(data, make([]byte, page-len(data))...)
	sum := sha256.Sum256(data)

	return io.NopCloser(bytes.NewReader(append(data, sum[:]...))), nil
}

// Forfeit implements Member.
func (m *modelMember) Forfeit(ctx context.Context) (string, error) {
	name := ""

	err := m.serve(ctx, true, func() error {
		if len(m.cluster.members) == 1 {
			return errors.New("cannot forfeit leadership, only one member")
		}

		if m.cluster.leader != m.entry.ID {
			return nil
		}

		for _, e := range m.cluster.members {
			if e != m.entry && !e.Learner && e.running != nil && !e.running.frozen {
				m.cluster.leader, name = e.ID, e.Name
				m.cluster.term++
				m.cluster.touch()

				return nil
			}
		}

		return errors.New("etcdserver: bad leader transferee")
	})

	return name, err
}

// Remove implements Member.
func (m *modelMember) Remove(ctx context.Context, id uint64) error {
	if err := m.requireLeader(ctx, 0); err != nil {
		return err
	}

	return m.serve(ctx, true, func() error { return m.cluster.remove(id) })
}

// remove drops a member; the caller holds the lock.
func (c *modelCluster) remove(id uint64) error {
	e, ok := c.members[id]
	if !ok {
		return ErrMemberNotFound
	}

	delete(c.members, id)

	if len(c.members) > 0 && !c.hasQuorum() {
		c.members[id] = e

		return errUnhealthy
	}

	if e.running != nil {
		e.running.end()
	}

	c.touch()

	return c.save()
}

// Leave implements Member.
func (m *modelMember) Leave(ctx context.Context) error {
	err := m.serve(ctx, true, func() error { return m.cluster.remove(m.entry.ID) })
	if err != nil && !errors.Is(err, ErrMemberNotFound) {
		return err
	}

	m.Kill()

	if err := os.RemoveAll(m.dir); err != nil {
		return fmt.Errorf("failed to remove the etcd data: %w", err)
	}

	return nil
}

// Stop implements Member.
func (m *modelMember) Stop(context.Context) error {
	m.Kill()

	return nil
}

// Kill implements Member.
func (m *modelMember) Kill() {
	m.model.mu.Lock()
	defer m.model.mu.Unlock()

	m.end()
	m.cluster.touch()
}

// end marks the member as ended; the caller holds the lock.
func (m *modelMember) end() {
	if m.entry.running == m {
		m.entry.running, m.entry.since = nil, time.Now()
	}

	m.once.Do(func() { close(m.done) })
}

// Freeze implements Member.
func (m *modelMember) Freeze(frozen bool) error {
	m.model.mu.Lock()
	defer m.model.mu.Unlock()

	if m.frozen != frozen {
		m.entry.since = time.Now()
	}

	m.frozen = frozen
	m.cluster.touch()

	return nil
}

// Done implements Member.
func (m *modelMember) Done() <-chan struct{} { return m.done }

// checkSnapshot compares the checksum at the end of a snapshot with its content.
func checkSnapshot(data []byte, skipHash bool) error {
	if skipHash {
		return nil
	}

	if len(data)%512 != sha256.Size {
		return errors.New("error recovering from the snapshot: snapshot missing hash but --skip-hash-check=false")
	}

	body, want := data[:len(data)-sha256.Size], data[len(data)-sha256.Size:]
	if got := sha256.Sum256(body); !bytes.Equal(got[:], want) {
		return fmt.Errorf("error recovering from the snapshot: expected sha256 %v, got %v", want, got)
	}

	return nil
}
