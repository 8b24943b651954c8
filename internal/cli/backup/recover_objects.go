package backup

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/backup/signature"
	"github.com/talos-operator/talos-operator/internal/backup/storage"
	"github.com/talos-operator/talos-operator/internal/backup/store"
	"github.com/talos-operator/talos-operator/internal/cli/session"
)

const (
	restoreKind = "TalosEtcdRestore"
	// keyIdentity and keyCA are keys in the Secrets that are created.
	keyIdentity = "identity"
	keyCA       = "ca.crt"
	// managedByLabel marks those Secrets: other Secrets with the same names are not changed.
	managedByLabel = "app.kubernetes.io/managed-by"
	managedBy      = "talos-operator-recover"
	// applyOwner is the field manager of kubectl apply --server-side: the manifest remains under the control of the user
	// who applies it next.
	applyOwner = "kubectl"
)

// recovery is one recovery in preparation and in progress.
type recovery struct {
	*recoverer

	plane *session.Plane

	// title names the top-level object; controlPlane is the TalosControlPlane, and cluster the Talos cluster.
	title, namespace, controlPlane, cluster string
	machines, workers                       []string
	manifests                               []*unstructured.Unstructured
	// exists: the control plane already exists on the management plane.
	exists bool

	// named is the object that names the store; nil with --storage.
	named          *storedBy
	store          *openStore
	storage        *v1alpha1.BackupStorage
	identitiesFrom []v1alpha1.SecretKeyReference
	secrets        []*corev1.Secret

	set  backupSet
	look *lookedAt
	// key verifies the backups of the cluster; zero if the backup has no PKI.
	key signature.Public
	// pinned: the restore uses this backup and no other.
	pinned bool

	restore *v1alpha1.TalosEtcdRestore
	// running is a restore of an earlier run that continues, done a complete one, and obsolete those that have changed
	// nothing and differ from the request.
	running, done *v1alpha1.TalosEtcdRestore
	obsolete      []v1alpha1.TalosEtcdRestore
	warnings      []string
}

func (v *recovery) close() {
	if v.store != nil {
		v.store.Close()
	}
}

func (v *recovery) warn(format string, args ...any) {
	v.warnings = append(v.warnings, fmt.Sprintf(format, args...))
}

func (v *recovery) secret(name string, data map[string][]byte) *corev1.Secret {
	return &corev1.Secret{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: v.namespace, Name: name, Labels: map[string]string{managedByLabel: managedBy},
		},
		Type: corev1.SecretTypeOpaque, Data: data,
	}
}

func fillCredentials(data map[string][]byte, c store.Credentials) {
	data[storage.AccessKeyID] = []byte(c.AccessKeyID)
	data[storage.SecretAccessKey] = []byte(c.SecretAccessKey)

	if c.SessionToken != "" {
		data[storage.SessionToken] = []byte(c.SessionToken)
	}
}

// findEarlier searches for restores of the control plane, and decides what to do with them.
func (v *recovery) findEarlier(ctx context.Context) error {
	list := &v1alpha1.TalosEtcdRestoreList{}
	if err := v.plane.List(ctx, list, client.InNamespace(v.namespace)); err != nil {
		return session.Explain("looking for TalosEtcdRestores", err)
	}

	taken := map[string]bool{}

	for i := range list.Items {
		o := &list.Items[i]
		taken[o.Name] = true

		if o.Spec.ControlPlaneRef.Name != v.controlPlane {
			continue
		}

		if err := v.judge(o); err != nil {
			return err
		}
	}

	if v.running != nil {
		v.done = nil
	}

	v.restore.Name = freeName(v.controlPlane+"-"+nameOf(v.set.ID), taken)

	return nil
}

func (v *recovery) judge(o *v1alpha1.TalosEtcdRestore) error {
	chosen := o.Status.Backup != nil && o.Status.Backup.ID == v.set.ID

	switch o.Status.Step {
	case v1alpha1.RestoreComplete:
		if chosen && !v.again {
			v.done = o
		}
	case v1alpha1.RestoreStopped:
	case "", v1alpha1.RestorePreflight:
		if v.same(o) {
			v.running = o
		} else {
			v.obsolete = append(v.obsolete, *o)
		}
	default:
		if !v.same(o) {
			return fmt.Errorf("TalosEtcdRestore %s is restoring the cluster (step %s) and asks for something else: wait for "+
				"its end, or repeat its options", o.Name, o.Status.Step)
		}

		v.running = o
	}

	return nil
}

// same reports whether a restore matches the request. If the newest backup was requested, that may be another one by
// now.
func (v *recovery) same(o *v1alpha1.TalosEtcdRestore) bool {
	have, want := o.Spec.DeepCopy(), v.restore.Spec.DeepCopy()
	if !v.pinned && v.choice.before == "" {
		have.Source.Before, want.Source.Before = nil, nil
	}

	return o.DeletionTimestamp.IsZero() && equality.Semantic.DeepEqual(have, want)
}

// nameOf derives a part of a name from the ID of a backup.
func nameOf(id string) string {
	name := strings.ToLower(id)
	if strings.ContainsFunc(name, func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' }) {
		sum := sha256.Sum256([]byte(id))

		return hex.EncodeToString(sum[:4])
	}

	return name
}

func freeName(base string, taken map[string]bool) string {
	name := base
	for i := 2; taken[name]; i++ {
		name = fmt.Sprintf("%s-%d", base, i)
	}

	return name
}

