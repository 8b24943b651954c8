package cosi

import (
	"context"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"sync"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/state/impl/inmem"
	"github.com/siderolabs/talos/pkg/machinery/resources/cluster"
	"github.com/siderolabs/talos/pkg/machinery/resources/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/etcd"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"github.com/siderolabs/talos/pkg/machinery/resources/v1alpha1"
)

// The versions that the recorded nodes ran.
const (
	recordedVersion    = "v1.13.9"
	recordedKubernetes = "v1.36.3"
)

// alwaysLive are the types of which nothing recorded is ever shown: a node that has not said what it is must not look
// like a healthy one.
func alwaysLive() []resource.Type {
	return []resource.Type{
		cluster.AffiliateType, cluster.InfoType, cluster.MemberType,
		config.MachineConfigType, config.MachineTypeType,
		etcd.MemberType,
		k8s.EndpointType, k8s.KubePrismConfigType, k8s.KubePrismEndpointsType,
		runtime.MachineStatusType, runtime.ServicePIDType,
		v1alpha1.ServiceType,
	}
}

// afterEtcd are the types that a control-plane node shows only while its etcd is healthy.
func afterEtcd() []resource.Type {
	return []resource.Type{k8s.StaticPodType, k8s.ManifestStatusType}
}

// base is one recording made ready for nodes: what is the same on every node is decoded once and shared.
type base struct {
	node   recordedNode
	shared []resource.Resource
	own    []ownItem
}

// ownItem is a recorded resource that names the node that it was recorded on.
type ownItem struct {
	typ  resource.Type
	item RecordedItem
}

var bases = struct {
	mu     sync.Mutex
	byKind map[Kind]*base
}{byKind: map[Kind]*base{}}

func baseOf(kind Kind) (*base, error) {
	bases.mu.Lock()
	defer bases.mu.Unlock()

	if b, ok := bases.byKind[kind]; ok {
		return b, nil
	}

	b, err := loadBase(kind)
	if err != nil {
		return nil, fmt.Errorf("loading the recorded resources of a node in state %s: %w", kind, err)
	}

	bases.byKind[kind] = b

	return b, nil
}

func loadBase(kind Kind) (*base, error) {
	b := &base{node: recordedNodes()[kind]}

	recording, err := Recorded(b.node.recording)
	if err != nil {
		return nil, err
	}

	more, err := supplements()
	if err != nil {
		return nil, err
	}

	// Any identity but the recorded one shows which resources speak of their node.
	stranger, err := Identity{
		Hostname: "stranger", Address: netip.MustParsePrefix("192.0.2.9/27"), Link: "lan",
		TalosVersion: "v0", KubernetesVersion: "v0",
	}.complete()
	if err != nil {
		return nil, err
	}

	probe := newRewriter(b.node, stranger)

	for typ, recorded := range recording {
		if _, known := definitionsByType()[typ]; !known || hidden(kind, typ) {
			continue
		}

		for _, item := range slices.Concat(recorded.Items, more[b.node.recording][typ]) {
			if probe.text(item.ID) != item.ID || probe.node(&item.Spec) != &item.Spec {
				b.own = append(b.own, ownItem{typ: typ, item: item})

				continue
			}

			r, err := decode(typ, item)
			if err != nil {
				return nil, err
			}

			b.shared = append(b.shared, r)
		}
	}

	return b, nil
}

func hidden(kind Kind, typ resource.Type) bool {
	return slices.Contains(alwaysLive(), typ) || kind == ControlPlane && slices.Contains(afterEtcd(), typ)
}

// recordedResources returns what a node of this identity shows before it says anything itself.
func recordedResources(kind Kind, identity Identity) ([]resource.Resource, error) {
	b, err := baseOf(kind)
	if err != nil {
		return nil, err
	}

	rewrite := newRewriter(b.node, identity)
	all := slices.Clone(b.shared)

	for _, own := range b.own {
		item := own.item
		item.ID = rewrite.text(item.ID)
		item.Spec = *rewrite.node(&item.Spec)

		r, err := decode(own.typ, item)
		if err != nil {
			return nil, err
		}

		all = append(all, r)
	}

	return all, nil
}

// decode makes a typed resource of a recorded one.
func decode(typ resource.Type, item RecordedItem) (resource.Resource, error) {
	r, err := newResource(typ)
	if err != nil {
		return nil, err
	}

	md := resource.NewMetadata(item.Namespace, typ, item.ID, firstVersion)
	for _, f := range item.Finalizers {
		md.Finalizers().Add(f)
	}

	if err := md.SetOwner(item.Owner); err != nil {
		return nil, fmt.Errorf("decoding the recorded %s %s: %w", typ, item.ID, err)
	}

	*r.Metadata() = md

	if err := decodeSpec(r, &item.Spec); err != nil {
		return nil, fmt.Errorf("decoding the recorded %s %s: %w", typ, item.ID, err)
	}

	return r, nil
}

var firstVersion = func() resource.Version {
	v, err := resource.ParseVersion("1")
	must(err)

	return v
}()

var prototypes = sync.OnceValue(func() map[resource.Type]reflect.Type {
	all := map[resource.Type]reflect.Type{}

	for _, r := range types() {
		all[r.ResourceDefinition().Type] = reflect.TypeOf(r).Elem()
	}

	return all
})

func newResource(typ resource.Type) (resource.Resource, error) {
	proto, ok := prototypes()[typ]
	if !ok {
		return nil, fmt.Errorf("resource type %s is not registered", typ)
	}

	r, ok := reflect.New(proto).Interface().(resource.Resource)
	if !ok {
		return nil, fmt.Errorf("%s is not a resource", proto)
	}

	return r, nil
}

// owners are the controllers that own the resources of each type on a real node.
var owners = sync.OnceValue(func() map[resource.Type]resource.Owner {
	all := map[resource.Type]resource.Owner{}

	for _, node := range recordedNodes() {
		recording, err := Recorded(node.recording)
		must(err)

		for typ, recorded := range recording {
			for _, item := range recorded.Items {
				if item.Owner != "" {
					all[typ] = item.Owner
				}
			}
		}
	}

	return all
})

func ownerOf(typ resource.Type) resource.Owner {
	return owners()[typ]
}

// injected is a backing store that hands its resources to a new state as they are. Unlike resources that are created,
// they are not copied, so that all nodes can share the ones that never change.
type injected []resource.Resource

func byNamespace(all []resource.Resource, ns resource.Namespace) injected {
	var some injected

	for _, r := range all {
		if r.Metadata().Namespace() == ns {
			some = append(some, r)
		}
	}

	return some
}

// Load implements inmem.BackingStore.
func (i injected) Load(_ context.Context, handler inmem.LoadHandler) error {
	for _, r := range i {
		if err := handler(r.Metadata().Type(), r); err != nil {
			return err
		}
	}

	return nil
}

// Put implements inmem.BackingStore; nothing outlives the process.
func (injected) Put(context.Context, resource.Type, resource.Resource) error {
	return nil
}

// Destroy implements inmem.BackingStore.
func (injected) Destroy(context.Context, resource.Type, resource.Pointer) error {
	return nil
}
