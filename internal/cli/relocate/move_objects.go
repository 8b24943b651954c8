package relocate

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/cli/session"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/configstore"
)

// Kinds that are moved besides those of a cluster.
var (
	kindSecret    = corev1.SchemeGroupVersion.WithKind("Secret")
	kindConfigMap = corev1.SchemeGroupVersion.WithKind("ConfigMap")

	kindBackup         = v1alpha1.GroupVersion.WithKind("TalosEtcdBackup")
	kindBackupSchedule = v1alpha1.GroupVersion.WithKind("TalosEtcdBackupSchedule")
	kindRestore        = v1alpha1.GroupVersion.WithKind("TalosEtcdRestore")
)

// finalizers are copied; those of other controllers are added by the controllers that handle the copy.
var finalizers = []string{v1alpha1.Finalizer, v1alpha1.StateFinalizer, vitistackv1alpha1.ClusterFinalizer}

// reference names one object of the source.
type reference struct {
	kind schema.GroupVersionKind
	name string
}

func (r reference) String() string { return r.kind.Kind + "/" + r.name }

// isData reports whether the object is read by controllers, and not reconciled: it is never paused, and stays on the
// source.
func (r reference) isData() bool { return r.kind == kindSecret || r.kind == kindConfigMap }

// references returns all objects of the cluster, each after its owner. The state is the first, so that no object ever
// exists without its PKI; the top-level object is the next, so that everything below it is paused from the start.
func (t *transfer) references(ctx context.Context) ([]reference, error) {
	c := t.source
	state := reference{kindSecret, clusterstate.SecretName(c.ControlPlane.Name)}
	out := []reference{state, t.top()}

	for i := range c.Machines {
		out = append(out, reference{session.KindMachine, c.Machines[i].Name})
	}

	if c.Top != nil {
		out = append(out, reference{session.KindControlPlane, c.ControlPlane.Name})
	}

	for i := range c.Workers {
		out = append(out, reference{session.KindWorker, c.Workers[i].Name})
	}

	named := []reference{{kindSecret, c.Name() + "-kubeconfig"}, {kindSecret, c.Name() + "-talosconfig"}}

	about := t.backups.references()

	for _, r := range slices.Concat(out, about) {
		o, err := get(ctx, t.from, r)
		if err != nil {
			return nil, err
		}

		named = append(named, dataRefs(o.Object["spec"])...)
	}

	slices.SortFunc(named, func(a, b reference) int { return strings.Compare(a.String(), b.String()) })

	named = slices.DeleteFunc(slices.Compact(named), func(r reference) bool { return r == state })

	out, err := t.withData(ctx, out, named)
	if err != nil {
		return nil, err
	}

	var configs []reference

	for i := range c.Nodes {
		out = append(out, reference{session.KindTalosMachine, c.Nodes[i].Name})
		configs = append(configs, reference{kindSecret, configstore.SecretName(c.Nodes[i].Name)})
	}

	out, err = t.withData(ctx, out, configs)

	return append(out, about...), err
}

// withData adds the Secrets and ConfigMaps that exist. A named one that does not exist was already read, or will be
// reported as missing on the target as on the source.
func (t *transfer) withData(ctx context.Context, out, named []reference) ([]reference, error) {
	for _, r := range named {
		if _, err := get(ctx, t.from, r); apierrors.IsNotFound(err) {
			continue
		} else if err != nil {
			return nil, err
		}

		out = append(out, r)
	}

	return out, nil
}

// top returns the top-level object, which pauses everything below it.
func (t *transfer) top() reference {
	if t.source.Top != nil {
		return reference{session.KindCluster, t.source.Top.Name}
	}

	return reference{session.KindControlPlane, t.source.ControlPlane.Name}
}

// dataRefs returns the Secrets and ConfigMaps that a spec names: in every field …SecretRef, …SecretsRef, …SecretKeyRef,
// …CredentialsRef and …From, so that fields that are added later are included.
func dataRefs(v any) []reference {
	var out []reference

	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			if isSecretRef(key) {
				out = append(out, refsIn(value)...)
			}

			out = append(out, dataRefs(value)...)
		}
	case []any:
		for _, value := range v {
			out = append(out, dataRefs(value)...)
		}
	}

	return out
}

