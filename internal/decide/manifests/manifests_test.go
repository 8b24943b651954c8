package manifests_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/talos-operator/talos-operator/internal/decide/manifests"
)

const version = "v1.36.2"

// object reads an object as a node serves it.
func object(t *testing.T, text string) map[string]any {
	t.Helper()

	out := map[string]any{}
	if err := yaml.Unmarshal([]byte(text), &out); err != nil {
		t.Fatal(err)
	}

	return out
}

func of(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()

	return &unstructured.Unstructured{Object: object(t, text)}
}

func proxy(t *testing.T, image string) map[string]any {
	t.Helper()

	return object(t, "{apiVersion: apps/v1, kind: DaemonSet, metadata: {namespace: kube-system, name: kube-proxy}, "+
		"spec: {template: {spec: {containers: [{name: kube-proxy, image: "+image+"}]}}}}")
}

// TestRefuse: manifests that are incomplete, or of another version, are no evidence.
func TestRefuse(t *testing.T) {
	const image = "registry.k8s.io/kube-proxy:"

	role := object(t, "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: a}}")

	for name, c := range map[string]struct {
		items   []map[string]any
		proxy   string
		images  map[string]string
		missing []string
		want    string
	}{
		"of the version":            {items: []map[string]any{proxy(t, image+version)}, proxy: image + version, images: map[string]string{"kube-proxy": image + version}},
		"a build of the version":    {items: []map[string]any{proxy(t, image+version+"-slim")}, proxy: image + version + "-slim"},
		"without kube-proxy":        {items: []map[string]any{role}},
		"pinned to a digest":        {items: []map[string]any{role}, proxy: "registry.k8s.io/kube-proxy@sha256:" + strings.Repeat("a", 64)},
		"none":                      {want: "cp-0 serves no bootstrap manifests yet"},
		"of the version before":     {items: []map[string]any{proxy(t, image+"v1.35.1")}, proxy: image + "v1.35.1", want: "cp-0 serves the bootstrap manifests of kube-proxy v1.35.1"},
		"not rendered anew":         {items: []map[string]any{proxy(t, image+"v1.35.1")}, proxy: image + version, images: map[string]string{"kube-proxy": image + version}, want: "the bootstrap manifests of cp-0 do not have kube-proxy as its configuration names it"},
		"a part is not rendered":    {items: []map[string]any{proxy(t, image+version)}, proxy: image + version, images: map[string]string{"CoreDNS": "coredns:v1"}, want: "the bootstrap manifests of cp-0 do not have CoreDNS as its configuration names it"},
		"a part without image":      {items: []map[string]any{role}, images: map[string]string{"flannel": ""}},
		"a download is not through": {items: []map[string]any{role}, missing: []string{"https://b", "https://a"}, want: "cp-0 has not loaded the manifests https://a, https://b"},
	} {
		s := manifests.Served{Machine: "cp-0", Items: c.items, Proxy: c.proxy, Images: c.images, Missing: c.missing}
		if got := s.Refuse(version); got != c.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// TestObjects: namespaces come first, then kinds; what only an API server sets is left out, and texts of Secrets become
// data. Of two objects with one key the last counts.
func TestObjects(t *testing.T) {
	s := manifests.Served{Machine: "cp-0", Items: []map[string]any{
		object(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: ns}, data: {a: old}}"),
		object(t, "{apiVersion: v1, kind: Secret, metadata: {name: s, namespace: ns, creationTimestamp: null, uid: u}, data: {a: YQ==}, stringData: {b: text}, status: {}}"),
		object(t, "{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: ks.g}, spec: {group: g, names: {kind: K}}}"),
		object(t, "{apiVersion: v1, kind: Namespace, metadata: {name: ns}}"),
		object(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: ns}, data: {a: new}}"),
	}}
	s.Items[0]["data"] = map[string]any{"a": 1} // numbers as a node's client reads them

	got, refused := s.Objects()
	if len(refused) > 0 {
		t.Fatal(refused)
	}

	raw, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}

	const want = `[{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"ns"}},` +
		`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"ks.g"},"spec":{"group":"g","names":{"kind":"K"}}},` +
		`{"apiVersion":"v1","data":{"a":"YQ==","b":"dGV4dA=="},"kind":"Secret","metadata":{"name":"s","namespace":"ns"}},` +
		`{"apiVersion":"v1","data":{"a":"new"},"kind":"ConfigMap","metadata":{"name":"c","namespace":"ns"}}]`
	if diff := cmp.Diff(want, string(raw)); diff != "" {
		t.Error(diff)
	}

	if !manifests.Defines(got, manifests.Key{Group: "g", Kind: "K"}.GroupKind()) || manifests.Defines(got, manifests.Key{Group: "g", Kind: "L"}.GroupKind()) {
		t.Error("the kinds that are defined")
	}
}

