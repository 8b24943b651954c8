package kubernetescluster_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/test/pki"
)

func (b *bench) get(o client.Object, name string) {
	b.t.Helper()

	if err := b.admin.Get(b.t.Context(), client.ObjectKey{Namespace: b.ns, Name: name}, o); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) add(o client.Object) {
	b.t.Helper()

	if err := b.admin.Create(b.t.Context(), o); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) update(o client.Object) {
	b.t.Helper()

	if err := b.admin.Update(b.t.Context(), o); err != nil {
		b.t.Fatal(err)
	}
}

// owned: the cluster is the one controller of the object, and is not deleted before it.
func (b *bench) owned(o client.Object, c *vitistackv1alpha1.KubernetesCluster) {
	b.t.Helper()

	yes := true
	want := []metav1.OwnerReference{{
		APIVersion: vitistackv1alpha1.GroupVersion.String(), Kind: "KubernetesCluster", Name: c.Name, UID: c.UID,
		Controller: &yes, BlockOwnerDeletion: &yes,
	}}
	if diff := cmp.Diff(want, o.GetOwnerReferences()); diff != "" {
		b.t.Errorf("owners of %s (-want +got):\n%s", o.GetName(), diff)
	}
}

// contents: what the objects below say, and what stands in the files.
func (b *bench) contents() {
	c := b.create("full", good)
	b.reconcile(c)

	plane, group := &v1alpha1.TalosControlPlane{}, &v1alpha1.TalosWorker{}
	b.get(plane, "full")
	b.get(group, "full-web")
	b.owned(plane, c)
	b.owned(group, c)

	if s := plane.Spec; s.ClusterName != "full" || s.TalosVersion != "v1.13.9" || s.KubernetesVersion != "v1.36.2" ||
		s.Endpoint != "https://10.0.0.1:6443" || s.DeletionPolicy != v1alpha1.DeletionReset {
		b.t.Errorf("control plane: %+v", s)
	}

	if s := group.Spec; s.ControlPlaneRef.Name != "full" || s.DeletionPolicy != v1alpha1.DeletionReset {
		b.t.Errorf("group: %+v", s)
	}

	for entries, names := range map[*[]v1alpha1.MachineEntry][]string{
		&plane.Spec.Machines: {"full-cp-0", "full-cp-1", "full-cp-2"}, &group.Spec.Machines: {"full-web-0", "full-web-1"},
	} {
		var got []string
		for _, e := range *entries {
			got = append(got, e.Name)

			if e.MachineRef == nil || e.MachineRef.Name != e.Name {
				b.t.Errorf("entry %s refers to %v", e.Name, e.MachineRef)
			}
		}

		if diff := cmp.Diff(names, got); diff != "" {
			b.t.Errorf("entries (-want +got):\n%s", diff)
		}
	}

	for _, name := range []string{"full-cp-0", "full-web-1"} {
		m := &vitistackv1alpha1.Machine{}
		b.get(m, name)
		b.owned(m, c)
		b.file(m)

		if m.Spec.ReclaimPolicy != vitistackv1alpha1.ReclaimDelete || m.Spec.TalosConfig == nil ||
			m.Spec.TalosConfig.MachineType != m.Labels[vitistackv1alpha1.RoleLabel] {
			b.t.Errorf("%s: %+v", name, m.Spec)
		}
	}
}

// file: the manifest of a Machine says what the Machine says.
func (b *bench) file(m *vitistackv1alpha1.Machine) {
	b.t.Helper()

	data, err := os.ReadFile(filepath.Join(b.dir, m.Labels[vitistackv1alpha1.ClusterNameLabel], m.Name+".yaml"))
	if err != nil {
		b.t.Fatal(err)
	}

	got := &vitistackv1alpha1.Machine{}
	if err := yaml.UnmarshalStrict(data, got); err != nil {
		b.t.Fatal(err)
	}

	if diff := cmp.Diff(m.Spec, got.Spec); diff != "" || got.Kind != "Machine" || got.Name != m.Name ||
		!cmp.Equal(m.Labels, got.Labels) {
		b.t.Errorf("manifest of %s, %+v (-object +file):\n%s", m.Name, got.ObjectMeta, diff)
	}
}

