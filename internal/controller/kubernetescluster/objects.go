package kubernetescluster

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/controller/frame"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/kube"
	"github.com/talos-operator/talos-operator/internal/metrics"
)

// list reads the objects that the cluster controls.
func (r *Reconciler) list(ctx context.Context, s *scope) error {
	own := []client.ListOption{
		client.InNamespace(s.cluster.Namespace), kube.Controlled{Owner: s.cluster.UID}, kube.Shared,
	}

	machines := &vitistackv1alpha1.MachineList{}
	if err := r.Client.List(ctx, machines, own...); err != nil {
		return fmt.Errorf("listing Machines of %s: %w", s.cluster.Name, err)
	}

	groups := &v1alpha1.TalosWorkerList{}
	if err := r.Client.List(ctx, groups, own...); err != nil {
		return fmt.Errorf("listing TalosWorkers of %s: %w", s.cluster.Name, err)
	}

	planes := &v1alpha1.TalosControlPlaneList{}
	if err := r.Client.List(ctx, planes, own...); err != nil {
		return fmt.Errorf("listing TalosControlPlanes of %s: %w", s.cluster.Name, err)
	}

	if found := kube.ControlledBy(planes.Items, s.cluster); len(found) > 0 {
		s.cp = &found[len(found)-1]
	}

	s.groups = kube.ControlledBy(groups.Items, s.cluster)
	s.have = kube.ControlledBy(machines.Items, s.cluster)
	s.listed = true

	return r.chooseMembers(ctx, s)
}

// ensureMachines creates and updates the Machines, and deletes those above the replicas once their nodes are removed
// from the cluster.
func (r *Reconciler) ensureMachines(ctx context.Context, s *scope) error {
	s.tried = true

	wanted := s.machines()
	for _, m := range wanted {
		if s.created = r.ensureMachine(ctx, s, m); s.created != nil {
			return s.created
		}
	}

	for _, m := range s.have {
		if !slices.ContainsFunc(wanted, func(w *vitistackv1alpha1.Machine) bool { return w.Name == m.Name }) {
			s.extra = append(s.extra, m.Name)
		}
	}

	slices.Sort(s.extra)

	return r.releaseExtra(ctx, s)
}

func (r *Reconciler) ensureMachine(ctx context.Context, s *scope, want *vitistackv1alpha1.Machine) error {
	if err := controllerutil.SetControllerReference(s.cluster, want, r.Client.Scheme()); err != nil {
		return failure.Terminal(vitistackv1alpha1.ReasonOwnerReferenceError, "setting the owner of Machine "+want.Name, err)
	}

	i := slices.IndexFunc(s.have, func(m vitistackv1alpha1.Machine) bool { return m.Name == want.Name })
	if i >= 0 && equality.Semantic.DeepEqual(s.have[i].Spec, want.Spec) &&
		kube.EqualLabels(s.have[i].Labels, want.Labels) {
		return nil
	}

	if i < 0 {
		if err := r.refuseForeign(ctx, s, &vitistackv1alpha1.Machine{}, want.Name); err != nil {
			return err
		}
	}

	if err := kube.Apply(ctx, r.Client, want); err != nil {
		return failure.Transient(vitistackv1alpha1.ReasonMachineCreationError,
			fmt.Sprintf("Machine %s could not be written: %s; trying again",
				want.Name, kube.Cause(err)), err)
	}

	if i < 0 {
		metrics.Machines.WithLabelValues(s.name, want.Labels[vitistackv1alpha1.RoleLabel]).Inc()
		ctrl.LoggerFrom(ctx).Info("Successfully created machine", "machine", want.Name)
	}

	return nil
}

