package shard

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
)

// orphanRetry is how soon it is looked again whether what an object belongs to exists.
const orphanRetry = 10 * time.Second

// Assigner gives objects without a shard the shard of their cluster, and a cluster without one that of its UID. A label
// that is there stays. Only one Assigner may run: the manager of shard 0 has it.
type Assigner struct {
	// Client reads and writes at the API server.
	client.Client
	// Shards is how many there are for new clusters.
	Shards int
	// Serve makes replicas hold a shard with a number of Shards or more, which a user chose, or which is left
	// from a time with more shards.
	Serve func(ctx context.Context, shard int) error
}

// Request is an object to assign.
type Request struct {
	// Kind of the object.
	Kind string
	types.NamespacedName
}

// Reconcile assigns one object.
func (a *Assigner) Reconcile(ctx context.Context, req Request) (ctrl.Result, error) {
	o := kinds[req.Kind].object()
	if err := a.Get(ctx, req.NamespacedName, o); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}

	label, err := a.assign(ctx, o, deepest)
	if err != nil {
		return ctrl.Result{}, err
	}

	if label == "" {
		return ctrl.Result{RequeueAfter: orphanRetry}, nil
	}

	n, ok := Number(label)
	if !ok {
		ctrl.LoggerFrom(ctx).Info("Nothing works on the object: its label names no shard", "kind", req.Kind,
			"namespace", req.Namespace, "name", req.Name, "label", Label, "value", label)

		return ctrl.Result{}, nil
	}

	if n >= a.Shards {
		return ctrl.Result{}, a.Serve(ctx, n)
	}

	return ctrl.Result{}, nil
}

// assign returns the shard of an object, which carries the label afterwards; empty while it cannot be known, because
// what the object belongs to does not exist.
func (a *Assigner) assign(ctx context.Context, o client.Object, depth int) (string, error) {
	if at := o.GetLabels()[Label]; at != "" || depth == 0 {
		return at, nil
	}

	label, err := a.inherited(ctx, o, depth)

	switch {
	case err != nil:
		return "", err
	case label == "" && !o.GetDeletionTimestamp().IsZero():
		// Its finalizer has to be removed.
		label = strconv.Itoa(Of(string(o.GetUID()), a.Shards))
	case label == "":
		return "", nil
	}

	base, ok := o.DeepCopyObject().(client.Object)
	if !ok {
		return "", fmt.Errorf("%s cannot be copied", o.GetName())
	}

	setLabel(o, label)

	// A user may set the label at the same time: that is a conflict, and the label of the user stays.
	patch := client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})
	if err := a.Patch(ctx, o, patch); err != nil {
		return "", fmt.Errorf("assigning %s %s to shard %s: %w", named(o), o.GetName(), label, err)
	}

	return label, nil
}

func (a *Assigner) inherited(ctx context.Context, o client.Object, depth int) (string, error) {
	if up, ok := parent(o); ok {
		label, err := a.at(ctx, o.GetNamespace(), up, depth)
		if err != nil || label != "" {
			return label, err
		}
	}

	switch o := o.(type) {
	case *vitistackv1alpha1.Machine:
		return a.user(ctx, o, depth)
	case *vitistackv1alpha1.KubernetesCluster, *v1alpha1.TalosControlPlane:
		return a.root(ctx, o)
	}

	return "", nil
}

// at is the shard of an object that others belong to; empty if it does not exist.
func (a *Assigner) at(ctx context.Context, namespace string, up ref, depth int) (string, error) {
	o := kinds[up.kind].object()

	err := a.Get(ctx, types.NamespacedName{Namespace: namespace, Name: up.name}, o)
	if apierrors.IsNotFound(err) {
		return "", nil
	}

	if err != nil {
		return "", fmt.Errorf("reading %s %s: %w", up.kind, up.name, err)
	}

	return a.assign(ctx, o, depth-1)
}

// user is the shard of the control plane or group that lists a Machine. A Machine that is not listed has none: it gets
// that of the cluster that it becomes part of.
func (a *Assigner) user(ctx context.Context, m *vitistackv1alpha1.Machine, depth int) (string, error) {
	planes, groups := &v1alpha1.TalosControlPlaneList{}, &v1alpha1.TalosWorkerList{}

	for _, list := range []client.ObjectList{planes, groups} {
		if err := a.List(ctx, list, client.InNamespace(m.Namespace)); err != nil {
			return "", fmt.Errorf("looking for the group of Machine %s: %w", m.Name, err)
		}
	}

	lists := func(entries ...[]v1alpha1.MachineEntry) bool {
		return slices.ContainsFunc(slices.Concat(entries...), func(e v1alpha1.MachineEntry) bool {
			return e.MachineRef != nil && e.MachineRef.Name == m.Name
		})
	}

	for i := range planes.Items {
		if o := &planes.Items[i]; lists(o.Spec.Machines, o.Spec.Spares) {
			return a.assign(ctx, o, depth-1)
		}
	}

	for i := range groups.Items {
		if o := &groups.Items[i]; lists(o.Spec.Machines, o.Spec.Spares) {
			return a.assign(ctx, o, depth-1)
		}
	}

	return "", nil
}