// drift: what others change or delete below the cluster comes back.
func (b *bench) drift() {
	c := b.create("drift", good)
	b.reconcile(c)

	m, group, plane := &vitistackv1alpha1.Machine{}, &v1alpha1.TalosWorker{}, &v1alpha1.TalosControlPlane{}
	b.get(m, "drift-cp-0")
	m.Spec.ReclaimPolicy = vitistackv1alpha1.ReclaimRetain
	delete(m.Labels, vitistackv1alpha1.RoleLabel)
	b.update(m)

	b.get(plane, "drift")
	plane.Spec.DeletionPolicy = v1alpha1.DeletionPreserve
	b.update(plane)

	b.get(group, "drift-web")

	if err := b.admin.Delete(b.t.Context(), group); err != nil {
		b.t.Fatal(err)
	}

	b.release(group)

	lost := filepath.Join(b.dir, "drift", "drift-web-0.yaml")
	if err := os.Remove(lost); err != nil {
		b.t.Fatal(err)
	}

	b.reconcile(c)
	b.get(m, "drift-cp-0")
	b.get(plane, "drift")
	b.get(group, "drift-web")

	if m.Spec.ReclaimPolicy != vitistackv1alpha1.ReclaimDelete || m.Labels[vitistackv1alpha1.RoleLabel] != "controlplane" ||
		plane.Spec.DeletionPolicy != v1alpha1.DeletionReset || len(group.Spec.Machines) != 2 {
		b.t.Errorf("after the drift: %+v, %+v, %+v", m, plane.Spec, group.Spec)
	}

	if _, err := os.Stat(lost); err != nil {
		b.t.Errorf("the lost file: %v", err)
	}

	// What the cluster may do to its nodes reaches everything below it.
	c.Spec.DeletionPolicy = v1alpha1.DeletionPreserve
	b.update(c)
	b.reconcile(c)
	b.get(m, "drift-cp-0")
	b.get(plane, "drift")
	b.get(group, "drift-web")
	b.file(m)

	if m.Spec.ReclaimPolicy != vitistackv1alpha1.ReclaimRetain ||
		plane.Spec.DeletionPolicy != v1alpha1.DeletionPreserve || group.Spec.DeletionPolicy != v1alpha1.DeletionPreserve {
		b.t.Errorf("with Preserve: %s, %s, %s", m.Spec.ReclaimPolicy, plane.Spec.DeletionPolicy, group.Spec.DeletionPolicy)
	}
}

// outrun is a client whose applies always come too late.
type outrun struct{ client.Client }

func (outrun) Apply(context.Context, runtime.ApplyConfiguration, ...client.ApplyOption) error {
	return apierrors.NewConflict(schema.GroupResource{Resource: "taloscontrolplanes"}, "handed", errors.New("outrun"))
}

// handed: a spec counts as observed once it is handed on. Until then it is unknown what it changes.
func (b *bench) handed() {
	c := b.create("handed", good)
	b.reconcile(c)

	before := c.Generation

	c.Spec.Drift = v1alpha1.DriftEnforce
	b.update(c)

	whole := b.r.Client
	b.r.Client = outrun{whole}
	b.reconcile(c)
	b.r.Client = whole

	if c.Generation == before || c.Status.ObservedGeneration != before {
		b.t.Errorf("generation %d is observed, of %d", c.Status.ObservedGeneration, c.Generation)
	}

	b.reconcile(c)

	plane := &v1alpha1.TalosControlPlane{}
	b.get(plane, "handed")

	if c.Status.ObservedGeneration != c.Generation || plane.Spec.Drift != v1alpha1.DriftEnforce {
		b.t.Errorf("generation %d is observed, of %d; the control plane has %q", c.Status.ObservedGeneration, c.Generation,
			plane.Spec.Drift)
	}
}

// occupied: objects of every other kind that stand where a child has to are left alone, and named.
func (b *bench) occupied() {
	labels := map[string]string{"whose": "theirs"}
	tests := map[string]struct {
		theirs client.Object
		secret bool
	}{
		"plane": {theirs: &v1alpha1.TalosControlPlane{
			ObjectMeta: metav1.ObjectMeta{Namespace: b.ns, Name: "occupied-plane", Labels: labels},
			Spec: v1alpha1.TalosControlPlaneSpec{
				TalosVersion: "v1.13.9", KubernetesVersion: "v1.36.2", Endpoint: "https://10.9.9.9:6443",
				Machines: []v1alpha1.MachineEntry{{Name: "theirs", Address: "10.9.9.9"}},
			},
		}},
		"group": {theirs: &v1alpha1.TalosWorker{
			ObjectMeta: metav1.ObjectMeta{Namespace: b.ns, Name: "occupied-group-web", Labels: labels},
			Spec:       v1alpha1.TalosWorkerSpec{ControlPlaneRef: v1alpha1.ObjectReference{Name: "theirs"}},
		}},
		"secret": {theirs: &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: b.ns, Name: "occupied-secret-bootstrap-secrets", Labels: labels},
		}, secret: true},
	}

	for name, tc := range tests {
		b.add(tc.theirs)

		version := tc.theirs.GetResourceVersion()
		manifest := good

		if tc.secret {
			manifest += "  talosConfig: {machine: {token: abcdef.0123456789abcdef}}\n"
		}

		c := b.create("occupied-"+name, manifest)
		b.reconcile(c)
		b.condition(c, vitistackv1alpha1.ConditionReady, metav1.ConditionFalse,
			tc.theirs.GetName()+" exists and is controlled by another owner")
		b.condition(c, v1alpha1.ConditionStalled, metav1.ConditionTrue, tc.theirs.GetName())

		if c.Status.Phase != vitistackv1alpha1.PhaseFailed || !b.warned("is controlled by another owner") {
			b.t.Errorf("%s: phase %s, or no event", name, c.Status.Phase)
		}

		if b.get(tc.theirs, tc.theirs.GetName()); tc.theirs.GetResourceVersion() != version {
			b.t.Errorf("%s was written", tc.theirs.GetName())
		}

		if err := b.admin.Delete(b.t.Context(), tc.theirs); err != nil {
			b.t.Fatal(err)
		}

		b.reconcile(c)
		b.condition(c, vitistackv1alpha1.ConditionReady, metav1.ConditionFalse, vitistackv1alpha1.ReasonProvisioning)

		if meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionStalled) != nil || len(b.children(c)) != 7 {
			b.t.Errorf("%s: still stalled, or children %v", name, b.children(c))
		}
	}
}

