package talosmachine_test

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/controller/machineset"
	"github.com/talos-operator/talos-operator/test/harness"
)

// cache is the client of the operator. It supports the one index that the manager's cache has, and may be stale like a
// cache.
type cache struct {
	*harness.Client

	// namespace of the machines of the test; those of other tests have other addresses.
	namespace string

	mu sync.Mutex
	// stale are machines as a stale cache returns them, by name.
	stale map[string]*v1alpha1.TalosMachine
}

// lag makes the cache return machines in an old state; without machines it is up to date.
func (c *cache) lag(machines ...*v1alpha1.TalosMachine) {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.stale = map[string]*v1alpha1.TalosMachine{}
	for _, m := range machines {
		c.stale[m.Name] = m
	}
}

// Get returns machines in their old state if the cache is stale.
func (c *cache) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	c.mu.Lock()
	old := c.stale[key.Name]
	c.mu.Unlock()

	if m, ok := o.(*v1alpha1.TalosMachine); ok && old != nil {
		old.DeepCopyInto(m)

		return nil
	}

	return c.Client.Get(ctx, key, o, opts...)
}

// List finds machines by address, like the index of the manager's cache.
func (c *cache) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	o := (&client.ListOptions{}).ApplyOptions(opts)
	if o.FieldSelector == nil {
		return c.Client.List(ctx, list, opts...)
	}

	machines, ok := list.(*v1alpha1.TalosMachineList)
	if !ok {
		return fmt.Errorf("nobody knows how to find %T by %s", list, o.FieldSelector)
	}

	address, _ := o.FieldSelector.RequiresExactMatch(machineset.AddressIndex)

	err := c.Client.List(ctx, machines, client.InNamespace(c.namespace))
	machines.Items = slices.DeleteFunc(machines.Items, func(m v1alpha1.TalosMachine) bool {
		return !slices.Contains(machineset.IndexAddress(&m), address)
	})

	return err
}
