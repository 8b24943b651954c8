package kube_test

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/kube"
	"github.com/talos-operator/talos-operator/test/plane"
)

var api *plane.Plane

func TestMain(m *testing.M) { plane.Main(m, &api) }

func machine(namespace string, edit func(*vitistackv1alpha1.Machine)) *vitistackv1alpha1.Machine {
	m := &vitistackv1alpha1.Machine{
		TypeMeta:   metav1.TypeMeta{APIVersion: vitistackv1alpha1.GroupVersion.String(), Kind: "Machine"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "m"},
	}
	if edit != nil {
		edit(m)
	}

	return m
}

func get(t *testing.T, c client.Client, namespace string) *vitistackv1alpha1.Machine {
	t.Helper()

	m := &vitistackv1alpha1.Machine{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "m"}, m); err != nil {
		t.Fatal(err)
	}

	return m
}

// TestApply: what we apply is ours, what others set stays theirs, and the status is not touched here.
func TestApply(t *testing.T) {
	c, admin, ns := api.Manager(t), api.Admin(t), api.Namespace(t)

	apply := func(edit func(*vitistackv1alpha1.Machine)) *vitistackv1alpha1.Machine {
		t.Helper()

		if err := kube.Apply(t.Context(), c, machine(ns, edit)); err != nil {
			t.Fatal(err)
		}

		return get(t, admin, ns)
	}

	m := apply(func(m *vitistackv1alpha1.Machine) {
		m.Labels = map[string]string{"ours": "1", "gone": "1"}
		m.Spec.Provider.Name = "some"
		m.Spec.NodeLabels = map[string]string{"a": "1"}
		m.Status.Phase = vitistackv1alpha1.MachineFailed
	})
	if m.Status.Phase != "" || m.CreationTimestamp.IsZero() {
		t.Errorf("status %+v, created %s", m.Status, m.CreationTimestamp)
	}

	owners := slices.DeleteFunc(slices.Clone(m.ManagedFields), func(e metav1.ManagedFieldsEntry) bool {
		return e.Manager == string(kube.FieldOwner) && e.Operation == metav1.ManagedFieldsOperationApply
	})
	if len(owners) != 0 {
		t.Errorf("other field owners: %v", owners)
	}

	// A user adds to it, and changes what is ours.
	m.Labels["theirs"], m.Labels["ours"] = "1", "changed"
	m.Spec.Provider.Parameters = map[string]string{"pool": "x"}

	if err := admin.Update(t.Context(), m); err != nil {
		t.Fatal(err)
	}

	ours := func(m *vitistackv1alpha1.Machine) {
		m.Labels = map[string]string{"ours": "1"}
		m.Spec.Provider.Name = "some"
	}

	m = apply(ours)
	if diff := cmp.Diff(map[string]string{"ours": "1", "theirs": "1"}, m.Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}

	if m.Spec.NodeLabels != nil || m.Spec.Provider.Parameters["pool"] != "x" {
		t.Errorf("what we no longer apply has to go, what others set has to stay: %+v", m.Spec)
	}

	if again := apply(ours); again.ResourceVersion != m.ResourceVersion {
		t.Error("applying the same again wrote")
	}
}

func TestApplyNamesWhatItCannotDo(t *testing.T) {
	ns := api.Namespace(t)

	err := kube.Apply(t.Context(), api.Manager(t), machine(ns, func(m *vitistackv1alpha1.Machine) {
		m.Spec.Provider = vitistackv1alpha1.Provider{Name: "other", Addresses: []string{"10.0.0.1"}}
	}))
	if err == nil || !strings.Contains(err.Error(), "applying Machine m: ") ||
		!strings.Contains(err.Error(), "static provider") {
		t.Errorf("got %v", err)
	}
}

// TestPatchStatus: the difference is written and nothing else, so that two writers of one status do not fight.
func TestPatchStatus(t *testing.T) {
	c, admin, ns := api.Manager(t), api.Admin(t), api.Namespace(t)
	if err := kube.Apply(t.Context(), c, machine(ns, nil)); err != nil {
		t.Fatal(err)
	}

	m := get(t, c, ns)
	base := m.DeepCopy()

	// In between another client writes another field of the status, and a label.
	theirs := get(t, admin, ns)
	theirs.Status.ConsumerRef = &v1alpha1.ObjectReference{Name: "node"}

	if err := admin.Status().Update(t.Context(), theirs); err != nil {
		t.Fatal(err)
	}

	m.Status.Phase = vitistackv1alpha1.MachineRunning
	if err := kube.PatchStatus(t.Context(), c, m, base); err != nil {
		t.Fatal(err)
	}

	after := get(t, admin, ns)
	if after.Status.Phase != vitistackv1alpha1.MachineRunning || after.Status.ConsumerRef == nil {
		t.Errorf("status %+v", after.Status)
	}

	api.NoWrites(t, ns, func() {
		if err := kube.PatchStatus(t.Context(), c, after, after.DeepCopy()); err != nil {
			t.Fatal(err)
		}
	})

	gone := machine(ns, func(m *vitistackv1alpha1.Machine) { m.Name = "gone" })
	base = gone.DeepCopy()
	gone.Status.Phase = vitistackv1alpha1.MachineRunning

	// Callers decide what a missing object means, so the kind of the error has to survive.
	if err := kube.PatchStatus(t.Context(), c, gone, base); err == nil || client.IgnoreNotFound(err) != nil {
		t.Errorf("the status of an object that is gone: %v", err)
	}
}

