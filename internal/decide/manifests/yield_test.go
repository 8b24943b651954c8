package manifests_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/internal/decide/manifests"
)

// TestYield: what only others own is left to them, and nothing else.
func TestYield(t *testing.T) {
	const (
		owned = `{"f:spec":{"f:replicas":{},"f:tags":{"v:\"a\"":{}},"f:template":{"f:containers":{"k:{\"name\":\"c\"}":{".":{},"f:image":{},` +
			`"f:ports":{"k:{\"port\":53,\"protocol\":\"TCP\"}":{"f:target":{}}}}}},"f:old":{"i:0":{},"i:1":{}}}}`
		desired = "{apiVersion: apps/v1, kind: Deployment, metadata: {name: d}, spec: {replicas: 2, tags: [a, b], old: [x, y, z], " +
			"template: {containers: [{name: b, image: b}, {name: c, image: c, ports: [{port: 54}, {port: 53, target: 1}]}]}}}"
		image, replicas = `.spec.template.containers[name="c"].image`, ".spec.replicas"
	)

	live := of(t, "{apiVersion: apps/v1, kind: Deployment, metadata: {name: d}}")
	live.SetManagedFields([]metav1.ManagedFieldsEntry{
		{Manager: "talos", Operation: metav1.ManagedFieldsOperationUpdate, FieldsV1: &metav1.FieldsV1{Raw: []byte(owned)}},
		{Manager: "edit", Operation: metav1.ManagedFieldsOperationUpdate, FieldsV1: &metav1.FieldsV1{Raw: []byte(owned)}},
	})

	for name, c := range map[string]struct {
		conflicts []manifests.Conflict
		remove    []string // texts of desired that the result lacks
		left      string   // the fields that are named
	}{
		"none":                   {},
		"one field":              {[]manifests.Conflict{{"edit", replicas}}, []string{"replicas: 2, "}, "Deployment/d.spec.replicas (edit)"},
		"of Talos":               {[]manifests.Conflict{{"talos", replicas}}, nil, ""},
		"of both":                {[]manifests.Conflict{{"edit", replicas}, {"talos", replicas}}, nil, ""},
		"one of each":            {[]manifests.Conflict{{"edit", image}, {"talosctl", replicas}}, []string{", image: c"}, "Deployment/d" + image + " (edit)"},
		"of an item":             {[]manifests.Conflict{{"edit", image}}, []string{", image: c"}, "Deployment/d" + image + " (edit)"},
		"of an item by defaults": {[]manifests.Conflict{{"edit", `.spec.template.containers[name="c"].ports[port=53,protocol="TCP"].target`}}, []string{", target: 1"}, `Deployment/d.spec.template.containers[name="c"].ports[port=53,protocol="TCP"].target (edit)`},
		"an item":                {[]manifests.Conflict{{"edit", `.spec.template.containers[name="c"]`}}, []string{", {name: c, image: c, ports: [{port: 54}, {port: 53, target: 1}]}"}, `Deployment/d.spec.template.containers[name="c"] (edit)`},
		"an item of a set":       {[]manifests.Conflict{{"edit", `.spec.tags[="a"]`}}, []string{"a, "}, "Deployment/d.spec.tags[*] (edit)"},
		"items by index":         {[]manifests.Conflict{{"edit", ".spec.old[0]"}, {"edit", ".spec.old[1]"}}, []string{"x, y, "}, "Deployment/d.spec.old[0] (edit), Deployment/d.spec.old[1] (edit)"},
		"what is not there":      {[]manifests.Conflict{{"edit", ".spec.paused"}}, nil, ""},
	} {
		text := desired
		for _, part := range c.remove {
			text = strings.Replace(text, part, "", 1)
		}

		got, left := manifests.Yield(of(t, desired), live, c.conflicts)
		if diff := cmp.Diff(of(t, text).Object, got.Object) + cmp.Diff(c.left, manifests.Outcome{Left: left}.Fields()); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}

	if !manifests.MayForce([]manifests.Conflict{{"talos", image}}) || manifests.MayForce([]manifests.Conflict{{"talos", image}, {"edit", replicas}}) {
		t.Error("what may be forced")
	}
}

// TestDiff: a difference is shown without what an API server keeps about an object, and without the values of Secrets.
func TestDiff(t *testing.T) {
	secret := manifests.Key{Kind: "Secret", Namespace: "n", Name: "s"}
	live := of(t, "{apiVersion: v1, kind: Secret, metadata: {name: s, namespace: n, resourceVersion: '7', managedFields: [], annotations: "+
		"{kubectl.kubernetes.io/last-applied-configuration: c2VjcmV0}}, data: {a: c2VjcmV0, b: c2VjcmV0, gone: c2VjcmV0}}")
	want := of(t, "{apiVersion: v1, kind: Secret, metadata: {name: s, namespace: n}, data: {a: c2VjcmV0LTI=, b: c2VjcmV0, new: c2VjcmV0}}")

	got, err := manifests.Difference{Key: secret, Live: live, Want: want}.Diff()
	if err != nil || strings.Contains(got, "c2VjcmV0") || strings.Contains(got, "resourceVersion") {
		t.Errorf("%v\n%s", err, got)
	}

	for _, line := range []string{"--- a/Secret/n/s\n", "+++ b/Secret/n/s\n", "-  a: '*** (before)'\n", "+  a: '*** (after)'\n", "   b: '***'\n", "-  gone: '***'\n", "+  new: '***'\n"} {
		if !strings.Contains(got, line) {
			t.Errorf("%q is missing in\n%s", line, got)
		}
	}

	broken, err := manifests.Difference{Key: secret, Want: of(t, "{apiVersion: v1, kind: Secret, metadata: {name: s}, data: c2VjcmV0}")}.Diff()
	if err != nil || strings.Contains(broken, "c2VjcmV0") || !strings.Contains(broken, "+data: '***'") {
		t.Errorf("%v\n%s", err, broken)
	}

	gone, err := manifests.Difference{Key: manifests.Key{Kind: "ConfigMap", Name: "c"}, Live: of(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: c}}")}.Diff()
	if err != nil || !strings.Contains(gone, "-kind: ConfigMap\n") {
		t.Errorf("%v\n%s", err, gone)
	}
}

// TestSame: what an API server keeps about an object is no difference.
func TestSame(t *testing.T) {
	a := of(t, "{apiVersion: v1, kind: C, metadata: {name: c, resourceVersion: '1', generation: 1, managedFields: []}, status: {a: b}, data: {a: b}}")
	same := of(t, "{apiVersion: v1, kind: C, metadata: {name: c, resourceVersion: '2', generation: 2}, data: {a: b}}")
	other := of(t, "{apiVersion: v1, kind: C, metadata: {name: c}, data: {a: c}}")

	if !manifests.Same(a, same) || manifests.Same(a, other) {
		t.Error("what is the same")
	}
}
