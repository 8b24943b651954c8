package shard

import (
	"context"
	"fmt"
	"maps"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/kube"
)

const (
	// again is how soon a refused object is reconciled again; an event may do so earlier.
	again = time.Minute
	// page is how many objects a list that confirms an absence returns at a time.
	page = 500
	// deepest is more than the generations of owners between a machine and its cluster.
	deepest = 4
)

// View is the client of the manager of one shard. What it reads is complete for each cluster of the shard, although its
// cache holds the objects of the shard only: what the cache lacks is looked for at the API server before it counts as
// absent. What it creates or applies gets the label of the shard.
type View struct {
	// Client reads from the cache of the shard, whose informers Ledger makes.
	client.Client
	// Live reads from the API server.
	Live client.Reader
	// Addresses lists TalosMachines of all shards by address.
	Addresses client.Reader
	Ledger    *Ledger
	// Shard is the label of the shard.
	Shard string
}

// Get implements client.Reader. An object is NotFound if it does not exist. One of another shard, or of a cluster whose
// objects are not all in this shard, is an error with the reason OtherShard.
func (v *View) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	err := v.Client.Get(ctx, key, o, opts...)
	if named(o) == "" {
		return err
	}

	if apierrors.IsNotFound(err) {
		err = v.Live.Get(ctx, key, o)
	}

	if err != nil {
		return err
	}

	return v.check(ctx, o)
}

// check refuses an object that is not this shard's, or that belongs to one that is not.
func (v *View) check(ctx context.Context, o client.Object) error {
	of, err := v.stray(ctx, o, v.Shard)
	if err != nil || of == nil {
		return err
	}

	refused := refusal(o, of, of.GetLabels()[Label], v.Shard)

	if at := o.GetLabels()[Label]; at != v.Shard {
		_, valid := Number(at)
		torn, err := v.stray(ctx, o, at)
		refused.Left = valid
		refused.Elsewhere = valid && err == nil && torn == nil
	}

	return refused
}

// stray returns an object, or the first one that it belongs to, if that is not in a shard; nil if all of them are.
func (v *View) stray(ctx context.Context, o client.Object, shard string) (client.Object, error) {
	of := o

	for range deepest {
		if of.GetLabels()[Label] != shard {
			return of, nil
		}

		p, ok := parent(of)
		if !ok {
			return nil, nil
		}

		up, key := kinds[p.kind].object(), types.NamespacedName{Namespace: o.GetNamespace(), Name: p.name}

		err := v.Client.Get(ctx, key, up, kube.Shared)
		if apierrors.IsNotFound(err) {
			up = kinds[p.kind].object()
			err = v.Live.Get(ctx, key, up)
		}

		if err != nil {
			return nil, client.IgnoreNotFound(err)
		}

		of = up
	}

	return nil, nil
}

func refusal(o, of client.Object, at, own string) *failure.Error {
	what := fmt.Sprintf("%s %s", named(o), o.GetName())
	if o != of {
		what += fmt.Sprintf(" belongs to %s %s, which", named(of), of.GetName())
	}

	message := what + " has no shard yet"
	if at != "" {
		message = fmt.Sprintf("%s is in shard %s, not %s: all objects of a cluster need the same label %s; "+
			"docs/sharding.md says how to move one", what, at, own, Label)
	}

	return &failure.Error{
		Class: failure.ClassWaiting, Reason: v1alpha1.ReasonOtherShard, Message: message, After: again,
	}
}

// List implements client.Reader. The list holds the objects of all clusters of the shard, also those whose label says
// something else. One over all namespaces holds what the cache holds.
func (v *View) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	o := (&client.ListOptions{}).ApplyOptions(opts)

	if o.Namespace == "" && o.FieldSelector != nil && named(list) == "TalosMachine" {
		return v.Addresses.List(ctx, list, opts...)
	}

	if err := v.Client.List(ctx, list, opts...); err != nil {
		return err
	}

	kind, hint := named(list), controlled(opts)
	// Lists by a field other than the owner only find out which objects to wake.
	if kind == "" || o.Namespace == "" || o.FieldSelector != nil && hint == nil {
		return nil
	}

	strays, err := v.strays(ctx, place{kind, o.Namespace})
	if err != nil || len(strays) == 0 {
		return err
	}

	return v.add(ctx, list, kind, strays, func(s client.Object) bool {
		if o.LabelSelector != nil && !o.LabelSelector.Matches(labels.Set(s.GetLabels())) {
			return false
		}

		ref := metav1.GetControllerOfNoCopy(s)

		return hint == nil || ref != nil && ref.UID == hint.Owner
	})
}

func controlled(opts []client.ListOption) *kube.Controlled {
	for _, o := range opts {
		if hint, ok := o.(kube.Controlled); ok {
			return &hint
		}
	}

	return nil
}