// TestUnreadable: an object that cannot be read is refused without its content, and stops no other one.
func TestUnreadable(t *testing.T) {
	s := manifests.Served{Machine: "cp-0", Items: []map[string]any{
		object(t, "{apiVersion: v1}"),
		object(t, "{apiVersion: v1, kind: Secret, metadata: {name: s, namespace: ns}, stringData: {pin: 123456}}"),
		object(t, "{apiVersion: v1, kind: Secret, metadata: {name: d}, stringData: {pin: a}, data: {other: 123456}}"),
		object(t, "{apiVersion: example.com/v1, kind: Lock, metadata: {name: l}, stringData: {pin: 123456}}"),
	}}

	got, refused := s.Objects()
	if len(got) != 1 || manifests.KeyOf(got[0]).String() != "Lock/l" {
		t.Errorf("%v", got)
	}

	want := []manifests.Refusal{
		{Key: manifests.Key{Kind: "Unknown", Name: "manifest-0"}, Reason: "Unreadable"},
		{Key: manifests.Key{Kind: "Secret", Namespace: "ns", Name: "s"}, Reason: "InvalidSecret"},
		{Key: manifests.Key{Kind: "Secret", Name: "d"}, Reason: "InvalidSecret"},
	}
	if diff := cmp.Diff(want, refused); diff != "" {
		t.Error(diff)
	}
}

// TestMerge: one machine is enough to apply from, and only all of them are evidence that something is gone.
func TestMerge(t *testing.T) {
	config := func(name string) map[string]any {
		return object(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: "+name+"}}")
	}
	serves := func(machine string, settled bool, items ...map[string]any) manifests.Served {
		return manifests.Served{Machine: machine, Items: items, Settled: settled}
	}
	silent := manifests.Served{Machine: "cp-9", Problem: "no answer"}
	broken := object(t, "{apiVersion: v1}")

	for name, c := range map[string]struct {
		all                []manifests.Served
		from, others       string
		refused            int
		uncertain, problem string
	}{
		"no machine":                 {problem: "no control-plane machine is configured for this version"},
		"one":                        {all: []manifests.Served{serves("cp-0", true, config("a"))}, from: "cp-0"},
		"another has more":           {all: []manifests.Served{serves("cp-0", true, config("a")), serves("cp-1", true, config("a"), config("b"))}, from: "cp-0", others: "ConfigMap/a ConfigMap/b"},
		"one does not answer":        {all: []manifests.Served{silent, serves("cp-1", true, config("a"))}, from: "cp-1", uncertain: "cp-9: no answer"},
		"the last does not answer":   {all: []manifests.Served{serves("cp-1", true, config("a")), silent}, from: "cp-1", uncertain: "cp-9: no answer"},
		"none answers":               {all: []manifests.Served{silent}, problem: "cp-9: no answer"},
		"one is no evidence":         {all: []manifests.Served{serves("cp-0", true), serves("cp-1", true, config("a"))}, from: "cp-1", uncertain: "cp-0 serves no bootstrap manifests yet"},
		"it is rendering":            {all: []manifests.Served{serves("cp-0", false, config("a"))}, from: "cp-0", uncertain: "cp-0 has not applied the manifests that it serves"},
		"another one is rendering":   {all: []manifests.Served{serves("cp-0", true, config("a")), serves("cp-1", false, config("a"))}, from: "cp-0", others: "ConfigMap/a", uncertain: "cp-1 has not applied the manifests that it serves"},
		"one cannot be read":         {all: []manifests.Served{serves("cp-0", true, config("a"), broken)}, from: "cp-0", refused: 1, uncertain: "cp-0 serves manifests that cannot be read"},
		"another one cannot be read": {all: []manifests.Served{serves("cp-0", true, config("a")), serves("cp-1", true, broken)}, from: "cp-0", uncertain: "cp-1 serves manifests that cannot be read"},
	} {
		got, problem := manifests.Merge(c.all, version)

		var others []string
		for _, k := range got.Others {
			others = append(others, k.String())
		}

		if got.Machine != c.from || (len(got.Objects) == 1) != (c.from != "") || strings.Join(others, " ") != c.others || len(got.Refused) != c.refused ||
			got.Uncertain != c.uncertain || problem != c.problem {
			t.Errorf("%s: %+v, %q", name, got, problem)
		}
	}
}

