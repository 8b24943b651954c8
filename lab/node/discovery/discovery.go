// Package discovery stands in for the discovery service of a lab: it knows the nodes of each cluster. Nodes see
// each other only where the cluster's ID and its secret are the same.
package discovery

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config/machine"
)

// ttl is how long discovery remembers a node that it no longer hears of.
const ttl = 30 * time.Minute

// Node is one that discovery knows.
type Node interface {
	comparable
	Address() string
	// Reachable reports whether the node is on and on the network.
	Reachable() bool
	// ClusterChanged is called when something about the other nodes of the cluster changed.
	ClusterChanged()
}

// Key is what the nodes of a cluster share. The secret encrypts what they tell each other.
type Key struct{ ID, Secret string }

// Affiliate is what a node last told discovery of itself.
type Affiliate[N Node] struct {
	Node                  N
	ID, Hostname, Address string
	MachineType           machine.Type
	Version               string
	// KubeSpan: the node publishes a key, so that the others may reach it through KubeSpan.
	KubeSpan bool

	heard  time.Time
	online bool
}

// Service is the discovery service.
type Service[N Node] struct {
	mu       sync.Mutex
	clusters map[Key]map[string]*Affiliate[N] // by node ID
	watchers map[N]Key
}

// New returns a service that knows no node.
func New[N Node]() *Service[N] {
	return &Service[N]{clusters: map[Key]map[string]*Affiliate[N]{}, watchers: map[N]Key{}}
}

// Announce tells the cluster about a node.
func (s *Service[N]) Announce(key Key, a Affiliate[N]) {
	s.mu.Lock()

	if s.clusters[key] == nil {
		s.clusters[key] = map[string]*Affiliate[N]{}
	}

	a.heard, a.online = time.Now(), true
	s.clusters[key][a.ID] = &a
	s.watchers[a.Node] = key

	s.notifyAndUnlock(key)
}

// Silence says that a node is no longer heard of; discovery remembers it for a while.
func (s *Service[N]) Silence(n N) {
	s.end(n, func(_ map[string]*Affiliate[N], _ string, a *Affiliate[N]) {
		if a.online {
			a.online, a.heard = false, time.Now()
		}
	})
}

// Withdraw makes discovery forget a node, as a node asks for when it is reset.
func (s *Service[N]) Withdraw(n N) {
	s.end(n, func(cluster map[string]*Affiliate[N], id string, _ *Affiliate[N]) { delete(cluster, id) })
}

// end takes a node off those that hear of the others, and does the rest to what it has told of itself.
func (s *Service[N]) end(n N, rest func(cluster map[string]*Affiliate[N], id string, a *Affiliate[N])) {
	s.mu.Lock()

	key, ok := s.watchers[n]
	if !ok {
		s.mu.Unlock()

		return
	}

	delete(s.watchers, n)

	for id, a := range s.clusters[key] {
		if a.Node == n {
			rest(s.clusters[key], id, a)
		}
	}

	s.notifyAndUnlock(key)
}

// Notify wakes the nodes of a cluster, because one of them changed.
func (s *Service[N]) Notify(key Key) {
	s.mu.Lock()
	s.notifyAndUnlock(key)
}

func (s *Service[N]) notifyAndUnlock(key Key) {
	var nodes []N

	// A lab has many more nodes than one cluster.
	for _, a := range s.clusters[key] {
		if s.watchers[a.Node] == key {
			nodes = append(nodes, a.Node)
		}
	}

	s.mu.Unlock()

	for _, n := range nodes {
		n.ClusterChanged()
	}
}

// Affiliates returns what discovery knows of a cluster, sorted by name. Of two nodes with one name the last one heard
// of counts.
func (s *Service[N]) Affiliates(key Key) []Affiliate[N] {
	s.mu.Lock()
	defer s.mu.Unlock()

	byName := map[string]Affiliate[N]{}

	for id, a := range s.clusters[key] {
		if !a.online && time.Since(a.heard) > ttl {
			delete(s.clusters[key], id)

			continue
		}

		if other, ok := byName[a.Hostname]; !ok || other.heard.Before(a.heard) {
			byName[a.Hostname] = *a
		}
	}

	return slices.SortedFunc(maps.Values(byName), func(a, b Affiliate[N]) int {
		return cmp.Compare(a.Hostname, b.Hostname)
	})
}

// ControlPlanes returns the other control-plane nodes of a cluster that can be reached from n, by address.
func (s *Service[N]) ControlPlanes(key Key, n N) []N {
	s.mu.Lock()

	var nodes []N

	for _, a := range s.clusters[key] {
		if a.online && a.Node != n && a.MachineType.IsControlPlane() {
			nodes = append(nodes, a.Node)
		}
	}

	s.mu.Unlock()

	nodes = slices.DeleteFunc(nodes, func(other N) bool { return !other.Reachable() })
	slices.SortFunc(nodes, func(a, b N) int { return cmp.Compare(a.Address(), b.Address()) })

	return nodes
}
