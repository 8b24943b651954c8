// Package cosi holds the resource state of an emulated Talos node: the resources that the node's API serves under
// cosi.resource.State, made of what a real node showed (the recordings) and of what the emulated node really is.
package cosi

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"sync"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/resource/meta"
	"github.com/cosi-project/runtime/pkg/resource/typed"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/cosi-project/runtime/pkg/state/impl/inmem"
	"github.com/cosi-project/runtime/pkg/state/impl/namespaced"
	coreconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
)

// Kind selects which recorded set of resources a node shows beneath its live ones.
type Kind int

// The recorded states of a node.
const (
	// Maintenance is a node without a complete machine config.
	Maintenance Kind = iota
	// ControlPlane is a configured control-plane node whose etcd does not run: before bootstrap, or after it left.
	ControlPlane
	// ControlPlaneRunning is a control-plane node whose etcd member is healthy, so that its static pods are rendered.
	ControlPlaneRunning
	// Worker is a configured worker.
	Worker
)

// String names the kind.
func (k Kind) String() string {
	switch k {
	case Maintenance:
		return "maintenance"
	case ControlPlane:
		return "configured-controlplane"
	case ControlPlaneRunning:
		return "running-controlplane"
	case Worker:
		return "running-worker"
	}

	return fmt.Sprintf("Kind(%d)", int(k))
}

// A store keeps few old events: watchers of a node read as fast as the node writes, and a long history of every type
// would be the largest part of a node's memory.
const (
	historyInitial = 1
	historyMax     = 128
	historyGap     = 1
)

// Store is the resource state of one node. The setters say what the node really is; everything that no setter has
// touched is shown as recorded, rewritten to the node's own names and addresses. All methods are safe for concurrent
// use.
type Store struct {
	state    state.State
	identity Identity

	mu   sync.Mutex
	kind Kind
	// taken are the types that a setter owns: the recorded resources no longer show through.
	taken map[resource.Type]struct{}
	// shown are the recorded resources that are currently visible.
	shown map[pointer]struct{}
	live  live
	// created are the resources that are shown beside the recorded ones of their types.
	created map[pointer]bool
	faults  NetworkFaults
	// links are those of the config, indexes the names of all that were ever there beside the recorded one.
	links   []link
	indexes []string
	// held are the virtual IPs that the node has, ever all addresses of the config in this boot. Moved says that the
	// node's own address is not where it was recorded.
	held  []netip.Addr
	ever  []netip.Prefix
	moved bool
	// attempts counts how often peers of KubeSpan were shown, and with it the endpoints that were tried.
	attempts int
	// amended say of single recorded resources what is otherwise on this node.
	amended map[pointer]func(resource.Resource)
}

// live is what the node has said of itself and what other resources follow from.
type live struct {
	config  coreconfig.Config
	members []Member
}

// pointer names one resource; all resources of a type that a node holds live in the type's default namespace.
type pointer struct {
	typ resource.Type
	id  resource.ID
}

func (p pointer) metadata() resource.Metadata {
	return resource.NewMetadata(defaultNamespace(p.typ), p.typ, p.id, resource.VersionUndefined)
}

// NewStore makes the state of a node that has just been powered on: in maintenance mode, until SetStage says more.
func NewStore(identity Identity) (*Store, error) {
	identity, err := identity.complete()
	if err != nil {
		return nil, err
	}

	definitions, err := registered()
	if err != nil {
		return nil, err
	}

	s := &Store{
		identity: identity,
		taken:    map[resource.Type]struct{}{},
		shown:    map[pointer]struct{}{},
		amended:  map[pointer]func(resource.Resource){},
		created:  map[pointer]bool{},
	}

	first, err := recordedResources(Maintenance, identity)
	if err != nil {
		return nil, err
	}

	for _, r := range first {
		s.shown[pointerTo(r)] = struct{}{}
	}

	s.state = state.WrapCore(namespaced.NewState(func(ns resource.Namespace) state.CoreState {
		if ns == meta.NamespaceName {
			return definitions
		}

		return inmem.NewStateWithOptions(
			inmem.WithHistoryInitialCapacity(historyInitial),
			inmem.WithHistoryMaxCapacity(historyMax),
			inmem.WithHistoryGap(historyGap),
			inmem.WithBackingStore(byNamespace(first, ns)),
		)(ns)
	}))

	s.SetMachineType(machine.TypeUnknown)
	s.derive()

	if len(identity.MoreLinks) > 0 {
		s.mu.Lock()
		s.showLinks()
		s.mu.Unlock()
	}

	return s, nil
}