// TestEntries: entries of an inventory are read as they are written.
func TestEntries(t *testing.T) {
	for entry, key := range map[string]manifests.Key{
		"kube-system_kube-proxy_apps_DaemonSet":                 {Namespace: "kube-system", Name: "kube-proxy", Group: "apps", Kind: "DaemonSet"},
		"kube-system_coredns__ConfigMap":                        {Namespace: "kube-system", Name: "coredns", Kind: "ConfigMap"},
		"_system__node-x_rbac.authorization.k8s.io_ClusterRole": {Name: "system:node-x", Group: "rbac.authorization.k8s.io", Kind: "ClusterRole"},
		"_ends____ConfigMap":                                    {Name: "ends:", Kind: "ConfigMap"},
		"_a__b__c_rbac.authorization.k8s.io_ClusterRoleBinding": {Name: "a:b:c", Group: "rbac.authorization.k8s.io", Kind: "ClusterRoleBinding"},
	} {
		if got, ok := manifests.ParseEntry(entry); !ok || got != key {
			t.Errorf("%s: %+v, %t", entry, got, ok)
		}

		if got := key.Entry(); got != entry {
			t.Errorf("%+v: %s", key, got)
		}
	}

	for _, entry := range []string{"", "a", "a_b", "a_b_c", "a_b_c_", "___Kind", "n_a_b_g_Kind"} {
		if got, ok := manifests.ParseEntry(entry); ok {
			t.Errorf("%s: %+v", entry, got)
		}
	}
}

// TestGone: what the inventory has and the manifests lack goes, whatever namespace a manifest names for an object that
// has none.
func TestGone(t *testing.T) {
	kept := manifests.Key{Group: "apps", Kind: "DaemonSet", Namespace: "n", Name: "a"}
	wide := manifests.Key{Group: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: "r"}
	moved, old := kept, kept
	moved.Namespace, old.Name = "other", "b"

	spaced := wide
	spaced.Namespace = "n"

	for name, c := range map[string]struct {
		inventory   map[manifests.Key]manifests.Key
		wanted      []manifests.Key
		gone, stale []manifests.Key
	}{
		"as manifests name them": {map[manifests.Key]manifests.Key{old: old, kept: kept, wide: wide, moved: moved}, []manifests.Key{kept, spaced}, []manifests.Key{old, moved}, nil},
		"an older entry":         {map[manifests.Key]manifests.Key{spaced: wide}, []manifests.Key{wide}, nil, []manifests.Key{spaced}},
		"both entries":           {map[manifests.Key]manifests.Key{spaced: wide, wide: wide}, []manifests.Key{wide}, nil, []manifests.Key{spaced}},
		"an older entry is gone": {map[manifests.Key]manifests.Key{spaced: wide}, nil, []manifests.Key{spaced}, nil},
		"both entries are gone":  {map[manifests.Key]manifests.Key{spaced: wide, wide: wide}, nil, []manifests.Key{wide}, []manifests.Key{spaced}},
	} {
		gone, stale := manifests.Gone(c.inventory, c.wanted)
		if !slices.Equal(gone, c.gone) || !slices.Equal(stale, c.stale) {
			t.Errorf("%s: %v, %v", name, gone, stale)
		}
	}
}

