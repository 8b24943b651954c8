package harness

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// Memory is what the API server has answered to the clients of one process, for as long as none of them writes it.
// Controllers read the same objects many times in each pass, from a cache; without one, that is three quarters of the
// requests of a test. What is remembered has been read since the last write, so unlike a cache it is never behind.
// It is for namespaces in which only these clients write.
type Memory struct {
	mu     sync.Mutex
	answer map[id]answer
	writes map[id]int
	listed map[place]map[string]bool // the names in a namespace, which may have more than there are
	moves  map[place]int
	epoch  int // of writes whose objects are not known
}

// place is where a list looks.
type place struct {
	kind      schema.GroupVersionKind
	namespace string
}

type id struct {
	place

	name string
}

// answer is an object, or that there is none.
type answer struct {
	object client.Object
	err    error
}

// NewMemory returns an empty Memory.
func NewMemory() *Memory {
	return &Memory{
		answer: map[id]answer{}, writes: map[id]int{},
		listed: map[place]map[string]bool{}, moves: map[place]int{},
	}
}

// Remembering is a client of one user that reads from the memory. What a user was never allowed to read in any
// namespace, the API server answers.
func (m *Memory) Remembering(c client.WithWatch) client.WithWatch {
	return &remembering{WithWatch: c, memory: m, may: map[grant]bool{}}
}

// grant is what a user may do.
type grant struct {
	verb string
	kind schema.GroupVersionKind
}

type remembering struct {
	client.WithWatch

	memory *Memory
	mu     sync.Mutex
	may    map[grant]bool
}

func (r *remembering) allowed(verb string, kind schema.GroupVersionKind) bool {
	r.mu.Lock()
	defer r.mu.Unlock()

	return r.may[grant{verb, kind}]
}

func (r *remembering) allow(verb string, kind schema.GroupVersionKind) {
	r.mu.Lock()
	defer r.mu.Unlock()

	r.may[grant{verb, kind}] = true
}

// kindOf is that of an object, and whether it is one of those that are remembered: Secrets and the operator's own, with
// their Go types. Others may be written by what plays the API server of a cluster.
func (r *remembering) kindOf(o runtime.Object) (schema.GroupVersionKind, bool) {
	kinds, _, err := r.Scheme().ObjectKinds(o)
	if err != nil || len(kinds) != 1 {
		return schema.GroupVersionKind{}, false
	}

	switch o.(type) {
	case runtime.Unstructured, *metav1.PartialObjectMetadata, *metav1.PartialObjectMetadataList:
		return kinds[0], false
	case *corev1.Secret, *corev1.SecretList:
		return kinds[0], true
	default:
		return kinds[0], kinds[0].Group == v1alpha1.GroupVersion.Group
	}
}

// Get implements client.Reader.
func (r *remembering) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	kind, typed := r.kindOf(o)
	if !typed || key.Namespace == "" || len(opts) > 0 {
		return r.WithWatch.Get(ctx, key, o, opts...)
	}

	which := id{place{kind, key.Namespace}, key.Name}

	r.memory.mu.Lock()
	known, ok := r.memory.answer[which]
	writes := r.memory.writes[which] + r.memory.epoch
	r.memory.mu.Unlock()

	if ok && ctx.Err() == nil && r.allowed("get", kind) {
		if known.err == nil {
			reflect.ValueOf(o).Elem().Set(reflect.ValueOf(known.object.DeepCopyObject()).Elem())
		}

		return known.err
	}

	err := r.WithWatch.Get(ctx, key, o)
	if client.IgnoreNotFound(err) == nil {
		r.allow("get", kind)
		r.memory.keep(which, o, err, writes)
	}

	return err
}

// keep remembers an answer, unless the object was written since the question.
func (m *Memory) keep(which id, o client.Object, err error, writes int) {
	m.mu.Lock()
	defer m.mu.Unlock()

	if m.writes[which]+m.epoch != writes {
		return
	}

	m.answer[which] = answer{o.DeepCopyObject().(client.Object), err}
	if err != nil {
		delete(m.listed[which.place], which.name)
	}
}

// List implements client.Reader.
func (r *remembering) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	o := (&client.ListOptions{}).ApplyOptions(opts)
	kind, typed := r.kindOf(list)

	if !typed || o.Namespace == "" || o.FieldSelector != nil || o.Limit != 0 || o.Continue != "" || o.Raw != nil {
		return r.WithWatch.List(ctx, list, opts...)
	}

	kind.Kind = strings.TrimSuffix(kind.Kind, "List")
	where := place{kind, o.Namespace}

	names, moves := r.memory.names(where)
	if names == nil || !r.allowed("list", kind) || !r.allowed("get", kind) {
		if o.LabelSelector != nil && !o.LabelSelector.Empty() {
			return r.WithWatch.List(ctx, list, opts...)
		}

		if err := r.WithWatch.List(ctx, list, client.InNamespace(o.Namespace)); err != nil {
			return err
		}

		r.allow("list", kind)

		return r.memory.keepAll(where, list, moves)
	}

	return r.collect(ctx, where, names, list, o)
}

// names are those of all objects at a place, nil if that is not known.
func (m *Memory) names(where place) (names []string, moves int) {
	m.mu.Lock()
	defer m.mu.Unlock()

	if m.listed[where] == nil {
		return nil, m.moves[where] + m.epoch
	}

	names = []string{}
	for name := range m.listed[where] {
		names = append(names, name)
	}

	slices.Sort(names)

	return names, m.moves[where] + m.epoch
}

// keepAll remembers what is at a place, unless anything was written there since the question.
func (m *Memory) keepAll(where place, list client.ObjectList, moves int) error {
	m.mu.Lock()
	defer m.mu.Unlock()

	if m.moves[where]+m.epoch != moves {
		return nil
	}

	names := map[string]bool{}

	err := meta.EachListItem(list, func(o runtime.Object) error {
		one := o.DeepCopyObject().(client.Object)
		names[one.GetName()] = true
		m.answer[id{where, one.GetName()}] = answer{object: one}

		return nil
	})
	m.listed[where] = names

	return err
}

// collect fills a list with the objects of these names that still exist and that the labels select.
func (r *remembering) collect(
	ctx context.Context, where place, names []string, list client.ObjectList, o *client.ListOptions,
) error {
	var items []runtime.Object

	for _, name := range names {
		one, err := r.Scheme().New(where.kind)
		if err != nil {
			return err
		}

		item := one.(client.Object)

		err = r.Get(ctx, client.ObjectKey{Namespace: where.namespace, Name: name}, item)

		switch {
		case apierrors.IsNotFound(err):
			continue
		case err != nil:
			return err
		}

		if o.LabelSelector == nil || o.LabelSelector.Matches(labels.Set(item.GetLabels())) {
			items = append(items, item)
		}
	}

	return meta.SetList(list, items)
}

// forget an object whose write begins or has ended: a question in between may have got either answer.
func (m *Memory) forget(which id) {
	m.mu.Lock()
	defer m.mu.Unlock()

	delete(m.answer, which)
	m.writes[which]++
	m.moves[which.place]++

	// The API server chooses a name that is not known yet.
	if names := m.listed[which.place]; names != nil && which.name != "" {
		names[which.name] = true
	}
}

// forgetAll forgets everything, for a write whose objects are not known.
func (m *Memory) forgetAll() {
	m.mu.Lock()
	defer m.mu.Unlock()

	clear(m.answer)
	clear(m.listed)

	m.epoch++
}