// State returns the node's resources, readable and writable. What a client may see of it is decided by Filter.
func (s *Store) State() state.State {
	return s.state
}

// SetStage changes which recorded resources are shown. Resources that a setter owns stay as they are.
func (s *Store) SetStage(kind Kind) error {
	s.mu.Lock()
	defer s.mu.Unlock()

	if kind == s.kind {
		return nil
	}

	s.kind = kind

	return s.showRecorded()
}

// showRecorded makes the recorded resources of the current kind visible, and no others.
func (s *Store) showRecorded() error {
	next, err := recordedResources(s.kind, s.identity)
	if err != nil {
		return err
	}

	next = slices.DeleteFunc(next, s.lacks)
	keep := make(map[pointer]struct{}, len(next))
	for _, r := range next {
		keep[pointerTo(r)] = struct{}{}
	}

	for p := range s.shown {
		if _, ok := keep[p]; ok || s.owned(p.typ) {
			continue
		}

		if err := s.destroy(p.metadata()); err != nil {
			return err
		}

		delete(s.shown, p)
	}

	for _, r := range next {
		if s.owned(r.Metadata().Type()) {
			continue
		}

		if err := s.put(s.amend(r)); err != nil {
			return err
		}

		s.shown[pointerTo(r)] = struct{}{}
	}

	return nil
}

// amend returns a recorded resource as it is on this node; nodes share the recorded ones.
func (s *Store) amend(r resource.Resource) resource.Resource {
	r, suffers := s.suffer(r)

	change, ok := s.amended[pointerTo(r)]
	if !ok {
		return r
	}

	if !suffers {
		r = r.DeepCopy()
	}

	change(r)

	return r
}

// Amend changes one recorded resource wherever it is shown, now and in the stages to come; doing so twice must be the
// same as once. The others of its type stay as recorded.
func (s *Store) Amend(typ resource.Type, id resource.ID, change func(resource.Resource)) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.amendShown(typ, id, change)
}

// amendShown is Amend for callers that hold s.mu.
func (s *Store) amendShown(typ resource.Type, id resource.ID, change func(resource.Resource)) {
	p := pointer{typ, id}
	s.amended[p] = change

	if _, shown := s.shown[p]; !shown {
		return
	}

	current, err := s.state.Get(context.Background(), p.metadata())
	must(err)
	must(s.put(s.amend(current)))
}

// besides shows resources of a type next to the recorded ones, and no others that it has shown before; the caller holds
// s.mu.
func (s *Store) besides(typ resource.Type, resources ...resource.Resource) {
	next := map[pointer]bool{}

	for _, r := range resources {
		next[pointerTo(r)] = true
		must(s.put(r))
	}

	for p := range s.created {
		if p.typ == typ && !next[p] {
			must(s.destroy(p.metadata()))
			delete(s.created, p)
		}
	}

	maps.Copy(s.created, next)
}

// Set creates or updates resources. Their types are the caller's from now on: recorded resources of the same types
// disappear. A resource that already says the same is left alone, so that watchers see real changes only.
func (s *Store) Set(resources ...resource.Resource) {
	s.mu.Lock()
	defer s.mu.Unlock()

	keep := make(map[pointer]struct{}, len(resources))
	for _, r := range resources {
		keep[pointerTo(r)] = struct{}{}
	}

	for _, r := range resources {
		s.own(r.Metadata().Type(), keep)
		must(s.put(r))
	}
}

// Renew is Set for what a node writes anew although nothing has changed: each call is another version.
func (s *Store) Renew(r resource.Resource) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.own(r.Metadata().Type(), map[pointer]struct{}{pointerTo(r): {}})
	must(s.write(r, true))
}

// Unset removes resources of a type.
func (s *Store) Unset(typ resource.Type, ids ...resource.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.own(typ, nil)

	for _, id := range ids {
		must(s.destroy(pointer{typ, id}.metadata()))
	}
}

