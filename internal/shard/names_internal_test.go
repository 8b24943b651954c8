package shard

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/test/wait"
)

// TestLongNamesOfBefore: a group whose name became too long for a label with a later version of its CRD can still have its
// status written, and be deleted. A new one is refused.
func TestLongNamesOfBefore(t *testing.T) {
	const group = "names.example.com"

	scheme := runtime.NewScheme()
	if err := apiextensionsv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}

	c, err := client.New(api.Config(), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}

	ns, have := api.Namespace(t), &apiextensionsv1.CustomResourceDefinition{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: "talosworkers.talos-operator.io"}, have); err != nil {
		t.Fatal(err)
	}

	crd := &apiextensionsv1.CustomResourceDefinition{Spec: *have.Spec.DeepCopy()}
	crd.Name, crd.Spec.Group = "talosworkers."+group, group
	schema := crd.Spec.Versions[0].Schema.OpenAPIV3Schema
	rules := schema.XValidations
	schema.XValidations = slices.DeleteFunc(slices.Clone(rules), func(r apiextensionsv1.ValidationRule) bool {
		return strings.Contains(r.Message, "63 characters")
	})

	if err := c.Create(t.Context(), crd); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := c.Delete(context.Background(), crd); err != nil {
			t.Error(err)
		}
	})

	long := func(name string) *unstructured.Unstructured {
		o := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
			"controlPlaneRef": map[string]any{"name": "c"},
		}}}
		o.SetAPIVersion(group + "/v1alpha1")
		o.SetKind("TalosWorker")
		o.SetNamespace(ns)
		o.SetName(name + strings.Repeat("x", 63))
		o.SetFinalizers([]string{group + "/finalizer"})

		return o
	}

	old := long("old")

	wait.For(t, "one is created without the rule", func(ctx context.Context) error { return c.Create(ctx, old) })

	wait.For(t, "the rule is there", func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(crd), crd); err != nil {
			return err
		}

		crd.Spec.Versions[0].Schema.OpenAPIV3Schema.XValidations = rules

		return c.Update(ctx, crd)
	})

	wait.For(t, "the rule refuses a new one", func(ctx context.Context) error {
		err := c.Create(ctx, long("new"), client.DryRunAll)
		if err == nil || !strings.Contains(err.Error(), "63 characters") {
			return errors.Join(errors.New("it does not"), err)
		}

		return nil
	})

	patch := client.RawPatch("application/merge-patch+json", []byte(`{"status":{"readyReplicas":1}}`))
	if err := c.Status().Patch(t.Context(), old, patch); err != nil {
		t.Errorf("writing its status: %v", err)
	}

	old.SetFinalizers(nil)

	if err := c.Update(t.Context(), old); err != nil {
		t.Errorf("removing its finalizer: %v", err)
	}
}
