package main

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// TestReferencesEndAtTheNamespace: no field of a spec names a namespace, apart from those that docs/security.md lists,
// which are about the managed cluster. So no reference leaves the namespace of its object.
func TestReferencesEndAtTheNamespace(t *testing.T) {
	t.Parallel()

	found := map[string]bool{}

	for _, path := range files(t, ".yaml", "config/crd") {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.Unmarshal([]byte(read(t, path)), crd); err != nil {
			t.Fatalf("%s: %v", path, err)
		}

		for _, version := range crd.Spec.Versions {
			spec := version.Schema.OpenAPIV3Schema.Properties["spec"]
			namespacesIn(&spec, "", found)
		}
	}

	want := []string{
		// Of Pods in the managed cluster that may use the Talos API.
		"features.kubernetesTalosAPIAccess.allowedKubernetesNamespaces",
		"upgrade.checks.namespace", "upgrade.hooks.namespace",
	}
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(found))); diff != "" {
		t.Errorf("fields with a namespace (-known +found):\n%s", diff)
	}
}

// namespacesIn collects the fields below a schema that name a namespace, without what only tells of which machines.
func namespacesIn(s *apiextensionsv1.JSONSchemaProps, path string, into map[string]bool) {
	for name, field := range s.Properties {
		at := strings.TrimPrefix(path+"."+name, ".")

		if strings.Contains(strings.ToLower(name), "namespace") {
			for _, level := range []string{"machines.", "spares.", "controlPlane.", "workers.", "machineTemplate.", "spec."} {
				at = strings.TrimPrefix(at, level)
			}

			into[at] = true
		}

		namespacesIn(&field, strings.TrimPrefix(path+"."+name, "."), into)
	}

	if s.Items != nil && s.Items.Schema != nil {
		namespacesIn(s.Items.Schema, path, into)
	}

	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		namespacesIn(s.AdditionalProperties.Schema, path, into)
	}
}