// Replace makes the given resources all that exist of a type.
func (s *Store) Replace(typ resource.Type, resources ...resource.Resource) {
	s.mu.Lock()
	defer s.mu.Unlock()

	keep := make(map[pointer]struct{}, len(resources))
	for _, r := range resources {
		keep[pointerTo(r)] = struct{}{}
	}

	s.own(typ, keep)

	list, err := s.state.List(context.Background(), pointer{typ: typ}.metadata())
	must(err)

	for _, r := range list.Items {
		if _, ok := keep[pointerTo(r)]; !ok {
			must(s.destroy(*r.Metadata()))
		}
	}

	for _, r := range resources {
		must(s.put(r))
	}
}

// show makes what one makes of each entry all that exists of a type.
func show[K, V any](s *Store, typ resource.Type, entries iter.Seq2[K, V], one func(K, V) resource.Resource) {
	var all []resource.Resource

	for key, value := range entries {
		all = append(all, one(key, value))
	}

	s.Replace(typ, all...)
}

// withSpec returns a resource that says what a spec says.
func withSpec[T typed.DeepCopyable[T], E typed.Extension](r *typed.Resource[T, E], spec T) resource.Resource {
	*r.TypedSpec() = spec

	return r
}

func (s *Store) owned(typ resource.Type) bool {
	_, ok := s.taken[typ]

	return ok
}

// own takes a type over from the recordings. The first time, what was recorded of it disappears, except what the caller
// is about to overwrite.
func (s *Store) own(typ resource.Type, keep map[pointer]struct{}) {
	if s.owned(typ) {
		return
	}

	s.taken[typ] = struct{}{}

	for p := range s.shown {
		if p.typ != typ {
			continue
		}

		delete(s.shown, p)

		if _, ok := keep[p]; !ok {
			must(s.destroy(p.metadata()))
		}
	}
}

// put makes a resource say what it shall, unless it does already.
func (s *Store) put(r resource.Resource) error { return s.write(r, false) }

func (s *Store) write(r resource.Resource, always bool) error {
	ctx := context.Background()

	current, err := s.state.Get(ctx, r.Metadata())
	if state.IsNotFoundError(err) {
		fresh := r.DeepCopy()
		owner := fresh.Metadata().Owner()

		if owner == "" {
			owner = ownerOf(r.Metadata().Type())
		}

		if err := s.state.Create(ctx, fresh, state.WithCreateOwner(owner)); err != nil {
			return fmt.Errorf("creating %s: %w", r.Metadata(), err)
		}

		return nil
	}

	if err != nil {
		return fmt.Errorf("reading %s: %w", r.Metadata(), err)
	}

	if !always && reflect.DeepEqual(current.Spec(), r.Spec()) {
		return nil
	}

	next := r.DeepCopy()
	owner := current.Metadata().Owner()
	*next.Metadata() = *current.Metadata()

	if err := s.state.Update(ctx, next, state.WithUpdateOwner(owner)); err != nil {
		return fmt.Errorf("updating %s: %w", r.Metadata(), err)
	}

	return nil
}

func (s *Store) destroy(md resource.Metadata) error {
	ctx := context.Background()

	current, err := s.state.Get(ctx, md)
	if state.IsNotFoundError(err) {
		return nil
	}

	if err != nil {
		return fmt.Errorf("reading %s: %w", md, err)
	}

	owner := current.Metadata().Owner()

	// Recorded resources carry the finalizers of the real controllers, which would have let go by now.
	if fins := current.Metadata().Finalizers(); !fins.Empty() {
		fins.Set(nil)

		if err := s.state.Update(ctx, current, state.WithUpdateOwner(owner), state.WithExpectedPhaseAny()); err != nil {
			return fmt.Errorf("releasing %s: %w", md, err)
		}
	}

	if err := s.state.Destroy(ctx, md, state.WithDestroyOwner(owner)); err != nil && !state.IsNotFoundError(err) {
		return fmt.Errorf("destroying %s: %w", md, err)
	}

	return nil
}

func pointerTo(r resource.Resource) pointer {
	return pointer{typ: r.Metadata().Type(), id: r.Metadata().ID()}
}

// must reports the impossible: writes to a node's state go through the store's lock, so that none can conflict.
func must(err error) {
	if err != nil {
		panic(fmt.Errorf("lab/cosi: %w", err))
	}
}
