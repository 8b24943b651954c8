package install

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/talos-operator/talos-operator/lab/management"
)

// TestSame: the chart with its defaults is what kustomize installs, object by object and field by field. Labels differ, and
// kustomize has the namespace as well, which Helm makes by itself.
func TestSame(t *testing.T) {
	t.Parallel()

	fromChart := index(t, template(t, "--set", "serviceMonitor.enabled=true,prometheusRule.enabled=true,dashboards.enabled=true"))
	fromConfig := index(t, slices.Concat(
		objects(t, kustomizePath, filepath.Join(manifests, "default")),
		objects(t, kustomizePath, filepath.Join(manifests, "prometheus")),
		objects(t, kustomizePath, filepath.Join(manifests, "grafana")),
	))

	namespace := "Namespace/" + management.ManagerNamespace
	if _, ok := fromConfig[namespace]; !ok {
		t.Error("kustomize makes no namespace")
	}

	delete(fromConfig, namespace)

	for _, kind := range []string{"CustomResourceDefinition/", "Deployment/", "ClusterRole/", "ValidatingAdmissionPolicy/"} {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(fromChart)), func(key string) bool { return strings.HasPrefix(key, kind) }) {
			t.Errorf("the chart has no %s", kind)
		}
	}

	if diff := cmp.Diff(fromConfig, fromChart); diff != "" {
		t.Errorf("config/default (-) and the chart (+):\n%s", diff)
	}
}

// TestSameShards: the further rights of an operator with shards are those of config/shards. The Role of the Leases has another
// name in the chart, because the namespace of the release may be one of those with a Role for clusters.
func TestSameShards(t *testing.T) {
	t.Parallel()

	rendered := template(t, "--set", "shards=3,replicaCount=3", "--show-only", "templates/rbac.yaml")

	for _, o := range rendered {
		if strings.HasSuffix(o.GetName(), "-shard-leases") {
			name := strings.Replace(o.GetName(), "-shard-leases", "-shards", 1)
			o.SetName(name)

			if role, ok := o.Object["roleRef"].(map[string]any); ok {
				role["name"] = strings.Replace(role["name"].(string), "-shard-leases", "-shards", 1)
			}
		}
	}

	got := index(t, rendered)
	maps.DeleteFunc(got, func(key string, _ map[string]any) bool { return !strings.HasSuffix(key, "-shards") })

	if diff := cmp.Diff(index(t, objects(t, kustomizePath, filepath.Join(manifests, "shards"))), got); diff != "" {
		t.Errorf("config/shards (-) and the chart (+):\n%s", diff)
	}
}

// TestSameNamespaced: the Role of each namespace is the one of config/namespaced.
func TestSameNamespaced(t *testing.T) {
	t.Parallel()

	rendered := template(t, "--set", "watchNamespaces={team-a,team-b}", "--show-only", "templates/rbac.yaml")
	got := index(t, rendered)

	var want []*unstructured.Unstructured

	for _, file := range []string{"namespaced/role.yaml", "namespaced/role_binding.yaml"} {
		for _, namespace := range []string{"team-a", "team-b"} {
			o := read(t, file)
			o.SetNamespace(namespace)
			want = append(want, o)
		}
	}

	for key, o := range index(t, want) {
		if diff := cmp.Diff(o, got[key]); diff != "" {
			t.Errorf("%s, config/namespaced (-) and the chart (+):\n%s", key, diff)
		}

		delete(got, key)
	}

	left := slices.Sorted(maps.Keys(got))
	if diff := cmp.Diff([]string{
		"ClusterRole/talos-operator-metrics-auth", "ClusterRole/talos-operator-metrics-reader",
		"ClusterRoleBinding/talos-operator-metrics-auth",
		"Role/talos-operator-system/talos-operator-leader-election",
		"RoleBinding/talos-operator-system/talos-operator-leader-election",
	}, left); diff != "" {
		t.Errorf("other rights:\n%s", diff)
	}
}

func read(t *testing.T, file string) *unstructured.Unstructured {
	t.Helper()

	content, err := os.ReadFile(filepath.Join(manifests, file))
	if err != nil {
		t.Fatal(err)
	}

	found, err := management.Decode(content)
	if err != nil || len(found) != 1 {
		t.Fatalf("%d objects, error %v", len(found), err)
	}

	return found[0]
}

// index returns objects by kind, namespace and name, without the labels and annotations that only tell who manages them.
func index(t *testing.T, found []*unstructured.Unstructured) map[string]map[string]any {
	t.Helper()

	out := map[string]map[string]any{}

	for _, o := range found {
		o.SetLabels(keep(o.GetLabels(), "rbac.authorization.k8s.io/"))
		o.SetAnnotations(keep(o.GetAnnotations(), "controller-gen.kubebuilder.io/"))

		// Numbers of both are compared as those of JSON.
		text, err := json.Marshal(o.Object)
		if err != nil {
			t.Fatal(err)
		}

		object := map[string]any{}
		if err := json.Unmarshal(text, &object); err != nil {
			t.Fatal(err)
		}

		key := strings.TrimSuffix(o.GetKind()+"/"+o.GetNamespace(), "/") + "/" + o.GetName()
		if _, ok := out[key]; ok {
			t.Errorf("%s is there twice", key)
		}

		out[key] = object
	}

	return out
}

func keep(m map[string]string, prefix string) map[string]string {
	maps.DeleteFunc(m, func(key, _ string) bool { return !strings.HasPrefix(key, prefix) })

	if len(m) == 0 {
		return nil
	}

	return m
}