// add appends strays, as they are now, to a list that does not have them.
func (v *View) add(
	ctx context.Context, list client.ObjectList, kind string, strays []types.NamespacedName,
	matches func(client.Object) bool,
) error {
	items, err := meta.ExtractList(list)
	if err != nil {
		return fmt.Errorf("reading a list of %s objects: %w", kind, err)
	}

	have := map[types.NamespacedName]bool{}

	for _, i := range items {
		if o, ok := i.(client.Object); ok {
			have[client.ObjectKeyFromObject(o)] = true
		}
	}

	for _, key := range strays {
		if have[key] {
			continue
		}

		o := kinds[kind].object()

		err := v.Live.Get(ctx, key, o)
		if apierrors.IsNotFound(err) {
			continue
		}

		if err != nil {
			return fmt.Errorf("reading %s %s: %w", kind, key.Name, err)
		}

		if matches(o) {
			items = append(items, o)
		}
	}

	return meta.SetList(list, items)
}

// strays are the objects of a place that belong to an object of this shard, and do not carry its label.
func (v *View) strays(ctx context.Context, p place) ([]types.NamespacedName, error) {
	at := v.Ledger.now(p)
	if strays, ok := v.Ledger.confirmed(p, at); ok {
		return strays, nil
	}

	end, err := v.Ledger.search(ctx, p)
	if err != nil {
		return nil, err
	}
	defer end()

	// Another pass may have looked meanwhile, and later than this one came.
	if strays, ok := v.Ledger.confirmed(p, at); ok {
		return strays, nil
	}

	at = v.Ledger.now(p)

	mine, err := v.parents(ctx, p.namespace)
	if err != nil {
		return nil, err
	}

	var strays []types.NamespacedName

	if len(mine) > 0 {
		if strays, err = v.search(ctx, p, mine); err != nil {
			return nil, err
		}
	}

	v.Ledger.confirm(p, at, strays)

	return strays, nil
}

// parents are the objects of the shard in a namespace that others may belong to, read live.
func (v *View) parents(ctx context.Context, namespace string) (map[ref]bool, error) {
	out := map[ref]bool{}

	for _, kind := range []string{clusterKind, planeKind, groupKind} {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kinds[kind].group.WithKind(kind + "List"))

		if err := v.Live.List(ctx, list, client.InNamespace(namespace), client.MatchingLabels{Label: v.Shard}); err != nil {
			return nil, fmt.Errorf("listing %s objects of shard %s: %w", kind, v.Shard, err)
		}

		for i := range list.Items {
			out[ref{kind, list.Items[i].Name}] = true
		}
	}

	return out, nil
}

func (v *View) search(ctx context.Context, p place, mine map[ref]bool) ([]types.NamespacedName, error) {
	others, err := labels.NewRequirement(Label, selection.NotEquals, []string{v.Shard})
	if err != nil {
		return nil, fmt.Errorf("selecting the objects of other shards: %w", err)
	}

	var strays []types.NamespacedName

	for next := ""; ; {
		list := kinds[p.kind].list()

		err := v.Live.List(ctx, list, client.InNamespace(p.namespace), client.Limit(page), client.Continue(next),
			client.MatchingLabelsSelector{Selector: labels.NewSelector().Add(*others)})
		if err != nil {
			return nil, fmt.Errorf("listing %s objects of other shards: %w", p.kind, err)
		}

		err = meta.EachListItem(list, func(i runtime.Object) error {
			if o, ok := i.(client.Object); ok {
				if up, has := parent(o); has && mine[up] {
					strays = append(strays, client.ObjectKeyFromObject(o))
				}
			}

			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("reading a list of %s objects: %w", p.kind, err)
		}

		if next = list.GetContinue(); next == "" {
			return strays, nil
		}
	}
}

// Create implements client.Writer.
func (v *View) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	if named(o) != "" {
		setLabel(o, v.Shard)
	}

	return v.Client.Create(ctx, o, opts...)
}

// labelled is what can carry the label.
type labelled interface {
	GetLabels() map[string]string
	SetLabels(map[string]string)
}

// setLabel sets the label, and does not change a map that has other readers.
func setLabel(o labelled, shard string) {
	all := map[string]string{}
	maps.Copy(all, o.GetLabels())
	all[Label] = shard

	o.SetLabels(all)
}

// Apply implements client.Writer.
func (v *View) Apply(ctx context.Context, c runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
	if o, ok := c.(interface {
		labelled
		GetKind() string
		GetAPIVersion() string
	}); ok {
		if k, ours := kinds[o.GetKind()]; ours && o.GetAPIVersion() == k.group.String() {
			setLabel(o, v.Shard)
		}
	}

	return v.Client.Apply(ctx, c, opts...)
}

// Reader reads live, for the manager of a shard. It refuses the objects that View refuses; its lists hold those of all
// shards.
type Reader struct {
	client.Reader

	View *View
}

// Get implements client.Reader.
func (r *Reader) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if err := r.Reader.Get(ctx, key, o, opts...); err != nil {
		return err
	}

	if named(o) == "" {
		return nil
	}

	return r.View.check(ctx, o)
}