// refsIn returns the objects in a reference, or in a list of references. A reference without a kind is to a Secret.
func refsIn(v any) []reference {
	switch v := v.(type) {
	case map[string]any:
		kind := kindSecret
		if v["kind"] == kindConfigMap.Kind {
			kind = kindConfigMap
		}

		if name, ok := v["name"].(string); ok {
			return []reference{{kind, name}}
		}
	case []any:
		var out []reference
		for _, value := range v {
			out = append(out, refsIn(value)...)
		}

		return out
	}

	return nil
}

func isSecretRef(key string) bool {
	key = strings.ToLower(key)

	return slices.ContainsFunc([]string{"secretref", "secretsref", "secretkeyref", "credentialsref", "from"},
		func(end string) bool { return strings.HasSuffix(key, end) })
}

func get(ctx context.Context, p *session.Plane, r reference) (*unstructured.Unstructured, error) {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(r.kind)

	if err := p.Get(ctx, client.ObjectKey{Namespace: p.Namespace, Name: r.name}, o); err != nil {
		return nil, session.Explain(fmt.Sprintf("reading %s at %s", r, p.Config.Host), err)
	}

	return o, nil
}

// copiedParts are the parts of objects that are copied, besides their metadata and status.
var copiedParts = []string{"spec", "data", "binaryData", "type", "immutable"}

// copyOf returns the copy for the target: the same object, paused, with the owners that it has there.
func (t *transfer) copyOf(ctx context.Context, o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	out := &unstructured.Unstructured{Object: map[string]any{}}
	out.SetGroupVersionKind(o.GroupVersionKind())
	out.SetNamespace(t.to.Namespace)
	out.SetName(o.GetName())
	out.SetLabels(o.GetLabels())
	out.SetOwnerReferences(t.owners(o))

	annotations := maps.Clone(o.GetAnnotations())
	if annotations == nil {
		annotations = map[string]string{}
	}

	delete(annotations, v1alpha1.MovedToAnnotation)
	delete(annotations, v1alpha1.MovingAnnotation)
	annotations[v1alpha1.MovedFromAnnotation] = string(o.GetUID())

	if !(reference{kind: o.GroupVersionKind()}).isData() {
		annotations[v1alpha1.PausedAnnotation] = valueMoving
	}

	out.SetAnnotations(annotations)

	var keep []string

	for _, f := range o.GetFinalizers() {
		if slices.Contains(finalizers, f) {
			keep = append(keep, f)
		}
	}

	out.SetFinalizers(keep)

	for _, part := range copiedParts {
		if v, ok := o.Object[part]; ok {
			out.Object[part] = v
		}
	}

	if o.GroupVersionKind() == kindSecret && o.GetName() == clusterstate.SecretName(t.source.ControlPlane.Name) {
		return out, t.adopt(ctx, out)
	}

	return out, nil
}

// owners returns the owners that are moved too, with their new UIDs. Others do not exist on the target.
func (t *transfer) owners(o *unstructured.Unstructured) []metav1.OwnerReference {
	var out []metav1.OwnerReference

	for _, ref := range o.GetOwnerReferences() {
		if uid, ok := t.uids[ref.UID]; ok {
			ref.UID = uid
			out = append(out, ref)
		}
	}

	return out
}

// adopt writes the new UID of the control plane to the state, because it is the same cluster. With another UID, the
// control plane would count as deleted and applied again, and a loss of its etcd as a new cluster. The generation with
// which hooks of an upgrade failed is translated: another one would run them again.
func (t *transfer) adopt(ctx context.Context, o *unstructured.Unstructured) error {
	uid, ok := t.uids[t.source.ControlPlane.UID]
	if !ok {
		return nil
	}

	copied, err := get(ctx, t.to, reference{session.KindControlPlane, t.source.ControlPlane.Name})
	if err != nil {
		return err
	}

	secret := &corev1.Secret{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, secret); err != nil {
		return fmt.Errorf("reading Secret %s: %w", o.GetName(), err)
	}

	state, err := clusterstate.Decode(secret.Data)
	if err != nil {
		return fmt.Errorf("reading Secret %s: %w", o.GetName(), err)
	}

	if state.Runtime.OwnerUID != string(t.source.ControlPlane.UID) {
		return nil
	}

	state.Runtime.FormerOwnerUID, state.Runtime.OwnerUID = state.Runtime.OwnerUID, string(uid)

	state.Runtime.Upgrade.Translate(t.source.ControlPlane.Generation, copied.GetGeneration())

	data, err := state.Encode()
	if err != nil {
		return err
	}

	encoded := map[string]any{}
	for key, value := range data {
		encoded[key] = base64.StdEncoding.EncodeToString(value)
	}

	o.Object["data"] = encoded

	return nil
}

