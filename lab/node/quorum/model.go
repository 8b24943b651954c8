package quorum

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"

	"github.com/talos-operator/talos-operator/lab/etcd"
	"github.com/talos-operator/talos-operator/lab/node/disk"
)

// Errors with the texts of etcd.
var (
	ErrLearner        = errors.New("etcdserver: rpc not supported for learner")
	ErrMemberNotFound = errors.New("etcdserver: member not found")
	errTooManyLearner = errors.New("etcdserver: too many learner members in cluster")
	errUnhealthy      = errors.New("etcdserver: unhealthy cluster")
	errNoPeer         = errors.New("error getting etcd member list: no peer serves")
	errNoLeader       = errors.New("etcdserver: no leader")
)

// defaultRetry is the pause between two tries to join.
const defaultRetry = 500 * time.Millisecond

// Model is etcd without etcd: the clusters of a lab in memory, with members, learners, a leader and a quorum.
// What a member writes to its disk is only which member of which cluster it is.
type Model struct {
	mu       sync.Mutex
	clusters map[uint64]*modelCluster
	founded  map[int]func(Founding)
	nextID   int
	lags     map[string]uint64 // by how many entries the member at an address is behind
}

// NewModel returns an engine without clusters.
func NewModel() *Model {
	return &Model{clusters: map[uint64]*modelCluster{}, founded: map[int]func(Founding){}, lags: map[string]uint64{}}
}

// modelCluster is one raft group. Model.mu guards all of it.
type modelCluster struct {
	id uint64
	// authority is the fingerprint of the CA of etcd that the cluster was founded with; empty where it was brought back.
	authority string
	writes    []string
	members   map[uint64]*modelEntry
	leader    uint64
	term      uint64
	index     uint64
	changed   chan struct{} // closed and replaced whenever something changed
}

// modelEntry is one line of the member list.
type modelEntry struct {
	ID      uint64 `json:"id"`
	Name    string `json:"name"`
	Address string `json:"address"`
	Learner bool   `json:"learner"`
	running *modelMember
	dir     string    // where the member keeps its data
	since   time.Time // when it began or ceased to serve
}

// modelData is what lies in the data directory of a modelled member.
type modelData struct {
	Cluster uint64        `json:"cluster"`
	Member  uint64        `json:"member"`
	Members []*modelEntry `json:"members"`
}

var _ Engine = (*Model)(nil)

// Bootstrap starts a cluster of one.
func (m *Model) Bootstrap(_ context.Context, s Start) (Member, error) {
	if etcd.HasData(s.Dir) {
		return nil, etcd.ErrNotEmpty
	}

	m.mu.Lock()

	c := &modelCluster{
		id: randomID(), authority: authority(s.CA), members: map[uint64]*modelEntry{}, term: 2, index: 4,
		changed: make(chan struct{}),
	}
	found := Founding{Cluster: c.id, Dir: s.Dir, Others: m.listOf(c.authority)}
	m.clusters[c.id] = c

	e := &modelEntry{ID: randomID(), Name: s.Name, Address: s.Address}
	c.members[e.ID] = e

	member, err := m.run(c, e, s)
	founded := slices.Collect(maps.Values(m.founded))

	m.mu.Unlock()

	for _, fn := range founded {
		fn(found)
	}

	return member, err
}

// Recover starts a cluster of one from a snapshot.
func (m *Model) Recover(ctx context.Context, s Start, snapshot string, skipHash bool) (Member, error) {
	if etcd.HasData(s.Dir) {
		return nil, etcd.ErrNotEmpty
	}

	data, err := os.ReadFile(snapshot)
	if err != nil {
		return nil, fmt.Errorf("error verifying snapshot: %w", err)
	}

	if err := checkSnapshot(data, skipHash); err != nil {
		// like the real one, a failed restore leaves its debris behind and so blocks the next try
		if mkErr := os.MkdirAll(filepath.Join(s.Dir, "member", "snap"), 0o700); mkErr != nil {
			return nil, fmt.Errorf("creating the data directory: %w", mkErr)
		}

		return nil, err
	}

	return m.Bootstrap(ctx, s)
}

// Join adds the node as a learner to the cluster of one of its peers and waits until there is one. It is promoted at
// once: a model has nothing to catch up with.
func (m *Model) Join(ctx context.Context, s Start) (Member, error) {
	pause := s.Retry
	if pause <= 0 {
		pause = defaultRetry
	}

	ticker := time.NewTicker(pause)
	defer ticker.Stop()

	for {
		member, err := m.tryJoin(s)
		if err == nil {
			return member, nil
		}

		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("joining the etcd cluster: %w (last: %w)", ctx.Err(), err)
		case <-ticker.C:
		}
	}
}

