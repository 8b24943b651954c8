package manifests_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/manifests"
	"github.com/talos-operator/talos-operator/internal/decide/upgrade"
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

	got, err := s.Objects()
	if err != nil {
		t.Fatal(err)
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

	s.Items = append(s.Items, map[string]any{"apiVersion": "v1"})
	if _, err := s.Objects(); err == nil || !strings.Contains(err.Error(), "bootstrap manifest 5 of cp-0") {
		t.Errorf("an object without a kind: %v", err)
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

	got := manifests.Gone([]manifests.Key{old, kept, wide, moved}, []manifests.Key{kept, spaced})
	if want := []manifests.Key{old, moved}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestKeeps: only what holds no data, what Talos or the operator brought, and what nobody else claims is deleted.
func TestKeeps(t *testing.T) {
	const written = ", managedFields: [{manager: talos, operation: Update}]"

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
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: a, annotations: {talos-operator.io/keep: 'true'}" + written + "}}":                                      "annotation talos-operator.io/keep",
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: a, annotations: {config.k8s.io/owning-inventory: mine}" + written + "}}":                                "belongs to the inventory mine",
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: a, managedFields: [{manager: helm, operation: Update}]}}":                                               "neither Talos nor the operator",
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
	}{
		"none":                   {},
		"one field":              {[]manifests.Conflict{{"edit", replicas}}, []string{"replicas: 2, "}},
		"of Talos":               {[]manifests.Conflict{{"talos", replicas}}, nil},
		"of both":                {[]manifests.Conflict{{"edit", replicas}, {"talos", replicas}}, nil},
		"one of each":            {[]manifests.Conflict{{"edit", image}, {"talosctl", replicas}}, []string{", image: c"}},
		"of an item":             {[]manifests.Conflict{{"edit", image}}, []string{", image: c"}},
		"of an item by defaults": {[]manifests.Conflict{{"edit", `.spec.template.containers[name="c"].ports[port=53,protocol="TCP"].target`}}, []string{", target: 1"}},
		"an item":                {[]manifests.Conflict{{"edit", `.spec.template.containers[name="c"]`}}, []string{", {name: c, image: c, ports: [{port: 54}, {port: 53, target: 1}]}"}},
		"an item of a set":       {[]manifests.Conflict{{"edit", `.spec.tags[="a"]`}}, []string{"a, "}},
		"items by index":         {[]manifests.Conflict{{"edit", ".spec.old[0]"}, {"edit", ".spec.old[1]"}}, []string{"x, y, "}},
		"what is not there":      {[]manifests.Conflict{{"edit", ".spec.paused"}}, nil},
	} {
		text := desired
		for _, part := range c.remove {
			text = strings.Replace(text, part, "", 1)
		}

		if diff := cmp.Diff(of(t, text).Object, manifests.Yield(of(t, desired), live, c.conflicts).Object); diff != "" {
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

// TestOutcome: objects are named once, sorted, and never with their content.
func TestOutcome(t *testing.T) {
	var o manifests.Outcome

	if o.Report(version) != "" || o.Waits(version) != "" {
		t.Error("nothing differs")
	}

	for _, name := range []string{"d", "b", "a", "c"} {
		o.Differences = append(o.Differences, manifests.Difference{Key: manifests.Key{Kind: "ConfigMap", Namespace: "n", Name: name}})
	}

	o.Refused = []manifests.Refusal{
		{Key: manifests.Key{Kind: "ConfigMap", Namespace: "n", Name: "a"}, Reason: "Invalid", Message: "content"},
		{Key: manifests.Key{Kind: "Secret", Name: "s"}, Reason: "Forbidden", Message: "content"},
	}

	const report = "5 objects differ from the bootstrap manifests of Kubernetes v1.36.2: ConfigMap/n/a, ConfigMap/n/b, ConfigMap/n/c and 2 more; " +
		"set upgrade.manifests to Apply, or see talos-operator upgrade manifests"
	if got := o.Report(version); got != report {
		t.Error(got)
	}

	const waits = "the API server refuses bootstrap manifests of Kubernetes v1.36.2, which are retried: ConfigMap/n/a (Invalid), Secret/s (Forbidden); " +
		"see talos-operator upgrade manifests, or set upgrade.manifests to Report"
	if got := o.Waits(version); got != waits {
		t.Error(got)
	}

	if a, b := o.Refused[0].Shown(), o.Refused[1].Shown(); a != "content" || b != "Forbidden" {
		t.Errorf("%s, %s", a, b)
	}

	o = manifests.Outcome{Refused: o.Refused[:1]}
	if got := o.Report(version); !strings.HasPrefix(got, "1 object differs ") {
		t.Error(got)
	}
}

// TestDue: manifests are compared once each machine runs the version that an upgrade has brought.
func TestDue(t *testing.T) {
	const next = "v1.37.1"

	noted := func(v string) *v1alpha1.ManifestsStatus { return &v1alpha1.ManifestsStatus{KubernetesVersion: v} }
	step := func(v string) *v1alpha1.UpgradeStatus { return &v1alpha1.UpgradeStatus{KubernetesVersion: v} }
	runs := func(v ...string) (out upgrade.Cluster) {
		for _, kubelet := range v {
			out.Nodes = append(out.Nodes, upgrade.Node{Kubelet: kubelet})
		}

		return out
	}

	const apply, report = v1alpha1.ManifestsApply, v1alpha1.ManifestsReport

	for name, c := range map[string]struct {
		was    *v1alpha1.ManifestsStatus
		next   *v1alpha1.UpgradeStatus
		runs   upgrade.Cluster
		policy v1alpha1.ManifestPolicy
		want   string // the version of the status
		due    bool
	}{
		"no upgrade":                      {runs: runs(version), policy: apply},
		"an upgrade begins":               {next: step(version), runs: runs("v1.35.1"), want: version},
		"it goes on":                      {was: noted(version), next: step(version), runs: runs(version, "v1.35.1"), want: version},
		"a kubelet has not proved itself": {was: noted(version), next: step(version), runs: runs(version), want: version},
		"it ends":                         {was: noted(version), runs: runs(version, version), policy: apply, want: version, due: true},
		"it ends, to be reported":         {was: noted(version), runs: runs(version), policy: report, want: version, due: true},
		"by default it is reported":       {was: noted(version), runs: runs(version), want: version, due: true},
		"Talos comes next":                {was: noted(version), next: &v1alpha1.UpgradeStatus{TalosVersion: "v1.14.0"}, runs: runs(version), policy: apply, want: version, due: true},
		"the next version waits":          {was: noted(version), next: step(next), runs: runs(version), policy: apply, want: version, due: true},
		"the next version does not wait":  {was: noted(version), next: step(next), runs: runs(version), policy: report, want: next},
		"the next version has begun":      {was: noted(version), next: step(next), runs: runs(version, next), policy: apply, want: next},
		"called off":                      {was: noted(version), next: step("v1.35.1"), runs: runs(version, "v1.35.1"), policy: apply, want: "v1.35.1"},
		"upgraded by other means":         {was: noted(version), runs: runs(next), policy: apply},
		"no machine is left":              {was: noted(version), policy: apply},
	} {
		got, due := manifests.Due(c.was, c.next, c.runs, c.policy)
		if due != c.due || (got == nil) != (c.want == "") || got != nil && got.KubernetesVersion != c.want {
			t.Errorf("%s: %+v, %t", name, got, due)
		}
	}
}

// TestStatus: the objects that differ are named, at most 16, and stay while they cannot be compared.
func TestStatus(t *testing.T) {
	var found manifests.Outcome
	for i := range 20 {
		found.Differences = append(found.Differences, manifests.Difference{Key: manifests.Key{Kind: "ConfigMap", Namespace: "n", Name: string(rune('a' + i))}})
	}

	got := manifests.Status(&v1alpha1.ManifestsStatus{KubernetesVersion: version, Message: "old"}, found, "", "")
	if got.Differing != 20 || len(got.Objects) != 16 || got.Objects[0] != "ConfigMap/n/a" || !strings.HasPrefix(got.Message, "20 objects differ") {
		t.Errorf("%+v", got)
	}

	later := manifests.Status(got, manifests.Outcome{}, "", "cp-0 is unreachable")
	if later.Differing != 20 || len(later.Objects) != 16 || later.Message != "the bootstrap manifests of Kubernetes v1.36.2 are not compared: cp-0 is unreachable" {
		t.Errorf("%+v", later)
	}

	// What was applied differs no more; what is to be deleted waits for what is refused.
	found.Differences[1].Action, found.Refused = manifests.Delete, []manifests.Refusal{{Key: found.Differences[2].Key, Reason: "Invalid"}}

	left := manifests.Status(got, found, v1alpha1.ManifestsApply, "")
	if want := []string{"ConfigMap/n/b", "ConfigMap/n/c"}; left.Differing != 2 || !slices.Equal(left.Objects, want) || left.Message != found.Waits(version) {
		t.Errorf("%+v", left)
	}
}

// TestHeld: an upgrade that waits for manifests stays at its step, and keeps what it remembers.
func TestHeld(t *testing.T) {
	cp := &v1alpha1.TalosControlPlane{}
	cp.Generation, cp.Spec.KubernetesVersion = 7, version

	got := manifests.Held(cp, nil, version, "waiting")
	if got.ObservedGeneration != 7 || got.KubernetesVersion != version || got.TargetKubernetes != version || got.StepsLeft != 1 ||
		got.Message != "waiting" || got.Components[len(got.Components)-1] != v1alpha1.ComponentKubelet {
		t.Errorf("%+v", got)
	}

	cp.Status.Upgrade = &v1alpha1.UpgradeStatus{KubernetesBegun: version, Approved: true}

	got = manifests.Held(cp, &v1alpha1.UpgradeStatus{Target: "v1.14.0", TargetKubernetes: "v1.37.1", StepsLeft: 2}, version, "")
	if got.KubernetesBegun != version || !got.Approved || got.Target != "v1.14.0" || got.TargetKubernetes != "v1.37.1" || got.StepsLeft != 3 {
		t.Errorf("%+v", got)
	}
}
