package kubernetescluster_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/test/wait"
)

// TestBudgets: the API server accepts budgets in the format of Deployments and PodDisruptionBudgets, and rejects those
// that would allow no machine or more than all.
func TestBudgets(t *testing.T) {
	b := newBench(t)

	apply := func(field string, budget any) error {
		rollout, remediation := map[string]any{}, map[string]any{"timeout": "5m"}
		rollout["maxUnavailable"], remediation["maxUnhealthy"] = int64(1), int64(1)

		if _, ok := rollout[field]; ok {
			rollout[field] = budget
		} else {
			remediation[field] = budget
		}

		return b.admin.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "talos-operator.io/v1alpha1", "kind": "TalosWorker",
			"metadata": map[string]any{"namespace": b.ns, "name": "w"},
			"spec": map[string]any{
				"controlPlaneRef": map[string]any{"name": "c"}, "rollout": rollout, "remediation": remediation,
				"machines": []any{map[string]any{"name": "w-0", "address": "10.0.0.9"}},
			},
		}}, client.DryRunAll)
	}

	for _, field := range []string{"maxUnavailable", "maxUnhealthy"} {
		for _, good := range []any{int64(1), int64(2), int64(9999), "1%", "25%", "100%"} {
			if err := apply(field, good); err != nil {
				t.Errorf("%s: %v: %v", field, good, err)
			}
		}

		for _, bad := range []any{int64(0), int64(-1), int64(10000), "0%", "101%", "2", "many", ""} {
			if err := apply(field, bad); !apierrors.IsInvalid(err) {
				t.Errorf("%s: the API server takes %#v: %v", field, bad, err)
			}
		}
	}
}

// TestImmutable: what the nodes of a cluster were created with does not change, whether the field is changed, added or
// removed. A default may be written down, and a value may move between a field and its equivalent in talosConfig.
func TestImmutable(t *testing.T) {
	b := newBench(t)

	network := func(key string, value any) map[string]any {
		return map[string]any{"cluster": map[string]any{"network": map[string]any{key: value}}}
	}
	endpoint := func(value string) map[string]any {
		return map[string]any{"cluster": map[string]any{"controlPlane": map[string]any{"endpoint": value}}}
	}
	named := func(value string) map[string]any { return map[string]any{"cluster": map[string]any{"name": value}} }

	prism := func(content map[string]any) map[string]any {
		return map[string]any{"talosConfig": map[string]any{"cluster": map[string]any{"kubePrism": content}}}
	}

	const here, there = "https://10.0.0.1:6443", "https://10.0.0.2:6443"

	pods, services := []any{"10.1.0.0/16"}, []any{"10.2.0.0/16"}
	defaultPods, defaultServices := []any{"10.244.0.0/16"}, []any{"10.96.0.0/12"}

	for name, tc := range map[string]struct {
		before, after map[string]any
		refused       bool
	}{
		"KubePrism added":        {nil, prism(map[string]any{"port": int64(7446)}), true},
		"KubePrism turned off":   {nil, prism(map[string]any{"enabled": false}), true},
		"KubePrism by default":   {nil, prism(map[string]any{"port": int64(7445), "enabled": true}), false},
		"KubePrism removed":      {prism(map[string]any{"enabled": false}), nil, true},
		"name added":             {nil, map[string]any{"clusterName": "other"}, true},
		"name of the object":     {nil, map[string]any{"clusterName": "c"}, false},
		"name removed":           {map[string]any{"clusterName": "other"}, nil, true},
		"name moved":             {map[string]any{"clusterName": "other"}, map[string]any{"talosConfig": named("other")}, false},
		"endpoint changed":       {nil, map[string]any{"clusterEndpoint": there}, true},
		"endpoint moved":         {nil, map[string]any{"clusterEndpoint": nil, "talosConfig": endpoint(here)}, false},
		"endpoint moved, wrong":  {nil, map[string]any{"clusterEndpoint": nil, "talosConfig": endpoint(there)}, true},
		"pods added":             {nil, map[string]any{"podSubnets": pods}, true},
		"pods by default":        {nil, map[string]any{"podSubnets": defaultPods}, false},
		"pods removed":           {map[string]any{"podSubnets": pods}, nil, true},
		"pods moved":             {map[string]any{"podSubnets": pods}, map[string]any{"talosConfig": network("podSubnets", pods)}, false},
		"pods of talosConfig":    {nil, map[string]any{"talosConfig": network("podSubnets", pods)}, true},
		"services added":         {nil, map[string]any{"serviceSubnets": services}, true},
		"services by default":    {nil, map[string]any{"serviceSubnets": defaultServices}, false},
		"services removed":       {map[string]any{"serviceSubnets": services}, nil, true},
		"DNS domain added":       {nil, map[string]any{"talosConfig": network("dnsDomain", "example.org")}, true},
		"DNS domain by default":  {nil, map[string]any{"talosConfig": network("dnsDomain", "cluster.local")}, false},
		"something else changed": {nil, map[string]any{"talosVersion": "v1.13.8"}, false},
	} {
		object := func(change map[string]any) *unstructured.Unstructured {
			spec := map[string]any{
				"talosVersion": "v1.13.9", "kubernetesVersion": "v1.36.2", "clusterEndpoint": here,
				"controlPlane": map[string]any{"replicas": int64(1)},
			}
			for key, value := range change {
				if spec[key] = value; value == nil {
					delete(spec, key)
				}
			}

			return &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "vitistack.io/v1alpha1", "kind": "KubernetesCluster",
				"metadata": map[string]any{"namespace": b.ns, "name": "c"}, "spec": spec,
			}}
		}

		before := object(tc.before)
		if err := b.admin.Create(t.Context(), before); err != nil {
			t.Fatalf("%s: %v", name, err)
		}

		after := object(tc.after)
		after.SetResourceVersion(before.GetResourceVersion())

		err := b.admin.Update(t.Context(), after, client.DryRunAll)
		if tc.refused != apierrors.IsInvalid(err) || !tc.refused && err != nil {
			t.Errorf("%s: %v", name, err)
		}

		if err := b.admin.Delete(t.Context(), before); err != nil {
			t.Fatal(err)
		}
	}
}