// twins: two clusters that want the same names. The second one gets nothing, and its end takes nothing from the first.
func (b *bench) twins() {
	first := b.create("twin", good)
	b.reconcile(first)

	second := b.create("twin-b", strings.Replace(good, "spec:\n", "spec:\n  clusterName: twin\n", 1))
	b.reconcile(second)
	b.condition(second, v1alpha1.ConditionStalled, metav1.ConditionTrue, "is controlled by another owner")

	if got := b.children(second); len(got) != 0 {
		b.t.Errorf("children of the second: %v", got)
	}

	before := b.children(first)

	if err := b.admin.Delete(b.t.Context(), second); err != nil {
		b.t.Fatal(err)
	}

	b.reconcile(second)

	err := b.admin.Get(b.t.Context(), client.ObjectKeyFromObject(second), second)
	if !apierrors.IsNotFound(err) {
		b.t.Errorf("the second is still there: %v", err)
	}

	if diff := cmp.Diff(before, b.children(first)); diff != "" {
		b.t.Errorf("children of the first (-before +after):\n%s", diff)
	}

	if _, err := os.Stat(filepath.Join(b.dir, "twin", "twin-cp-0.yaml")); err != nil {
		b.t.Errorf("the files of the first: %v", err)
	}
}

// material: keys that stand in the spec end in one Secret of the cluster, and nowhere else.
func (b *bench) material() {
	const token = "fedcba.0123456789abcdef"

	bundle, err := pki.New(b.clock.Now())
	if err != nil {
		b.t.Fatal(err)
	}

	ca := bundle.Secrets().Certs.OS
	inline := &vitistackv1alpha1.MachineTalosConfig{
		Token: token, CA: &vitistackv1alpha1.CertificateAuthority{Crt: string(ca.Crt), Key: string(ca.Key)},
	}

	raw, err := yaml.Marshal(map[string]any{"talosConfig": map[string]any{"machine": inline}})
	if err != nil {
		b.t.Fatal(err)
	}

	c := b.create("material", good+"  "+strings.ReplaceAll(strings.TrimSpace(string(raw)), "\n", "\n  ")+"\n")
	b.reconcile(c)

	secret, plane := &corev1.Secret{}, &v1alpha1.TalosControlPlane{}
	b.get(secret, "material-bootstrap-secrets")
	b.get(plane, "material")
	b.owned(secret, c)

	if string(secret.Data["token"]) != token || string(secret.Data["ca.crt"]) != string(ca.Crt) ||
		string(secret.Data["ca.key"]) != string(ca.Key) || plane.Spec.BootstrapSecretsRef == nil ||
		plane.Spec.BootstrapSecretsRef.Name != secret.Name {
		b.t.Errorf("keys of the Secret, or reference %v", plane.Spec.BootstrapSecretsRef)
	}

	texts, err := yaml.Marshal([]any{plane, c.Status})
	if err != nil {
		b.t.Fatal(err)
	}

	files, err := filepath.Glob(filepath.Join(b.dir, "material", "*.yaml"))
	if err != nil || len(files) != 5 {
		b.t.Fatalf("files %v, %v", files, err)
	}

	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			b.t.Fatal(err)
		}

		texts = append(texts, data...)
	}

	if text := string(texts); strings.Contains(text, token) || strings.Contains(text, "PRIVATE KEY") {
		b.t.Error("key material outside of its Secret")
	}
}