// create creates everything, in an order in which an interruption is harmless: the restore before the control plane,
// which would create a PKI of its own otherwise.
func (v *recovery) create(ctx context.Context) error {
	if err := v.ensureNamespace(ctx); err != nil {
		return err
	}

	for _, s := range v.secrets {
		if err := v.ensureSecret(ctx, s); err != nil {
			return err
		}
	}

	if err := v.removeObsolete(ctx); err != nil {
		return err
	}

	if v.running == nil {
		if err := v.plane.Create(ctx, v.restore); err != nil {
			return session.Explain("making TalosEtcdRestore "+v.restore.Name, err)
		}

		v.running = v.restore
	}

	for _, o := range v.manifests {
		err := v.plane.Apply(ctx, client.ApplyConfigurationFromUnstructured(o.DeepCopy()), client.FieldOwner(applyOwner))
		if err != nil {
			return session.Explain(fmt.Sprintf("applying %s %s", o.GetKind(), o.GetName()), err)
		}
	}

	return nil
}

// ensureNamespace creates the namespace. A user without permission to do so already has one.
func (v *recovery) ensureNamespace(ctx context.Context) error {
	ns := &corev1.Namespace{}

	err := v.plane.Get(ctx, client.ObjectKey{Name: v.namespace}, ns)
	if !apierrors.IsNotFound(err) {
		return nil // what cannot be read is told by the next write
	}

	ns.Name = v.namespace

	if err := v.plane.Create(ctx, ns); err != nil && !apierrors.IsAlreadyExists(err) {
		return session.Explain("making namespace "+v.namespace, err)
	}

	return nil
}

// ensureSecret creates a Secret, or updates that of an earlier run.
func (v *recovery) ensureSecret(ctx context.Context, want *corev1.Secret) error {
	err := v.plane.Create(ctx, want.DeepCopy())
	if err == nil || !apierrors.IsAlreadyExists(err) {
		return session.ExplainNil("making Secret "+want.Name, err)
	}

	have := &corev1.Secret{}
	if err := v.plane.Get(ctx, client.ObjectKeyFromObject(want), have); err != nil {
		return session.Explain("reading Secret "+want.Name, err)
	}

	if have.Labels[managedByLabel] != managedBy {
		return fmt.Errorf("the Secret %s is there and was not made by this command: rename it", want.Name)
	}

	if equality.Semantic.DeepEqual(have.Data, want.Data) {
		return nil
	}

	have.Data = want.Data

	return session.ExplainNil("updating Secret "+want.Name, v.plane.Update(ctx, have))
}

// removeObsolete deletes restores that have changed nothing: two restores would wait for each other.
func (v *recovery) removeObsolete(ctx context.Context) error {
	for i := range v.obsolete {
		o := &v.obsolete[i]

		// Do not delete it if it has changed since it was read.
		err := v.plane.Delete(ctx, o, client.Preconditions{UID: &o.UID, ResourceVersion: &o.ResourceVersion})
		if client.IgnoreNotFound(err) != nil {
			return session.Explain("removing TalosEtcdRestore "+o.Name+", which has touched nothing", err)
		}

		err = wait.PollUntilContextTimeout(ctx, pollObject, removeTimeout, true, func(ctx context.Context) (bool, error) {
			err := v.plane.Get(ctx, client.ObjectKeyFromObject(o), o)

			return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
		})
		if err != nil {
			return fmt.Errorf("waiting for TalosEtcdRestore %s to go; does the operator run? %w", o.Name, err)
		}
	}

	return nil
}

// made returns the names of the created objects, for users.
func (v *recovery) made() []string {
	var out []string

	for _, s := range v.secrets {
		out = append(out, "Secret "+s.Name)
	}

	if v.running == nil {
		out = append(out, restoreKind+" "+v.restore.Name)
	}

	for _, o := range v.manifests {
		out = append(out, o.GetKind()+" "+o.GetName())
	}

	return slices.Compact(out)
}

// objects returns all objects in the order of their creation, without the values of Secrets.
func (v *recovery) objects() ([]*unstructured.Unstructured, error) {
	var out []*unstructured.Unstructured

	ns := &unstructured.Unstructured{}
	ns.SetAPIVersion("v1")
	ns.SetKind("Namespace")
	ns.SetName(v.namespace)
	out = append(out, ns)

	for _, s := range v.secrets {
		o, err := plainObject(s)
		if err != nil {
			return nil, err
		}

		out = append(out, o)
	}

	r, err := plainObject(v.restore)
	if err != nil {
		return nil, err
	}

	out = append(out, r)

	for _, o := range v.manifests {
		out = append(out, o.DeepCopy())
	}

	for _, o := range out {
		hideValues(o)
	}

	return out, nil
}

// hideValues replaces the values of a Secret by a note.
func hideValues(o *unstructured.Unstructured) {
	if o.GetKind() != "Secret" {
		return
	}

	notes := map[string]any{}

	for _, field := range []string{"data", "stringData"} {
		values, _, _ := unstructured.NestedMap(o.Object, field)
		for key := range values {
			notes[key] = cmp.Or(noteOf[key], "(left out)")
		}

		unstructured.RemoveNestedField(o.Object, field)
	}

	o.Object["stringData"] = notes
}

// noteOf describes the source of the values.
var noteOf = map[string]string{
	storage.AccessKeyID:     "(left out: AWS_ACCESS_KEY_ID of the environment)",
	storage.SecretAccessKey: "(left out: AWS_SECRET_ACCESS_KEY of the environment)",
	storage.SessionToken:    "(left out: AWS_SESSION_TOKEN of the environment)",
	keyIdentity:             "(left out: the files of --identity)",
	keyCA:                   "(left out: the file of --s3-ca-file)",
}