// refuseForeign refuses to adopt an object with a required name that is controlled by another owner.
func (r *Reconciler) refuseForeign(ctx context.Context, s *scope, into client.Object, name string) error {
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: s.cluster.Namespace, Name: name}, into)

	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("looking for %s: %w", name, err)
	case metav1.IsControlledBy(into, s.cluster):
		return nil
	}

	return failure.Terminal(
		vitistackv1alpha1.ReasonOwnerReferenceError,
		fmt.Sprintf("%s %s exists and is controlled by another owner; it was not changed: remove it, or choose another "+
			"cluster or group name", kube.KindOf(r.Client, into), name),
		nil,
	)
}

// ensureSecrets moves key material from the spec into a Secret.
func (r *Reconciler) ensureSecrets(ctx context.Context, s *scope) error {
	data := s.bootstrapSecrets()
	if data == nil {
		return nil
	}

	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: s.cluster.Namespace, Name: s.bootstrapSecretsName()}

	err := r.Reader.Get(ctx, key, secret)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading Secret %s: %w", key.Name, err)
	}

	exists := err == nil
	earlier := exists && kube.EarlierLife(secret, s.cluster, "KubernetesCluster")

	if exists && !earlier && !metav1.IsControlledBy(secret, s.cluster) {
		return failure.Terminal(vitistackv1alpha1.ReasonOwnerReferenceError,
			"Secret "+key.Name+" exists and is controlled by another owner; it "+
				"was not changed", nil)
	}

	if exists && !earlier && maps.EqualFunc(secret.Data, data, bytes.Equal) {
		return nil
	}

	secret.Namespace, secret.Name = key.Namespace, key.Name
	secret.Labels = map[string]string{vitistackv1alpha1.ClusterNameLabel: s.name}
	secret.Data = data
	secret.OwnerReferences = nil

	if err := controllerutil.SetControllerReference(s.cluster, secret, r.Client.Scheme()); err != nil {
		return failure.Terminal(vitistackv1alpha1.ReasonOwnerReferenceError, "setting the owner of Secret "+key.Name, err)
	}

	if exists {
		return r.Client.Update(ctx, secret)
	}

	return r.Client.Create(ctx, secret)
}

// ensureObjects maintains the TalosControlPlane and the TalosWorkers, which remove machines that they no longer list.
func (r *Reconciler) ensureObjects(ctx context.Context, s *scope) error {
	want := s.controlPlane()
	if err := r.ensureObject(ctx, s, want, s.cp != nil && s.cp.Name == want.Name &&
		equality.Semantic.DeepEqual(s.cp.Spec, want.Spec), &v1alpha1.TalosControlPlane{}); err != nil {
		return err
	}

	for _, w := range s.workers() {
		i := slices.IndexFunc(s.groups, func(have v1alpha1.TalosWorker) bool { return have.Name == w.Name })
		same := i >= 0 && equality.Semantic.DeepEqual(s.groups[i].Spec, w.Spec)
		if err := r.ensureObject(ctx, s, w, same, &v1alpha1.TalosWorker{}); err != nil {
			return err
		}
	}

	return r.emptyGroups(ctx, s)
}

func (r *Reconciler) ensureObject(
	ctx context.Context,
	s *scope,
	want client.Object,
	same bool,
	into client.Object,
) error {
	if same {
		return nil
	}

	if err := r.refuseForeign(ctx, s, into, want.GetName()); err != nil {
		return err
	}

	// The finalizer could not be applied any more, and the spec no longer has an effect.
	if !into.GetDeletionTimestamp().IsZero() {
		return failure.Waiting(v1alpha1.ReasonDeleting, "waiting for "+want.GetName()+", which is being deleted", r.Resync)
	}

	if err := controllerutil.SetControllerReference(s.cluster, want, r.Client.Scheme()); err != nil {
		return failure.Terminal(vitistackv1alpha1.ReasonOwnerReferenceError, "setting the owner of "+want.GetName(), err)
	}

	err := kube.Apply(ctx, r.Client, want)
	if apierrors.IsInvalid(err) {
		return failure.Terminal(vitistackv1alpha1.ReasonValidationError, invalidMessage(err), err)
	}

	s.handed = append(s.handed, want.GetName())

	return err
}

