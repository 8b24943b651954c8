package talosmachine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/controller/machineset"
)

// apiClient is what the operator reads and writes with. It knows the one index that the manager's cache has, and may lag
// behind as a cache does, or be cut off in the middle as in a crash.
type apiClient struct {
	client.WithWatch

	// ns is where the machines of the test are; those of other tests have other addresses.
	ns string

	mu sync.Mutex
	// stale are machines as a cache that lags behind shows them, by name.
	stale map[string]*v1alpha1.TalosMachine
	// effects counts what has been done to API server and nodes; after so many the operator is dead. 0 is never.
	effects, last int
}

var errDead = errors.New("the operator is dead")

// effect counts one effect. It tells whether the operator may still cause it, and whether it lives to see it.
func (c *apiClient) effect() (may, lives bool) {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.effects++

	return c.last == 0 || c.effects <= c.last, c.last == 0 || c.effects < c.last
}

func (c *apiClient) dead() bool {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.last != 0 && c.effects >= c.last
}

// write does a write unless the operator is dead, and loses the answer to its last one.
func (c *apiClient) write(do func() error) error {
	may, lives := c.effect()
	if !may {
		return errDead
	}

	if err := do(); err != nil || lives {
		return err
	}

	return errDead
}

func (c *apiClient) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	return c.write(func() error { return c.WithWatch.Create(ctx, o, opts...) })
}

func (c *apiClient) Update(ctx context.Context, o client.Object, opts ...client.UpdateOption) error {
	return c.write(func() error { return c.WithWatch.Update(ctx, o, opts...) })
}

func (c *apiClient) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.PatchOption) error {
	return c.write(func() error { return c.WithWatch.Patch(ctx, o, p, opts...) })
}

// Status counts the writes of statuses as well.
func (c *apiClient) Status() client.SubResourceWriter { return statusWriter{c.WithWatch.Status(), c} }

type statusWriter struct {
	client.SubResourceWriter

	c *apiClient
}

func (w statusWriter) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
	return w.c.write(func() error { return w.SubResourceWriter.Patch(ctx, o, p, opts...) })
}

// Get shows machines as they were where the cache lags behind.
func (c *apiClient) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	c.mu.Lock()
	old := c.stale[key.Name]
	c.mu.Unlock()

	if m, ok := o.(*v1alpha1.TalosMachine); ok && old != nil {
		old.DeepCopyInto(m)

		return nil
	}

	return c.WithWatch.Get(ctx, key, o, opts...)
}

// List finds machines by address, as the index of the manager's cache does.
func (c *apiClient) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	o := (&client.ListOptions{}).ApplyOptions(opts)
	if o.FieldSelector == nil {
		return c.WithWatch.List(ctx, list, opts...)
	}

	machines, ok := list.(*v1alpha1.TalosMachineList)
	if !ok {
		return fmt.Errorf("nobody knows how to find %T by %s", list, o.FieldSelector)
	}

	address, _ := o.FieldSelector.RequiresExactMatch(machineset.AddressIndex)

	err := c.WithWatch.List(ctx, machines, client.InNamespace(c.ns))
	machines.Items = slices.DeleteFunc(machines.Items, func(m v1alpha1.TalosMachine) bool {
		return !slices.Contains(machineset.IndexAddress(&m), address)
	})

	return err
}