// put creates a copy or updates it to the state of the source. It is repeated after a crash.
func (t *transfer) put(ctx context.Context, r reference) error {
	o, err := get(ctx, t.from, r)
	if err != nil {
		return err
	}

	want, err := t.copyOf(ctx, o)
	if err != nil {
		return err
	}

	have, err := get(ctx, t.to, r)

	switch {
	case err == nil:
		err = t.update(ctx, have, want)
	case apierrors.IsNotFound(err):
		have = want
		if err = t.to.Create(ctx, have, client.FieldOwner(fieldManager)); err != nil {
			err = fmt.Errorf("creating %s at %s: %w", r, t.to.Config.Host, err)
		}
	}

	if err != nil {
		return err
	}

	t.uids[o.GetUID()] = have.GetUID()

	if err := t.putStatus(ctx, r, o); err != nil {
		return err
	}

	return t.putFieldOwners(ctx, have, o)
}

func (t *transfer) update(ctx context.Context, have, want *unstructured.Unstructured) error {
	if sameObject(have, want) {
		return nil
	}

	want.SetResourceVersion(have.GetResourceVersion())
	want.SetUID(have.GetUID())

	if err := t.to.Update(ctx, want, client.FieldOwner(fieldManager)); err != nil {
		return fmt.Errorf("writing %s/%s at %s: %w", want.GetKind(), want.GetName(), t.to.Config.Host, err)
	}

	return nil
}

// sameObject compares the copied parts of two objects.
func sameObject(a, b *unstructured.Unstructured) bool {
	for _, part := range copiedParts {
		if !equality.Semantic.DeepEqual(a.Object[part], b.Object[part]) {
			return false
		}
	}

	return equality.Semantic.DeepEqual(a.GetOwnerReferences(), b.GetOwnerReferences()) &&
		maps.Equal(a.GetLabels(), b.GetLabels()) && maps.Equal(a.GetAnnotations(), b.GetAnnotations())
}

// putStatus copies the observations and the recorded steps: for example the install disk of a machine, or the member of
// a node that is unreachable now. They are not available from elsewhere until every node has responded.
func (t *transfer) putStatus(ctx context.Context, r reference, o *unstructured.Unstructured) error {
	status, ok := o.Object["status"].(map[string]any)
	if !ok {
		return nil
	}

	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		have, err := get(ctx, t.to, r)
		if err != nil {
			return err
		}

		have.Object["status"] = observed(status, o.GetGeneration(), have.GetGeneration())

		return t.to.Status().Update(ctx, have, client.FieldOwner(fieldManager))
	})
	if err != nil {
		return fmt.Errorf("writing the status of %s at %s: %w", r, t.to.Config.Host, err)
	}

	return nil
}

// observed translates the generations in a status, so that a status of the current generation remains current.
func observed(status map[string]any, from, to int64) map[string]any {
	out := map[string]any{}

	for key, v := range status {
		switch v := v.(type) {
		case map[string]any:
			out[key] = v
		case []any:
			list := make([]any, 0, len(v))

			for _, entry := range v {
				if m, ok := entry.(map[string]any); ok {
					entry = observed(m, from, to)
				}

				list = append(list, entry)
			}

			out[key] = list
		default:
			out[key] = v
		}
	}

	if seen, ok := out["observedGeneration"].(int64); ok {
		out["observedGeneration"] = to

		if seen != from {
			delete(out, "observedGeneration")
		}
	}

	return out
}

// putFieldOwners sets the field managers of a copy to those of the source. Otherwise the fields would also belong to
// the move, and a field that the operator or a user no longer applies would remain forever.
func (t *transfer) putFieldOwners(ctx context.Context, have, o *unstructured.Unstructured) error {
	if len(o.GetManagedFields()) == 0 {
		return nil
	}

	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"managedFields": o.GetManagedFields()}})
	if err != nil {
		return fmt.Errorf("encoding field owners: %w", err)
	}

	err = t.to.Patch(ctx, have, client.RawPatch(types.MergePatchType, patch))
	if err != nil {
		return fmt.Errorf("writing the field owners of %s/%s: %w", have.GetKind(), have.GetName(), err)
	}

	return nil
}
