// Package frame is what the reconcilers share: phases that run in order, the finalizer, and the end of a
// reconciliation, at which the status is written once and its changes become events.
//
// Reconcile reads an object, makes a scope of it, and defers finish; finish computes the status and hands it to
// Memory.Finish. What a phase observes and decides is kept in the scope.
package frame

import (
	"context"
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/talos-operator/talos-operator/internal/kube"
)

// Phase is one part of a reconciliation, of which S is the scope.
type Phase[S any] func(context.Context, S) (ctrl.Result, error)

// Always makes a phase of something that never asks to be called again.
func Always[S any](do func(context.Context, S) error) Phase[S] {
	return func(ctx context.Context, s S) (ctrl.Result, error) { return ctrl.Result{}, do(ctx, s) }
}

// Run runs phases until one fails, or asks for another reconciliation.
func Run[S any](ctx context.Context, s S, phases ...Phase[S]) (ctrl.Result, error) {
	for _, p := range phases {
		if res, err := p(ctx, s); err != nil || !res.IsZero() {
			return res, err
		}
	}

	return ctrl.Result{}, nil
}

// EnsureFinalizer adds a finalizer to an object that was read as base. It returns the base of what is written next.
func EnsureFinalizer[O client.Object](ctx context.Context, c client.Client, o, base O, finalizer string) (O, error) {
	if !controllerutil.AddFinalizer(o, finalizer) {
		return base, nil
	}

	if err := c.Patch(ctx, o, client.MergeFrom(base)); err != nil {
		return base, fmt.Errorf("adding the finalizer to %s %s: %w", kube.KindOf(c, o), o.GetName(), err)
	}

	return copyOf(o), nil
}

// RemoveFinalizer lets an object go. One that is gone is no error.
func RemoveFinalizer(ctx context.Context, c client.Client, o, base client.Object, finalizer string) error {
	if !controllerutil.RemoveFinalizer(o, finalizer) {
		return nil
	}

	if err := c.Patch(ctx, o, client.MergeFrom(base)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("removing the finalizer of %s %s: %w", kube.KindOf(c, o), o.GetName(), err)
	}

	return nil
}

func copyOf[O client.Object](o O) O {
	out, ok := o.DeepCopyObject().(O)
	if !ok {
		return o // no kind copies itself to another one
	}

	return out
}
