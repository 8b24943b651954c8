package harness

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// write forgets an object before it is written, and again when the answer is there. Only the answer has a name
// that the API server chooses.
func (r *remembering) write(o client.Object, do func() error) error {
	kind, err := r.GroupVersionKindFor(o)
	if err != nil {
		r.memory.forgetAll()
		defer r.memory.forgetAll()

		return do()
	}

	where := place{kind, o.GetNamespace()}

	r.memory.forget(id{where, o.GetName()})
	defer func() { r.memory.forget(id{where, o.GetName()}) }()

	return do()
}

// Create implements client.Writer.
func (r *remembering) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	return r.write(o, func() error { return r.WithWatch.Create(ctx, o, opts...) })
}

// Update implements client.Writer.
func (r *remembering) Update(ctx context.Context, o client.Object, opts ...client.UpdateOption) error {
	return r.write(o, func() error { return r.WithWatch.Update(ctx, o, opts...) })
}

// Patch implements client.Writer.
func (r *remembering) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.PatchOption) error {
	return r.write(o, func() error { return r.WithWatch.Patch(ctx, o, p, opts...) })
}

// Delete implements client.Writer.
func (r *remembering) Delete(ctx context.Context, o client.Object, opts ...client.DeleteOption) error {
	return r.write(o, func() error { return r.WithWatch.Delete(ctx, o, opts...) })
}

// DeleteAllOf implements client.Writer.
func (r *remembering) DeleteAllOf(ctx context.Context, o client.Object, opts ...client.DeleteAllOfOption) error {
	r.memory.forgetAll()
	defer r.memory.forgetAll()

	return r.WithWatch.DeleteAllOf(ctx, o, opts...)
}

// named is what the operator applies: an unstructured object.
type named interface {
	GroupVersionKind() schema.GroupVersionKind
	GetNamespace() string
	GetName() string
}

// Apply implements client.Writer.
func (r *remembering) Apply(ctx context.Context, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
	forget := r.memory.forgetAll

	if one, ok := o.(named); ok {
		which := id{place{one.GroupVersionKind(), one.GetNamespace()}, one.GetName()}
		forget = func() { r.memory.forget(which) }
	}

	forget()
	defer forget()

	return r.WithWatch.Apply(ctx, o, opts...)
}

// Status implements client.StatusClient.
func (r *remembering) Status() client.SubResourceWriter {
	return &rememberingStatus{r.WithWatch.Status(), r}
}

// SubResource implements client.SubResourceClientConstructor.
func (r *remembering) SubResource(name string) client.SubResourceClient {
	c := r.WithWatch.SubResource(name)

	return &rememberingPart{c, &rememberingStatus{c, r}}
}

// rememberingPart reads a part of an object as it is.
type rememberingPart struct {
	client.SubResourceReader
	*rememberingStatus
}

// rememberingStatus writes a part of an object.
type rememberingStatus struct {
	client.SubResourceWriter

	r *remembering
}

// Create implements client.SubResourceWriter.
func (w *rememberingStatus) Create(
	ctx context.Context, o client.Object, part client.Object, opts ...client.SubResourceCreateOption,
) error {
	return w.r.write(o, func() error { return w.SubResourceWriter.Create(ctx, o, part, opts...) })
}

// Update implements client.SubResourceWriter.
func (w *rememberingStatus) Update(
	ctx context.Context, o client.Object, opts ...client.SubResourceUpdateOption,
) error {
	return w.r.write(o, func() error { return w.SubResourceWriter.Update(ctx, o, opts...) })
}

// Patch implements client.SubResourceWriter.
func (w *rememberingStatus) Patch(
	ctx context.Context, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption,
) error {
	return w.r.write(o, func() error { return w.SubResourceWriter.Patch(ctx, o, p, opts...) })
}

// Apply implements client.SubResourceWriter.
func (w *rememberingStatus) Apply(
	ctx context.Context, o runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption,
) error {
	w.r.memory.forgetAll()
	defer w.r.memory.forgetAll()

	return w.SubResourceWriter.Apply(ctx, o, opts...)
}