// root is the shard of a new cluster. One that comes back under its name gets the shard of its backups, schedules and
// restores.
func (a *Assigner) root(ctx context.Context, o client.Object) (string, error) {
	backups, schedules := &v1alpha1.TalosEtcdBackupList{}, &v1alpha1.TalosEtcdBackupScheduleList{}
	restores := &v1alpha1.TalosEtcdRestoreList{}

	for _, list := range []client.ObjectList{backups, schedules, restores} {
		if err := a.List(ctx, list, client.InNamespace(o.GetNamespace())); err != nil {
			return "", fmt.Errorf("looking for what is left of %s: %w", o.GetName(), err)
		}
	}

	found := map[string]bool{}
	left := func(of client.Object) {
		if up, _ := parent(of); up.name == o.GetName() && of.GetLabels()[Label] != "" {
			found[of.GetLabels()[Label]] = true
		}
	}

	for i := range backups.Items {
		left(&backups.Items[i])
	}

	for i := range schedules.Items {
		left(&schedules.Items[i])
	}

	for i := range restores.Items {
		left(&restores.Items[i])
	}

	if len(found) == 1 {
		for label := range found {
			return label, nil
		}
	}

	return strconv.Itoa(Of(string(o.GetUID()), a.Shards)), nil
}

// Setup adds the assigner to a manager. Its cache holds the metadata of objects without the label, and of those with
// one that is out of range.
func (a *Assigner) Setup(mgr manager.Manager, cfg *rest.Config, namespaces map[string]cache.Config) error {
	var served []string
	for n := range a.Shards {
		served = append(served, strconv.Itoa(n))
	}

	others, err := labels.NewRequirement(Label, selection.NotIn, served)
	if err != nil {
		return fmt.Errorf("selecting the objects without a shard: %w", err)
	}

	informers, err := cache.New(cfg, cache.Options{
		Scheme: mgr.GetScheme(), DefaultLabelSelector: labels.NewSelector().Add(*others), DefaultNamespaces: namespaces,
		DefaultTransform: bare, HTTPClient: mgr.GetHTTPClient(), Mapper: mgr.GetRESTMapper(),
	})
	if err != nil {
		return fmt.Errorf("making the cache of objects without a shard: %w", err)
	}

	yes := true

	c, err := controller.NewTyped("Shards", mgr, controller.TypedOptions[Request]{
		Reconciler: a, MaxConcurrentReconciles: 4, SkipNameValidation: &yes,
	})
	if err != nil {
		return fmt.Errorf("making the controller of shards: %w", err)
	}

	for name, k := range kinds {
		o := &metav1.PartialObjectMetadata{}
		o.SetGroupVersionKind(k.group.WithKind(name))

		err := c.Watch(source.TypedKind(informers, o, handler.TypedEnqueueRequestsFromMapFunc(
			func(_ context.Context, o *metav1.PartialObjectMetadata) []Request {
				return []Request{{name, client.ObjectKeyFromObject(o)}}
			})))
		if err != nil {
			return fmt.Errorf("watching %s objects without a shard: %w", name, err)
		}
	}

	if err := mgr.Add(informers); err != nil {
		return fmt.Errorf("adding the cache of objects without a shard: %w", err)
	}

	return nil
}

// bare keeps only what names an object.
func bare(o any) (any, error) {
	m, ok := o.(*metav1.PartialObjectMetadata)
	if !ok {
		return o, nil
	}

	return &metav1.PartialObjectMetadata{TypeMeta: m.TypeMeta, ObjectMeta: metav1.ObjectMeta{
		Namespace: m.Namespace, Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion,
	}}, nil
}

// Addresses is a transform for a cache of TalosMachines that only knows which machine has which address: two of them at
// one address have to be found whatever their shards are.
func Addresses(o any) (any, error) {
	m, ok := o.(*v1alpha1.TalosMachine)
	if !ok {
		return o, nil
	}

	out := &v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{
		Namespace: m.Namespace, Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion,
		CreationTimestamp: m.CreationTimestamp,
	}}
	out.Spec.Address, out.Status.Address, out.Status.ConfigHash = m.Spec.Address, m.Status.Address, m.Status.ConfigHash

	return out, nil
}
