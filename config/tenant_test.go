package config_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// managed are fields that name objects of a managed cluster, which the operator reads and writes with the PKI of that
// cluster, and never in the management cluster.
var managed = regexp.MustCompile(`^spec\.upgrade\.(checks|hooks)\[\]\.(namespace|apiVersion|kind)$`)

// inConfig are fields of a reference that name a place in a machine configuration, where the content of a key goes.
var inConfig = regexp.MustCompile(`[cC]onfigPatchesFrom\[\]\.(optional|path|document|document\.(kind|name))$`)

// readable are the kinds that a reference with a kind may choose from.
var readable = []string{`"ConfigMap"`, `"Secret"`}

// chooses reports whether a field is the kind of a reference, of kinds that are read in the namespace of its object.
func chooses(name string, s *apiextensionsv1.JSONSchemaProps) bool {
	return name == "kind" && len(s.Enum) > 0 && !slices.ContainsFunc(s.Enum, func(v apiextensionsv1.JSON) bool {
		return !slices.Contains(readable, string(v.Raw))
	})
}

// elsewhere are names of fields with which a reference could leave its namespace, or choose what is read there.
var elsewhere = []string{"namespace", "namespaces", "uid", "apiVersion", "kind", "apiGroup", "group", "resource"}

// isReference reports whether a field references objects, by the convention of its name.
func isReference(name string) bool {
	return strings.HasSuffix(name, "Ref") || strings.HasSuffix(name, "From")
}

// TestReferences: each reference in a spec, also one that will be added, leads to an object of the namespace of its own
// object: it has a name, the key in a Secret or ConfigMap, perhaps the kind of these two, and nothing else but a place in
// a machine configuration; and no name leads out of the namespace.
func TestReferences(t *testing.T) {
	namespace, c := api.Namespace(t), api.Admin(t)
	references := 0

	for _, crd := range ours(t) {
		f := fill(t, c, crd, namespace)

		spec := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
		references += checkReferences(t, crd.Name, &spec, "spec")

		for _, value := range []string{"b/secret", "../b/secret", "b%2Fsecret", "b:secret", "b\\secret", "Secret", ".", "..", "*", " "} {
			for _, l := range f.unrefused(t, c, value) {
				if len(l.path) > 1 && slices.ContainsFunc(l.path, func(step any) bool { return isReference(fmt.Sprint(step)) }) &&
					l.path[len(l.path)-1] == "name" && l.path[len(l.path)-2] != "document" {
					t.Errorf("%s: %s may be %q", crd.Name, l, value)
				}
			}
		}
	}

	if references == 0 {
		t.Error("no reference was found")
	}
}

// checkReferences checks the fields of a schema, and returns how many references are among them.
func checkReferences(t *testing.T, kind string, s *apiextensionsv1.JSONSchemaProps, path string) int {
	t.Helper()

	found := 0

	for name, one := range s.Properties {
		at := path + "." + name
		if slices.Contains(elsewhere, name) && !managed.MatchString(at) && !inConfig.MatchString(at) && !chooses(name, &one) {
			t.Errorf("%s: %s could name something outside of the namespace of its object", kind, at)
		}

		target := &one
		if one.Items != nil {
			target, at = one.Items.Schema, at+"[]"
		}

		if isReference(name) && target.Type == "object" {
			found++

			for part, of := range target.Properties {
				if part != "name" && part != "key" && !inConfig.MatchString(at+"."+part) && !chooses(part, &of) {
					t.Errorf("%s: the reference %s has the field %s", kind, at, part)
				}
			}
		}

		if target.Type == "string" && strings.Contains(strings.ToLower(name), "secret") {
			t.Errorf("%s: %s is a string; a Secret is named by a reference", kind, at)
		}

		found += checkReferences(t, kind, target, at)
	}

	return found
}

// tenant is a user with the role edit in a namespace, as it is aggregated in a cluster, and without any other.
func tenant(t *testing.T, namespace string) client.Client {
	t.Helper()

	name := "tenant-of-" + namespace

	for _, role := range []string{"system:aggregate-to-edit", "talos-operator-edit", "talos-operator-view"} {
		if err := api.Admin(t).Create(t.Context(), &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: strings.ReplaceAll(role, ":", "-")},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}},
		}); err != nil {
			t.Fatal(err)
		}
	}

	cfg, err := api.User(name)
	if err != nil {
		t.Fatal(err)
	}

	c, err := client.New(cfg, client.Options{Scheme: api.Scheme})
	if err != nil {
		t.Fatal(err)
	}

	return c
}

// TestTenant: a user with the role edit in one namespace can neither read nor write anything of ours, nor a Secret, in
// another one; and in the own one write nothing that only the operator and providers write: a status, which has the
// addresses that configurations are sent to, TalosMachines and records.
func TestTenant(t *testing.T) {
	own, foreign := api.Namespace(t), api.Namespace(t)
	user := tenant(t, own)

	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: foreign, Name: "c-state"}}
	if err := api.Admin(t).Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}

	denied := func(what string, err error) {
		t.Helper()

		if !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v", what, err)
		}
	}

	denied("reading a Secret", user.Get(t.Context(), client.ObjectKeyFromObject(secret), &corev1.Secret{}))
	denied("listing Secrets", user.List(t.Context(), &corev1.SecretList{}, client.InNamespace(foreign)))

	written := map[string]bool{"TalosMachine": false, "TalosUpgrade": false, "KubernetesUpgrade": false}

	for _, crd := range ours(t) {
		kind := crd.Spec.Names.Kind

		o := fill(t, api.Admin(t), crd, foreign).with(nil, "")
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(o.GroupVersionKind())

		denied("creating a "+kind+" elsewhere", user.Create(t.Context(), o, client.DryRunAll))
		denied("listing each "+kind+" elsewhere", user.List(t.Context(), list, client.InNamespace(foreign)))
		denied("deleting a "+kind+" elsewhere", user.Delete(t.Context(), o, client.DryRunAll))
		denied("changing a "+kind+" elsewhere", user.Patch(t.Context(), o, client.RawPatch("application/merge-patch+json", []byte(`{}`))))

		o.SetNamespace(own)
		denied("writing the status of a "+kind, user.Status().Patch(t.Context(), o,
			client.RawPatch("application/merge-patch+json", []byte(`{"status":{}}`))))

		mayCreate, known := written[kind]

		err := user.Create(t.Context(), o, client.DryRunAll)
		if forbidden := apierrors.IsForbidden(err); forbidden == (mayCreate || !known) {
			t.Errorf("creating a %s: %v", kind, err)
		}
	}
}
