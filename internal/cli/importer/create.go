package importer

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/cli/access"
	"github.com/talos-operator/talos-operator/internal/cli/session"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
)

func (t *takeover) key() types.NamespacedName {
	return types.NamespacedName{Namespace: t.plane.Namespace, Name: t.name}
}

// exists reads an object; false if there is none.
func (t *takeover) exists(ctx context.Context, o client.Object, name string) (bool, error) {
	err := t.plane.Get(ctx, client.ObjectKey{Namespace: t.plane.Namespace, Name: name}, o)
	if apierrors.IsNotFound(err) {
		return false, nil
	}

	if err != nil {
		return false, session.Explain("looking for "+name, err)
	}

	return true, nil
}

// checkNames rejects names that are in use, except by an earlier run of this import.
func (t *takeover) checkNames(ctx context.Context) error {
	is, err := t.exists(ctx, &vitistackv1alpha1.KubernetesCluster{}, t.name)
	if is || err != nil {
		return errors.Join(err, onlyIf(is, errTaken("KubernetesCluster", t.name)))
	}

	held, err := t.states.Load(ctx, t.key())
	if err != nil && !errors.Is(err, clusterstate.ErrNotFound) {
		return err
	}

	have := &v1alpha1.TalosControlPlane{}

	is, err = t.exists(ctx, have, t.name)
	if err != nil {
		return err
	}

	same := t.isOurs(held, have)
	t.resumed = is && have.Annotations[v1alpha1.PausedAnnotation] == valueImporting
	t.done = is && !t.resumed && same

	switch {
	case is && !t.resumed && !t.done:
		return errTaken("TalosControlPlane", t.name)
	case held != nil && !same:
		return fmt.Errorf("%w, with the PKI of an earlier cluster of that name: apply its TalosControlPlane again, or "+
			"choose another name", errTaken("Secret", clusterstate.SecretName(t.name)))
	case is:
		return nil
	}

	worker := t.name + workersSuffix

	is, err = t.exists(ctx, &v1alpha1.TalosWorker{}, worker)

	return errors.Join(err, onlyIf(is, errTaken("TalosWorker", worker)))
}

// isOurs reports whether a state was created for a control plane by an import of this cluster.
func (t *takeover) isOurs(held *clusterstate.Held, cp *v1alpha1.TalosControlPlane) bool {
	return held != nil && held.State.Runtime.ImportedAt != nil && held.State.Runtime.OwnerUID == string(cp.UID) &&
		held.State.Bundle.Fingerprint() == t.material.Bundle.Fingerprint()
}

func onlyIf(is bool, err error) error {
	if is {
		return err
	}

	return nil
}

// checkMachines rejects machines that already have an object, in this or another namespace: two objects that configure
// the same node would overwrite each other's changes.
func (t *takeover) checkMachines(ctx context.Context) error {
	machines := &v1alpha1.TalosMachineList{}
	planes, workers := &v1alpha1.TalosControlPlaneList{}, &v1alpha1.TalosWorkerList{}

	for _, list := range []client.ObjectList{machines, planes, workers} {
		err := t.plane.List(ctx, list)
		if apierrors.IsForbidden(err) {
			t.warn("only objects in namespace %s were searched for the machines: you may not list those of others",
				t.plane.Namespace)

			err = t.plane.List(ctx, list, client.InNamespace(t.plane.Namespace))
		}

		if err != nil {
			return session.Explain("looking for objects that have the machines", err)
		}
	}

	var problems []error

	for i := range machines.Items {
		m := &machines.Items[i]
		problems = append(problems, t.conflict(claim{
			kind: "TalosMachine", namespace: m.Namespace, name: m.Name, own: m.Spec.ControlPlaneRef.Name == t.name,
			machine: m.Name, addresses: []string{m.Spec.Address, m.Status.Address},
		}))
	}

	for i := range planes.Items {
		p := &planes.Items[i]
		problems = append(problems, t.entryConflicts("TalosControlPlane", p, p.Name == t.name, p.Spec.Machines))
	}

	for i := range workers.Items {
		w := &workers.Items[i]
		problems = append(problems,
			t.entryConflicts("TalosWorker", w, w.Spec.ControlPlaneRef.Name == t.name, w.Spec.Machines))
	}

	return errors.Join(append(problems, t.checkCredentials(ctx))...)
}

// claim is the use of machines by an object.
type claim struct {
	kind, namespace, name string
	// own: the object belongs to the control plane of this import, if that is in its namespace.
	own       bool
	machine   string
	addresses []string
}

func (t *takeover) entryConflicts(kind string, o client.Object, own bool, entries []v1alpha1.MachineEntry) error {
	var problems []error

	for _, e := range entries {
		problems = append(problems, t.conflict(claim{
			kind: kind, namespace: o.GetNamespace(), name: o.GetName(), own: own, machine: e.Name,
			addresses: []string{e.Address},
		}))
	}

	return errors.Join(problems...)
}

func (t *takeover) conflict(c claim) error {
	here := c.namespace == t.plane.Namespace
	if here && c.own && t.resumed {
		return nil
	}

	for _, n := range t.nodes {
		own := append(slices.Clone(n.facts.Addresses), n.Address)

		for _, a := range c.addresses {
			if a != "" && slices.Contains(own, a) {
				return fmt.Errorf("the node at %s belongs to %s %s/%s already", n.Address, c.kind, c.namespace, c.name)
			}
		}
	}

	if here && slices.Contains(t.machineNames(), c.machine) {
		return fmt.Errorf("the machine name %s is already used by %s %s", c.machine, c.kind, c.name)
	}

	return nil
}

