package kube

import (
	"context"
	"fmt"
	"reflect"
	"strconv"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Current is a client of a cache that never shows an object as it was before this client wrote it: until the cache has
// caught up, the object is read live. A reconciliation that begins with an older object would write the difference to
// what is no longer there, and leave the rest of the last status as it is, for as long as nothing tells of a change.
//
// That holds for objects of Go types of their own. Unstructured objects and metadata alone pass through: one Go type
// stands for all kinds there, and their caches are others.
func Current(cached client.Client, live client.Reader) client.Client {
	return &current{Client: cached, live: live, written: map[object]uint64{}}
}

type current struct {
	client.Client

	live client.Reader

	mu      sync.Mutex
	written map[object]uint64
}

// object is one of a kind.
type object struct {
	kind reflect.Type
	key  client.ObjectKey
}

func objectOf(o client.Object) object {
	return object{kind: reflect.TypeOf(o), key: client.ObjectKeyFromObject(o)}
}

// isTyped: the Go type of an object tells its kind.
func isTyped(o client.Object) bool {
	switch o.(type) {
	case runtime.Unstructured, *metav1.PartialObjectMetadata:
		return false
	}

	return true
}

// version is the resource version of an object: the revision of etcd that it was written at.
func version(o client.Object) uint64 {
	v, err := strconv.ParseUint(o.GetResourceVersion(), 10, 64)
	if err != nil {
		return 0 // it compares with nothing
	}

	return v
}

func (c *current) note(o client.Object, err error) error {
	if err == nil && isTyped(o) {
		c.mu.Lock()
		defer c.mu.Unlock()

		c.written[objectOf(o)] = max(version(o), c.written[objectOf(o)])
	}

	return err
}

// behind tells whether an object is older than what was written last. One that is not needs no more attention.
func (c *current) behind(o client.Object, of object) bool {
	c.mu.Lock()
	defer c.mu.Unlock()

	if version(o) < c.written[of] {
		return true
	}

	delete(c.written, of)

	return false
}

func (c *current) forget(of object) {
	c.mu.Lock()
	defer c.mu.Unlock()

	delete(c.written, of)
}

// Get implements client.Reader.
func (c *current) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if !isTyped(o) {
		return c.Client.Get(ctx, key, o, opts...)
	}

	of := object{kind: reflect.TypeOf(o), key: key}

	err := c.Client.Get(ctx, key, o, opts...)
	if client.IgnoreNotFound(err) != nil {
		return err
	}

	// What the cache does not know it has not observed yet, or it is gone.
	if err != nil {
		c.forget(of)

		return err
	}

	if !c.behind(o, of) {
		return nil
	}

	// Reading into an object leaves what the new one lacks.
	fresh, ok := reflect.New(of.kind.Elem()).Interface().(client.Object)
	if !ok {
		return fmt.Errorf("%s is no object", of.kind)
	}

	if err := c.live.Get(ctx, key, fresh, opts...); err != nil {
		return err
	}

	reflect.ValueOf(o).Elem().Set(reflect.ValueOf(fresh).Elem())

	return nil
}

// Update implements client.Writer.
func (c *current) Update(ctx context.Context, o client.Object, opts ...client.UpdateOption) error {
	return c.note(o, c.Client.Update(ctx, o, opts...))
}

// Patch implements client.Writer.
func (c *current) Patch(ctx context.Context, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
	return c.note(o, c.Client.Patch(ctx, o, patch, opts...))
}

// Status implements client.StatusClient.
func (c *current) Status() client.SubResourceWriter {
	return currentStatus{SubResourceWriter: c.Client.Status(), of: c}
}

type currentStatus struct {
	client.SubResourceWriter

	of *current
}

// Update implements client.SubResourceWriter.
func (s currentStatus) Update(ctx context.Context, o client.Object, opts ...client.SubResourceUpdateOption) error {
	return s.of.note(o, s.SubResourceWriter.Update(ctx, o, opts...))
}

// Patch implements client.SubResourceWriter.
func (s currentStatus) Patch(
	ctx context.Context, o client.Object, patch client.Patch, opts ...client.SubResourcePatchOption,
) error {
	return s.of.note(o, s.SubResourceWriter.Patch(ctx, o, patch, opts...))
}