func (m *Model) tryJoin(s Start) (Member, error) {
	peers := s.Peers()

	m.mu.Lock()
	defer m.mu.Unlock()

	c := m.clusterOf(peers)
	if c == nil {
		return nil, errNoPeer
	}

	for id, e := range c.members {
		if e.Name == s.Name {
			if err := c.remove(id); err != nil {
				return nil, err
			}
		} else if e.Learner {
			return nil, fmt.Errorf("error adding member: %w", errTooManyLearner)
		}
	}

	e := &modelEntry{ID: randomID(), Name: s.Name, Address: s.Address, Learner: true}
	c.members[e.ID] = e

	member, err := m.run(c, e, s)
	if err != nil {
		return nil, err
	}

	e.Learner = false

	c.touch()

	return member, c.save()
}

// Resume starts the member whose data lies in the data directory.
func (m *Model) Resume(_ context.Context, s Start) (Member, error) {
	data := modelData{}

	found, err := disk.ReadJSON(modelFile(s.Dir), &data)
	if err != nil {
		return nil, err
	}

	if !found {
		return nil, etcd.ErrEmpty
	}

	m.mu.Lock()
	defer m.mu.Unlock()

	c := m.clusters[data.Cluster]
	if c == nil { // the lab was restarted: the first member brings the cluster back
		c = &modelCluster{
			id: data.Cluster, members: map[uint64]*modelEntry{}, term: 3, index: 8, changed: make(chan struct{}),
		}
		for _, e := range data.Members {
			c.members[e.ID] = &modelEntry{ID: e.ID, Name: e.Name, Address: e.Address}
		}

		m.clusters[c.id] = c
	}

	e := c.members[data.Member]
	if e == nil {
		return nil, errors.New("the member has been permanently removed from the cluster")
	}

	e.Address = s.Address // the node may have another one than when it joined

	return m.run(c, e, s)
}

// clusterOf returns the cluster of the first peer that runs a voting member.
func (m *Model) clusterOf(peers []string) *modelCluster {
	for _, p := range peers {
		for _, c := range m.clusters {
			for _, e := range c.members {
				if e.Address == p && e.running != nil && !e.Learner && c.hasQuorum() {
					return c
				}
			}
		}
	}

	return nil
}

// run starts a member; the caller holds the lock.
func (m *Model) run(c *modelCluster, e *modelEntry, s Start) (Member, error) {
	member := &modelMember{model: m, cluster: c, entry: e, dir: s.Dir, done: make(chan struct{})}
	e.running, e.dir, e.since = member, s.Dir, time.Now()
	c.authority = cmp.Or(c.authority, authority(s.CA))
	c.index += 2
	c.touch()

	return member, c.save()
}

// save writes the member list to the disk of every running member.
func (c *modelCluster) save() error {
	data := modelData{Cluster: c.id}
	for _, e := range c.members {
		data.Members = append(data.Members, e)
	}

	for _, e := range c.members {
		if e.running == nil {
			continue
		}

		data.Member = e.ID

		if err := disk.WriteJSON(modelFile(e.running.dir), data); err != nil {
			return err
		}
	}

	return nil
}

// hasQuorum reports whether more than half of the voting members answer.
func (c *modelCluster) hasQuorum() bool {
	voters, alive := 0, 0

	for _, e := range c.members {
		if e.Learner {
			continue
		}

		voters++

		if e.running != nil && !e.running.frozen {
			alive++
		}
	}

	return alive > voters/2
}

// touch elects a leader where needed and wakes everybody who waits for the cluster. A leader without a quorum steps
// down.
func (c *modelCluster) touch() {
	if e := c.members[c.leader]; e == nil || e.running == nil || e.running.frozen || !c.hasQuorum() {
		c.leader = 0

		for _, e := range c.members {
			if c.hasQuorum() && !e.Learner && e.running != nil && !e.running.frozen {
				c.leader = e.ID
				c.term++

				break
			}
		}
	}

	for _, e := range c.members {
		if e.running != nil && c.leader != 0 {
			e.running.led = true
		}
	}

	close(c.changed)
	c.changed = make(chan struct{})
}

func (e *modelEntry) message() *machine.EtcdMember {
	return &machine.EtcdMember{
		Id: e.ID, Hostname: e.Name, IsLearner: e.Learner,
		PeerUrls:   []string{"https://" + e.Address + ":2380"},
		ClientUrls: []string{"https://" + e.Address + ":2379"},
	}
}

func modelFile(dir string) string { return filepath.Join(dir, "member", "model.json") }

func randomID() uint64 {
	var b [8]byte

	_, _ = rand.Read(b[:]) // crypto/rand.Read never fails

	return binary.BigEndian.Uint64(b[:])
}