// TestKeeps: only what holds no data, what Talos or the operator brought, and what no other owner claims is deleted.
func TestKeeps(t *testing.T) {
	const written = ", managedFields: [{manager: talos, operation: Update}]"

	owns := func(manager, subresource, field string) string {
		return ", managedFields: [{manager: talos, operation: Update}, {manager: " + manager + ", subresource: '" + subresource +
			"', operation: Update, fieldsV1: {'f:" + field + "': {'f:a': {}}}}]"
	}

	for object, want := range map[string]string{
		"{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: a" + written + "}}":                                                                                "",
		"{apiVersion: v1, kind: Secret, metadata: {name: a, managedFields: [{manager: talos-operator-manifests, operation: Apply}]}}":                               "",
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: a, managedFields: [{manager: talosctl, operation: Update}, {manager: kubectl-edit}]}}":                  "",
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: a, annotations: {config.k8s.io/owning-inventory: talos-bootstrap-manifests-inventory}" + written + "}}": "",
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: a, annotations: {talos-operator.io/keep: 'false'}" + written + "}}":                                     "",
		"{apiVersion: v1, kind: Namespace, metadata: {name: a" + written + "}}":                                                                                     "never deleted",
		"{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: a" + written + "}}":                                                                         "never deleted",
		"{apiVersion: v1, kind: PersistentVolume, metadata: {name: a" + written + "}}":                                                                              "never deleted",
		"{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: a" + written + "}}":                                                                              "never deleted",
		"{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: a" + written + "}}":                                                 "never deleted",
		"{apiVersion: example.com/v1, kind: ConfigMap, metadata: {name: a" + written + "}}":                                                                         "never deleted",
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: a, annotations: {talos-operator.io/keep: ''}" + written + "}}":                                          "annotation talos-operator.io/keep",
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: a, annotations: {talos-operator.io/keep: 'true'}" + written + "}}":                                      "annotation talos-operator.io/keep",
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: a, annotations: {config.k8s.io/owning-inventory: mine}" + written + "}}":                                "belongs to the inventory mine",
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: a, managedFields: [{manager: helm, operation: Update}]}}":                                               "neither Talos nor the operator",
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: a" + owns("helm", "", "data") + "}}":                                                                    "owned by helm",
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: a" + owns("helm", "", "binaryData") + "}}":                                                              "owned by helm",
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: a" + owns("helm", "", "metadata") + "}}":                                                                "",
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: a" + owns("talosctl", "", "data") + "}}":                                                                "",
		"{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: a" + owns("kubectl-set", "", "spec") + "}}":                                                        "owned by kubectl-set",
		"{apiVersion: apps/v1, kind: Deployment, metadata: {name: a" + owns("hpa", "scale", "spec") + "}}":                                                          "owned by hpa",
		"{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: a" + owns("kube-controller-manager", "status", "spec") + "}}":                                      "",
		"{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: a" + owns("x", "", "rules") + "}}":                                          "owned by x",
		"{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: a" + owns("x", "", "aggregationRule") + "}}":                                "owned by x",
		"{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: a" + owns("x", "", "subjects") + "}}":                                       "owned by x",
		"{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: a" + owns("x", "", "roleRef") + "}}":                                        "owned by x",
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: a, managedFields: [{manager: talos}, {manager: x, fieldsV1: {bad: {}}}]}}":                              "owned by x",
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: a, annotations: {meta.helm.sh/release-name: r}" + written + "}}":                                        "annotation meta.helm.sh/release-name",
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: a, labels: {app.kubernetes.io/managed-by: Helm}" + written + "}}":                                       "label app.kubernetes.io/managed-by",
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: a, labels: {kustomize.toolkit.fluxcd.io/name: r}" + written + "}}":                                      "label kustomize.toolkit.fluxcd.io/name",
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: a, labels: {helm.toolkit.fluxcd.io/name: r}" + written + "}}":                                           "label helm.toolkit.fluxcd.io/name",
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: a, labels: {argocd.argoproj.io/instance: r}" + written + "}}":                                           "label argocd.argoproj.io/instance",
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: a, annotations: {argocd.argoproj.io/tracking-id: r}" + written + "}}":                                   "annotation argocd.argoproj.io/tracking-id",
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: a, ownerReferences: [{kind: Tool, name: t}]" + written + "}}":                                           "owned by Tool/t",
	} {
		if got := manifests.Keeps(of(t, object)); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", object, got, want)
		}
	}
}

// TestAdoptManifests: an object that is new, or that has the mark of the inventory already, gets it.
func TestAdoptManifests(t *testing.T) {
	const mark = "config.k8s.io/owning-inventory"

	plain := of(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}")
	marked := of(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, annotations: {"+mark+": talos-bootstrap-manifests-inventory}}}")

	for name, c := range map[string]struct {
		live *unstructured.Unstructured
		want string
	}{"new": {nil, manifests.InventoryName}, "marked": {marked, manifests.InventoryName}, "older": {plain, ""}} {
		if got := manifests.Adopt(plain, c.live).GetAnnotations()[mark]; got != c.want {
			t.Errorf("%s: %q", name, got)
		}
	}

	if len(plain.GetAnnotations()) > 0 {
		t.Error("the manifest itself was changed")
	}
}
