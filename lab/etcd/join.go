package etcd

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

var (
	// ErrNotEmpty refuses what needs an empty data directory. A real node responds with these words.
	ErrNotEmpty = errors.New("etcd data directory is not empty")
	// ErrEmpty refuses to resume a member that has no data.
	ErrEmpty = errors.New("etcd data directory is empty")
)

// Join makes the node a member of the cluster that its peers run. It is tried until it succeeds or ctx ends, because
// peers may come later and etcd takes one learner at a time; the promotion to a voting member goes on in the
// background after Join has returned. Join cannot found a cluster: the process starts only after a peer has accepted
// the member.
func Join(ctx context.Context, o Options, peers []string) (*Member, error) {
	if HasData(o.Dir) {
		return nil, ErrNotEmpty
	}

	known := func() []string { return o.otherThanSelf(peers, o.knownPeers()) }

	cluster, err := o.joinAny(ctx, known)
	if err != nil {
		return nil, err
	}

	return o.start(known, "--initial-cluster-state=existing", "--initial-cluster="+cluster)
}

// otherThanSelf merges lists of addresses without this node's own and without repetitions.
func (o Options) otherThanSelf(lists ...[]string) []string {
	all := slices.Concat(lists...)
	slices.Sort(all)

	return slices.DeleteFunc(slices.Compact(all), func(a string) bool { return a == o.Address || a == "" })
}

// joinAny asks until the cluster has accepted the member, and returns the value of --initial-cluster.
func (o Options) joinAny(ctx context.Context, peers func() []string) (string, error) {
	last := errNoPeers

	for {
		if list := peers(); len(list) > 0 {
			cluster, err := o.add(ctx, list)
			if err == nil {
				return cluster, nil
			}

			last = err
		}

		if err := pause(ctx, o.retry()); err != nil {
			return "", fmt.Errorf("joining the etcd cluster: %w (last: %w)", err, last)
		}
	}
}

// add announces this node as a learner to the cluster of its peers.
func (o Options) add(ctx context.Context, peers []string) (string, error) {
	ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), attemptTimeout)
	defer cancel()

	client, err := Dial(o.CA, peers)
	if err != nil {
		return "", err
	}

	defer client.Close()

	list, err := client.MemberList(ctx)
	if err != nil {
		return "", fmt.Errorf("listing etcd members: %w", err)
	}

	// The data directory is empty, so what carries this node's name or address is its own past: the member it was
	// before its disk was wiped, or one that was announced and never started.
	for _, member := range list.Members {
		if member.Name != o.Name && !slices.Contains(member.PeerURLs, o.peerURL()) {
			continue
		}

		if _, err = client.MemberRemove(ctx, member.ID); err != nil {
			return "", fmt.Errorf("removing the node's former etcd member: %w", err)
		}
	}

	added, err := client.MemberAddAsLearner(ctx, []string{o.peerURL()})
	if err != nil {
		return "", fmt.Errorf("adding the etcd member: %w", err)
	}

	return o.initialCluster(added.Members, added.Member.ID), nil
}

// initialCluster renders the member list for the flag, with this node's name for the member that was just added.
func (o Options) initialCluster(members []*etcdserverpb.Member, self uint64) string {
	var parts []string

	for _, member := range members {
		name := member.Name
		if member.ID == self {
			name = o.Name
		}

		for _, u := range member.PeerURLs {
			parts = append(parts, name+"="+u)
		}
	}

	return strings.Join(parts, ",")
}

// promoteUntilVoter makes a learner a voting member as soon as the cluster agrees.
func (m *Member) promoteUntilVoter(ctx context.Context, peers func() []string) {
	for !m.promote(ctx, peers()) {
		if pause(ctx, m.opts.retry()) != nil {
			return
		}
	}
}

// promote tries once. It is true when nothing is left to do.
func (m *Member) promote(ctx context.Context, peers []string) bool {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()

	status, err := m.Status(ctx)
	if err != nil || !status.IsLearner {
		return err == nil
	}

	client, err := Dial(m.opts.CA, peers)
	if err != nil {
		return false
	}

	defer client.Close()

	_, err = client.MemberPromote(clientv3.WithRequireLeader(ctx), status.Header.MemberId)

	return err == nil || errors.Is(err, rpctypes.ErrMemberNotLearner)
}

// advertise tells the cluster where the member is now, if its node has another address than when it joined: a real node
// does so too. It needs a leader, and a member that votes.
func (m *Member) advertise(ctx context.Context) {
	for !m.updatePeerURL(ctx) {
		if pause(ctx, m.opts.retry()) != nil {
			return
		}
	}
}

// updatePeerURL tries once. It is true when nothing is left to do.
func (m *Member) updatePeerURL(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), attemptTimeout)
	defer cancel()

	id, err := m.ID(ctx)
	if err != nil {
		return false
	}

	list, err := m.client.MemberList(ctx)
	if err != nil {
		return false
	}

	for _, member := range list.Members {
		if member.ID == id && !slices.Contains(member.PeerURLs, m.opts.peerURL()) {
			_, err := m.client.MemberUpdate(ctx, id, []string{m.opts.peerURL()})

			return err == nil
		}
	}

	return true
}

// Leave takes the member out of its cluster, stops it and deletes its data: what EtcdLeaveCluster does. etcd refuses
// when the rest would not be a quorum, and for the last member.
func (m *Member) Leave(ctx context.Context) error {
	id, err := m.ID(ctx)
	if err != nil {
		return err
	}

	if err := m.removeSelf(ctx, id); err != nil {
		return err
	}

	if err := m.Stop(ctx); err != nil {
		return err
	}

	return Wipe(m.opts.Dir)
}

// removeSelf asks the cluster to drop this member, and asks again while the cluster has just changed.
func (m *Member) removeSelf(ctx context.Context, id uint64) error {
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()

	client, err := m.clusterClient(ctx)
	if err != nil {
		return err
	}

	defer client.Close()

	for {
		_, err := client.MemberRemove(ctx, id)

		switch {
		case err == nil, errors.Is(err, rpctypes.ErrMemberNotFound):
			return nil
		case !errors.Is(err, rpctypes.ErrUnhealthy):
			return fmt.Errorf("leaving the etcd cluster: %w", err)
		}

		if perr := pause(ctx, m.opts.retry()); perr != nil {
			return fmt.Errorf("leaving the etcd cluster: %w (last: %w)", perr, err)
		}
	}
}

// clusterClient reaches the other members: the one that leaves stops serving before it could answer reliably.
func (m *Member) clusterClient(ctx context.Context) (*clientv3.Client, error) {
	list, err := m.client.MemberList(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing etcd members: %w", err)
	}

	var others []string

	for _, member := range list.Members {
		for _, raw := range member.ClientURLs {
			if u, err := url.Parse(raw); err == nil && !member.IsLearner && u.Hostname() != m.opts.Address {
				others = append(others, u.Hostname())
			}
		}
	}

	if len(others) == 0 {
		others = []string{m.opts.Address}
	}

	return Dial(m.opts.CA, others)
}

// Wipe empties a data directory and keeps the directory itself, which is a mount point on a real node.
func Wipe(dir string) error {
	entries, err := os.ReadDir(dir)
	if os.IsNotExist(err) {
		return nil
	}

	if err != nil {
		return fmt.Errorf("reading the etcd data directory: %w", err)
	}

	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return fmt.Errorf("deleting etcd data: %w", err)
		}
	}

	return nil
}

// pause waits for about d. Several nodes that retry in step would keep meeting each other, hence the jitter.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d + rand.N(d/2+1))
	defer timer.Stop()

	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
