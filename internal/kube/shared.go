package kube

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Shared has a list from a cache hand out the objects of the cache themselves. They must not be changed. Copying every
// object of a namespace to find the few of one cluster made each reconciliation as expensive as the fleet is large.
const Shared = client.UnsafeDisableDeepCopyOption(true)

// Controlled is a hint that a list is meant for the objects that an owner controls. A client with an index finds them
// without reading all others; every other client ignores the hint, so what is listed has to be sifted all the same.
type Controlled struct {
	// Owner is the UID of the owner.
	Owner types.UID
}

// ApplyToList implements client.ListOption.
func (Controlled) ApplyToList(*client.ListOptions) {}

// ControlledBy returns copies of the objects that an owner controls.
func ControlledBy[T any, P interface {
	*T
	metav1.Object
	DeepCopy() *T
}](items []T, owner metav1.Object) []T {
	var out []T

	for i := range items {
		if o := P(&items[i]); metav1.IsControlledBy(o, owner) {
			out = append(out, *o.DeepCopy())
		}
	}

	return out
}

// controllerIndex is the name of the field index over the UIDs of owners.
const controllerIndex = "controller"

// Index makes the index that Indexed reads, over objects of some kinds.
func Index(ctx context.Context, indexer client.FieldIndexer, kinds ...client.Object) error {
	for _, kind := range kinds {
		if err := indexer.IndexField(ctx, kind, controllerIndex, controllerOf); err != nil {
			return fmt.Errorf("indexing objects by owner: %w", err)
		}
	}

	return nil
}

func controllerOf(o client.Object) []string {
	if ref := metav1.GetControllerOfNoCopy(o); ref != nil {
		return []string{string(ref.UID)}
	}

	return nil
}

// Indexed is a client of a cache that heeds Controlled. Every kind that is listed so has to be indexed.
func Indexed(c client.Client) client.Client { return indexed{c} }

type indexed struct{ client.Client }

// List implements client.Reader.
func (c indexed) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	for _, o := range opts {
		if hint, ok := o.(Controlled); ok {
			opts = append(slices.Clone(opts), client.MatchingFields{controllerIndex: string(hint.Owner)})

			break
		}
	}

	return c.Client.List(ctx, list, opts...)
}
