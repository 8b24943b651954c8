package node

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config/machine"

	"github.com/talos-operator/talos-operator/lab/apid"
	"github.com/talos-operator/talos-operator/lab/kubernetes"
	"github.com/talos-operator/talos-operator/lab/node/quorum"
)

// affiliateTTL is how long discovery remembers a node that it no longer hears of.
const affiliateTTL = 30 * time.Minute

// Registry stands in for the discovery service of an estate, and for the network between its nodes: it knows the
// nodes of each cluster, and which of them can be reached. Nodes see each other only where the cluster's ID and its
// secret are the same.
type Registry struct {
	model   *quorum.Model
	network *apid.Network

	mu       sync.Mutex
	clusters map[clusterKey]map[string]*affiliate // by node ID
	watchers map[*Node]clusterKey
	objects  map[clusterKey]*kubernetes.ModelNodes // of modelled clusters
}

// clusterKey is what the nodes of a cluster share. The secret encrypts what they tell each other.
type clusterKey struct{ id, secret string }

// affiliate is what a node last told discovery of itself.
type affiliate struct {
	node        *Node
	nodeID      string
	hostname    string
	address     string
	machineType machine.Type
	version     string
	heard       time.Time
	online      bool
}

// NewRegistry returns an empty registry.
func NewRegistry() *Registry {
	return &Registry{
		model:    quorum.NewModel(),
		network:  &apid.Network{},
		clusters: map[clusterKey]map[string]*affiliate{},
		watchers: map[*Node]clusterKey{},
		objects:  map[clusterKey]*kubernetes.ModelNodes{},
	}
}

// modelNodes are the Node objects of a modelled cluster.
func (r *Registry) modelNodes(key clusterKey) *kubernetes.ModelNodes {
	r.mu.Lock()
	defer r.mu.Unlock()

	if r.objects[key] == nil {
		r.objects[key] = &kubernetes.ModelNodes{}
	}

	return r.objects[key]
}

// Network is what stands between the nodes' machine APIs, for partitions between some of them.
func (r *Registry) Network() *apid.Network { return r.network }

// Etcd is the etcd of all modelled nodes.
func (r *Registry) Etcd() *quorum.Model { return r.model }

// announce tells the cluster about a node.
func (r *Registry) announce(key clusterKey, a affiliate) {
	r.mu.Lock()

	if r.clusters[key] == nil {
		r.clusters[key] = map[string]*affiliate{}
	}

	a.heard, a.online = time.Now(), true
	r.clusters[key][a.nodeID] = &a
	r.watchers[a.node] = key

	r.notifyAndUnlock(key)
}

// silence says that a node is no longer heard of; discovery remembers it for a while.
func (r *Registry) silence(n *Node) {
	r.mu.Lock()

	key, ok := r.watchers[n]
	if !ok {
		r.mu.Unlock()

		return
	}

	delete(r.watchers, n)

	for _, a := range r.clusters[key] {
		if a.node == n && a.online {
			a.online, a.heard = false, time.Now()
		}
	}

	r.notifyAndUnlock(key)
}

// withdraw makes discovery forget a node, as a node asks for when it is reset.
func (r *Registry) withdraw(n *Node) {
	r.mu.Lock()

	key, ok := r.watchers[n]
	if !ok {
		r.mu.Unlock()

		return
	}

	delete(r.watchers, n)

	for id, a := range r.clusters[key] {
		if a.node == n {
			delete(r.clusters[key], id)
		}
	}

	r.notifyAndUnlock(key)
}

// notify wakes the nodes of a cluster, because one of them changed.
func (r *Registry) notify(key clusterKey) {
	r.mu.Lock()
	r.notifyAndUnlock(key)
}

func (r *Registry) notifyAndUnlock(key clusterKey) {
	var nodes []*Node

	// An estate has many more nodes than one cluster.
	for _, a := range r.clusters[key] {
		if r.watchers[a.node] == key {
			nodes = append(nodes, a.node)
		}
	}

	r.mu.Unlock()

	for _, n := range nodes {
		n.clusterChanged()
	}
}

// affiliates returns what discovery knows of a cluster, sorted by name. Of two nodes with one name the last one heard
// of counts.
func (r *Registry) affiliates(key clusterKey) []affiliate {
	r.mu.Lock()
	defer r.mu.Unlock()

	byName := map[string]affiliate{}

	for id, a := range r.clusters[key] {
		if !a.online && time.Since(a.heard) > affiliateTTL {
			delete(r.clusters[key], id)

			continue
		}

		if other, ok := byName[a.hostname]; !ok || other.heard.Before(a.heard) {
			byName[a.hostname] = *a
		}
	}

	list := make([]affiliate, 0, len(byName))
	for _, a := range byName {
		list = append(list, a)
	}

	slices.SortFunc(list, func(a, b affiliate) int { return cmp.Compare(a.hostname, b.hostname) })

	return list
}

// controlPlanes returns the other control-plane nodes of a cluster that can be reached from n.
func (r *Registry) controlPlanes(key clusterKey, n *Node) []*Node {
	r.mu.Lock()

	var nodes []*Node

	for _, a := range r.clusters[key] {
		if a.online && a.node != n && a.machineType.IsControlPlane() {
			nodes = append(nodes, a.node)
		}
	}

	r.mu.Unlock()

	nodes = slices.DeleteFunc(nodes, func(other *Node) bool { return !other.reachable() })
	slices.SortFunc(nodes, func(a, b *Node) int { return cmp.Compare(a.Address(), b.Address()) })

	return nodes
}
