package node

import (
	"sync"

	"github.com/talos-operator/talos-operator/lab/apid"
	"github.com/talos-operator/talos-operator/lab/kubernetes"
	"github.com/talos-operator/talos-operator/lab/node/discovery"
	"github.com/talos-operator/talos-operator/lab/node/quorum"
)

// Registry is what the nodes of a lab share: the discovery service, the network between them, and what is modelled.
type Registry struct {
	nodes   *discovery.Service[*Node]
	model   *quorum.Model
	network *apid.Network
	virtual virtualIPs

	mu      sync.Mutex
	objects map[discovery.Key]*kubernetes.ModelNodes // of modelled clusters
}

// NewRegistry returns an empty registry.
func NewRegistry() *Registry {
	return &Registry{
		nodes: discovery.New[*Node](), model: quorum.NewModel(), network: &apid.Network{},
		objects: map[discovery.Key]*kubernetes.ModelNodes{},
		virtual: virtualIPs{owners: map[virtualIP]*session{}},
	}
}

// modelNodes are the Node objects of a modelled cluster.
func (r *Registry) modelNodes(key discovery.Key) *kubernetes.ModelNodes {
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