func TestAnnotations(t *testing.T) {
	for _, tc := range []struct {
		value           string
		set             bool
		paused, allowed bool
	}{
		{"", false, false, false},
		{"", true, true, false},
		{"true", true, true, true},
		{"yes", true, true, false},
		{"True", true, true, false},
		{"false", true, false, false},
	} {
		m := &vitistackv1alpha1.Machine{}
		if tc.set {
			m.Annotations = map[string]string{v1alpha1.PausedAnnotation: tc.value}
		}

		if got := kube.IsPaused(m); got != tc.paused {
			t.Errorf("%q (set: %t): paused is %t", tc.value, tc.set, got)
		}

		if got := kube.AnnotationTrue(m, v1alpha1.PausedAnnotation); got != tc.allowed {
			t.Errorf("%q (set: %t): a permission is %t", tc.value, tc.set, got)
		}
	}
}

func TestSetCondition(t *testing.T) {
	var conditions []metav1.Condition

	set := func(status metav1.ConditionStatus, message string) metav1.Condition {
		kube.SetCondition(&conditions, metav1.Condition{Type: "Ready", Status: status, Reason: "R", Message: message})

		return conditions[0]
	}

	first := set(metav1.ConditionTrue, "one")
	conditions[0].LastTransitionTime = metav1.NewTime(first.LastTransitionTime.Add(-1e12))
	old := conditions[0].LastTransitionTime

	if got := set(metav1.ConditionTrue, "two"); got.Message != "two" || !got.LastTransitionTime.Equal(&old) {
		t.Errorf("another message: %+v", got)
	}

	if got := set(metav1.ConditionFalse, "two"); got.LastTransitionTime.Equal(&old) {
		t.Error("another status has the old time")
	}

	// The API server hands back valid UTF-8: a message cut inside of a character would differ for ever.
	for n := range 4 {
		got := set(metav1.ConditionFalse, strings.Repeat("x", n)+strings.Repeat("€", 1000)).Message
		if !utf8.ValidString(got) || !strings.HasSuffix(got, "€…") || len(got) > 1000 || len(got) < 990 {
			t.Errorf("offset %d: %d bytes, valid %t", n, len(got), utf8.ValidString(got))
		}
	}

	kube.RemoveCondition(&conditions, "Ready")

	if len(conditions) != 0 {
		t.Errorf("left: %v", conditions)
	}
}

func TestOwners(t *testing.T) {
	yes := true
	owner := &vitistackv1alpha1.KubernetesCluster{ObjectMeta: metav1.ObjectMeta{Name: "prod", UID: "now"}}
	ref := func(kind, name, uid string) *vitistackv1alpha1.Machine {
		return machine("x", func(m *vitistackv1alpha1.Machine) {
			m.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: name, UID: "other"}}
			if uid != "" {
				m.OwnerReferences = append(m.OwnerReferences,
					metav1.OwnerReference{Kind: kind, Name: name, UID: types.UID(uid), Controller: &yes})
			}
		})
	}

	for _, tc := range []struct {
		what string
		of   *vitistackv1alpha1.Machine
		want bool
	}{
		{"an earlier object of the name", ref("KubernetesCluster", "prod", "before"), true},
		{"this object", ref("KubernetesCluster", "prod", "now"), false},
		{"another name", ref("KubernetesCluster", "other", "before"), false},
		{"another kind", ref("TalosControlPlane", "prod", "before"), false},
		{"an owner that does not control", ref("KubernetesCluster", "prod", ""), false},
		{"no owner", machine("x", nil), false},
	} {
		if got := kube.EarlierLife(tc.of, owner, "KubernetesCluster"); got != tc.want {
			t.Errorf("%s: %t", tc.what, got)
		}
	}

	if !kube.EqualLabels(map[string]string{"a": "1", "b": "2"}, map[string]string{"a": "1"}) ||
		kube.EqualLabels(map[string]string{"a": "2"}, map[string]string{"a": "1"}) ||
		kube.EqualLabels(nil, map[string]string{"a": "1"}) || !kube.EqualLabels(nil, nil) {
		t.Error("EqualLabels")
	}
}