// checkCredentials rejects existing Secrets with the names of those that the operator writes for the cluster.
func (t *takeover) checkCredentials(ctx context.Context) error {
	var problems []error

	for _, kind := range []string{access.FileKubeconfig, access.FileTalosconfig} {
		secret, name := &corev1.Secret{}, t.made.ClusterName+"-"+kind

		is, err := t.exists(ctx, secret, name)
		if owner := metav1.GetControllerOf(secret); owner != nil && owner.Name == t.name && t.resumed {
			is = false
		}

		problems = append(problems, err, onlyIf(is, errTaken("Secret", name)))
	}

	return errors.Join(problems...)
}

// rehearse validates the objects with a dry run of the API server.
func (t *takeover) rehearse(ctx context.Context) error {
	objects := []client.Object{t.cp.DeepCopy()}
	if t.worker != nil {
		objects = append(objects, t.worker.DeepCopy())
	}

	for _, o := range objects {
		err := t.plane.Create(ctx, o, client.DryRunAll)
		if err != nil && (!t.resumed || !apierrors.IsAlreadyExists(err)) {
			return session.Explain("describing the cluster in the words of the operator", err)
		}
	}

	return nil
}

// create writes the objects, which are paused until all of them exist: first the control plane, whose UID the state
// records as its owner, then the state, then the workers. They are resumed in the reverse order.
func (t *takeover) create(ctx context.Context) error {
	if t.done {
		return nil
	}

	if err := t.ensurePaused(ctx, t.cp.DeepCopy(), t.cp); err != nil {
		return err
	}

	if err := t.ensureState(ctx); err != nil {
		return err
	}

	if t.worker != nil {
		if err := t.ensurePaused(ctx, t.worker.DeepCopy(), t.worker); err != nil {
			return err
		}

		if err := t.release(ctx, &v1alpha1.TalosWorker{}, t.worker.Name); err != nil {
			return err
		}
	}

	return t.release(ctx, &v1alpha1.TalosControlPlane{}, t.name)
}

// ensurePaused creates an object, or updates that of an earlier run to what the nodes run now. into gets its UID.
func (t *takeover) ensurePaused(ctx context.Context, want, into client.Object) error {
	want.SetAnnotations(map[string]string{v1alpha1.PausedAnnotation: valueImporting})

	err := t.plane.Create(ctx, want)
	if apierrors.IsAlreadyExists(err) {
		err = t.update(ctx, want)
	}

	if err != nil {
		return session.Explain("creating "+want.GetName(), err)
	}

	into.SetUID(want.GetUID())

	return nil
}

func (t *takeover) update(ctx context.Context, want client.Object) error {
	have, ok := want.DeepCopyObject().(client.Object)
	if !ok {
		return fmt.Errorf("%s is not a Kubernetes object", want.GetName())
	}

	if err := t.plane.Get(ctx, client.ObjectKeyFromObject(want), have); err != nil {
		return err
	}

	// Another client may have created an object with the name since the check.
	if !t.resumed {
		return errTaken("an object", want.GetName())
	}

	same := false

	switch have := have.(type) {
	case *v1alpha1.TalosControlPlane:
		same = equality.Semantic.DeepEqual(have.Spec, t.cp.Spec)
	case *v1alpha1.TalosWorker:
		same = equality.Semantic.DeepEqual(have.Spec, t.worker.Spec)
	}

	want.SetUID(have.GetUID())
	want.SetResourceVersion(have.GetResourceVersion())

	if same {
		return nil
	}

	want.SetFinalizers(have.GetFinalizers())
	want.SetAnnotations(have.GetAnnotations())

	return t.plane.Update(ctx, want)
}

func (t *takeover) ensureState(ctx context.Context) error {
	want := t.state()

	_, err := t.states.Create(ctx, t.key(), want)
	if err == nil || !apierrors.IsAlreadyExists(err) {
		return err
	}

	held, err := t.states.Load(ctx, t.key())
	if err != nil {
		return fmt.Errorf("%w: %w", errUnreadable, err)
	}

	if held.State.Runtime.OwnerUID != string(t.cp.UID) ||
		held.State.Bundle.Fingerprint() != t.material.Bundle.Fingerprint() {
		return errTaken("Secret", clusterstate.SecretName(t.name))
	}

	return nil
}

// release resumes the reconciliation of an object.
func (t *takeover) release(ctx context.Context, o client.Object, name string) error {
	if err := t.plane.Get(ctx, client.ObjectKey{Namespace: t.plane.Namespace, Name: name}, o); err != nil {
		return session.Explain("releasing "+name, err)
	}

	if o.GetAnnotations()[v1alpha1.PausedAnnotation] != valueImporting {
		return nil
	}

	base, ok := o.DeepCopyObject().(client.Object)
	if !ok {
		return fmt.Errorf("%s is not a Kubernetes object", o.GetName())
	}

	annotations := o.GetAnnotations()
	delete(annotations, v1alpha1.PausedAnnotation)
	o.SetAnnotations(annotations)

	if err := t.plane.Patch(ctx, o, client.MergeFrom(base)); err != nil {
		return session.Explain("releasing "+name, err)
	}

	return nil
}