// TestUnknownAnnotations: the API server refuses a misspelt annotation of the operator, and one that has no effect on
// this kind of object, with those that have. It keeps one that the object already has.
func TestUnknownAnnotations(t *testing.T) {
	b := newBench(t)

	object := func(annotations map[string]string) *unstructured.Unstructured {
		o := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "talos-operator.io/v1alpha1", "kind": "TalosMachine",
			"metadata": map[string]any{"namespace": b.ns, "name": "m"},
			"spec": map[string]any{
				"controlPlaneRef": map[string]any{"name": "c"}, "role": "controlplane", "address": "10.0.0.9",
			},
		}}
		o.SetAnnotations(annotations)

		return o
	}
	create := func(annotations map[string]string) error {
		return b.admin.Create(t.Context(), object(annotations), client.DryRunAll)
	}

	// The API server learns about the policy soon after it was created.
	wait.For(t, "the API server refuses a misspelt annotation", func(context.Context) error {
		err := create(map[string]string{"talos-operator.io/pause": "true"})
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "talos-operator.io/paused") {
			return fmt.Errorf("%w", err)
		}

		return nil
	})

	for _, a := range v1alpha1.Annotations() {
		err := create(map[string]string{a.Name: "x", "example.org/a": "b"})
		if known := slices.Contains(a.Kinds, "TalosMachine"); known != (err == nil) || !known && !apierrors.IsInvalid(err) {
			t.Errorf("%s: %v", a.Name, err)
		}
	}

	m := object(nil)
	if err := b.admin.Create(t.Context(), m); err != nil {
		t.Fatal(err)
	}

	m.SetAnnotations(map[string]string{"talos-operator.io/skip-reset": "true", "talos-operator.io/skip-rest": "true"})

	if err := b.admin.Update(t.Context(), m); !apierrors.IsInvalid(err) {
		t.Errorf("a misspelt annotation is added: %v", err)
	}
}

// lowerCase: deletionPolicy in lower case means the same. The object keeps its spelling; those below have that of the
// constants.
func (b *bench) lowerCase() {
	for text, want := range map[string]struct {
		policy  v1alpha1.DeletionPolicy
		reclaim vitistackv1alpha1.ReclaimPolicy
	}{
		"preserve": {v1alpha1.DeletionPreserve, vitistackv1alpha1.ReclaimRetain},
		"reset":    {v1alpha1.DeletionReset, vitistackv1alpha1.ReclaimDelete},
	} {
		o := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "vitistack.io/v1alpha1", "kind": "KubernetesCluster",
			"metadata": map[string]any{"namespace": b.ns, "name": text},
			"spec": map[string]any{
				"talosVersion": "v1.13.9", "kubernetesVersion": "v1.36.2", "clusterEndpoint": "https://10.0.0.1:6443",
				"controlPlane": map[string]any{"replicas": int64(1)}, "deletionPolicy": text,
			},
		}}
		b.add(o)

		c := &vitistackv1alpha1.KubernetesCluster{}
		b.get(c, text)
		b.reconcile(c)

		plane, m := &v1alpha1.TalosControlPlane{}, &vitistackv1alpha1.Machine{}
		b.get(plane, text)
		b.get(m, text+"-cp-0")
		b.get(o, text)

		if plane.Spec.DeletionPolicy != want.policy || m.Spec.ReclaimPolicy != want.reclaim {
			b.t.Errorf("%s: policy %s, reclaim policy %s", text, plane.Spec.DeletionPolicy, m.Spec.ReclaimPolicy)
		}

		if kept, _, _ := unstructured.NestedString(o.Object, "spec", "deletionPolicy"); kept != text {
			b.t.Errorf("%s became %s", text, kept)
		}
	}

	plane := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "talos-operator.io/v1alpha1", "kind": "TalosControlPlane",
		"metadata": map[string]any{"namespace": b.ns, "name": "plane"},
		"spec": map[string]any{
			"talosVersion": "v1.13.9", "kubernetesVersion": "v1.36.2", "endpoint": "https://10.0.0.1:6443",
			"machines":       []any{map[string]any{"name": "m", "address": "10.0.0.9"}},
			"deletionPolicy": "RESET",
		},
	}}
	if err := b.admin.Create(b.t.Context(), plane, client.DryRunAll); !apierrors.IsInvalid(err) {
		b.t.Errorf("RESET: %v", err)
	}

	plane.Object["spec"].(map[string]any)["deletionPolicy"] = "reset"

	if err := b.admin.Create(b.t.Context(), plane); err != nil {
		b.t.Fatal(err)
	}

	// A wipe is decided by this comparison.
	typed := &v1alpha1.TalosControlPlane{}
	if b.get(typed, "plane"); typed.Spec.DeletionPolicy != v1alpha1.DeletionReset {
		b.t.Errorf("reset is read as %q", typed.Spec.DeletionPolicy)
	}
}