// invalidMessage returns the causes of a rejection by the API server.
func invalidMessage(err error) string {
	text := err.Error()
	if i := strings.Index(text, "is invalid: "); i >= 0 {
		text = text[i+len("is invalid: "):]
	}

	return "the API server refuses what the spec expands to: " + text
}

// delete deletes the cluster in the documented order: first the objects that manage the nodes, then the Machines, then
// the files.
func (r *Reconciler) delete(ctx context.Context, s *scope) error {
	if !controllerutil.ContainsFinalizer(s.cluster, vitistackv1alpha1.ClusterFinalizer) {
		return nil
	}

	if err := r.list(ctx, s); err != nil {
		return err
	}

	for i := range s.groups {
		if err := r.deleteObject(ctx, s, &s.groups[i], &s.groups[i].Spec.DeletionPolicy); err != nil {
			return err
		}
	}

	if len(s.groups) > 0 {
		return failure.Waiting(
			vitistackv1alpha1.ReasonDeleting,
			"waiting for the workers"+groupsWaitFor(s.groups),
			pollDelete,
		)
	}

	if s.cp != nil {
		if err := r.deleteObject(ctx, s, s.cp, &s.cp.Spec.DeletionPolicy); err != nil {
			return err
		}

		return failure.Waiting(vitistackv1alpha1.ReasonDeleting,
			"waiting for the control plane"+waitsFor(s.cp.Status.Conditions), pollDelete)
	}

	if err := r.deleteMachines(ctx, s); err != nil {
		return err
	}

	if err := r.Manifests.Remove(s.name, s.owner()); err != nil {
		return failure.Transient(vitistackv1alpha1.ReasonFileSystemError,
			filesMessage(r.Manifests.Folder(s.name), err), err)
	}

	s.released = true

	metrics.ForgetMachines(s.name)

	return frame.RemoveFinalizer(ctx, r.Client, s.cluster, s.base, vitistackv1alpha1.ClusterFinalizer)
}

func (r *Reconciler) deleteMachines(ctx context.Context, s *scope) error {
	for i := range s.have {
		m := &s.have[i]

		want := s.machine(m.Labels[vitistackv1alpha1.WorkerGroupLabel], "", 0, m.Spec)
		if m.Spec.ReclaimPolicy != want.Spec.ReclaimPolicy {
			base := m.DeepCopy()
			m.Spec.ReclaimPolicy = want.Spec.ReclaimPolicy

			if err := r.Client.Patch(ctx, m, client.MergeFrom(base)); client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("passing the reclaim policy on to Machine %s: %w", m.Name, err)
			}
		}

		if m.DeletionTimestamp.IsZero() {
			if err := r.Client.Delete(ctx, m, client.Preconditions{UID: &m.UID}); client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("deleting Machine %s: %w", m.Name, err)
			}
		}
	}

	if len(s.have) > 0 {
		return failure.Waiting(vitistackv1alpha1.ReasonDeleting, "waiting for the Machines to go", pollDelete)
	}

	return nil
}

// deleteObject deletes a child object, with the current deletion policy of the cluster.
func (r *Reconciler) deleteObject(
	ctx context.Context,
	s *scope,
	o client.Object,
	policy *v1alpha1.DeletionPolicy,
) error {
	base, ok := o.DeepCopyObject().(client.Object)
	if ok && *policy != s.policy() {
		*policy = s.policy()

		if err := r.Client.Patch(ctx, o, client.MergeFrom(base)); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("passing the deletion policy on to %s: %w", o.GetName(), err)
		}
	}

	if !o.GetDeletionTimestamp().IsZero() {
		return nil
	}

	uid := o.GetUID()
	if err := r.Client.Delete(ctx, o, client.Preconditions{UID: &uid}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting %s: %w", o.GetName(), err)
	}

	return nil
}
