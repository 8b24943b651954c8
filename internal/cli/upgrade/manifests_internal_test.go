package upgrade

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/yaml"

	"github.com/talos-operator/talos-operator/internal/cli/exit"
	"github.com/talos-operator/talos-operator/internal/cli/session"
	"github.com/talos-operator/talos-operator/internal/decide/manifests"
)

// writtenTo counts comparisons and writes. Like a cluster, it finds the same difference either way.
type writtenTo struct {
	compared, written int
	found             manifests.Outcome
}

func (w *writtenTo) Manifests(_ context.Context, _ manifests.Wanted, write bool) (manifests.Outcome, error) {
	if w.compared++; write {
		w.written++
	}

	return w.found, nil
}

// TestManifestsWriteNothing: the command compares a cluster that differs, prints the difference and writes nothing.
func TestManifestsWriteNothing(t *testing.T) {
	cluster := &writtenTo{found: manifests.Outcome{Differences: []manifests.Difference{{
		Key: manifests.Key{Kind: "ConfigMap", Namespace: "kube-system", Name: "c"}, Action: manifests.Change,
		Live: &unstructured.Unstructured{Object: map[string]any{"kind": "ConfigMap", "data": map[string]any{"a": "old"}}},
		Want: &unstructured.Unstructured{Object: map[string]any{"kind": "ConfigMap", "data": map[string]any{"a": "new"}}},
	}}}}

	var out, errOut bytes.Buffer

	d := &manifestsDiffer{Session: &session.Session{IOStreams: genericiooptions.IOStreams{Out: &out, ErrOut: &errOut}}}

	err := d.compare(t.Context(), cluster, manifests.Wanted{})
	if exit.CodeOf(err) != exit.Differs || !strings.Contains(out.String(), "-  a: old\n+  a: new\n") {
		t.Errorf("%v, %q", err, out.String())
	}

	if cluster.compared != 1 || cluster.written != 0 {
		t.Errorf("%d comparisons, %d of them write", cluster.compared, cluster.written)
	}
}

// TestPrintManifests: differences are printed as a diff without secrets, what is refused or stays beside them, and the
// exit code is that of diff.
func TestPrintManifests(t *testing.T) {
	object := func(text string) *unstructured.Unstructured {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
			t.Fatal(err)
		}

		return o
	}

	set, secret := manifests.Key{Group: "apps", Kind: "DaemonSet", Namespace: "kube-system", Name: "kube-proxy"}, manifests.Key{Kind: "Secret", Name: "s"}
	found := manifests.Outcome{
		Differences: []manifests.Difference{
			{
				Key: set, Action: manifests.Change, Live: object("{kind: DaemonSet, spec: {image: 'kube-proxy:v1.35.1'}}"),
				Want: object("{kind: DaemonSet, spec: {image: 'kube-proxy:v1.36.2'}}"),
			},
			{Key: secret, Action: manifests.Delete, Live: object("{kind: Secret, data: {a: aHVudGVyMg==}}")},
		},
		Refused: []manifests.Refusal{
			{Key: manifests.Key{Kind: "ConfigMap", Name: "c"}, Reason: "Invalid", Message: "the name is too long"},
			{Key: manifests.Key{Kind: "Secret", Name: "t"}, Reason: "Invalid", Message: "aHVudGVyMg== is invalid"},
		},
		Kept:     []manifests.Kept{{Key: manifests.Key{Kind: "Namespace", Name: "n"}, Reason: "objects of this kind are never deleted"}},
		Left:     []manifests.Left{{Key: set, Manager: "kubectl-set", Path: ".spec.replicas"}},
		Withheld: []manifests.Key{{Kind: "ConfigMap", Name: "w"}}, Uncertain: "cp-1: no answer",
	}

	print := func(o manifests.Outcome) (string, string, int) {
		var out, errOut bytes.Buffer

		d := &manifestsDiffer{Session: &session.Session{IOStreams: genericiooptions.IOStreams{Out: &out, ErrOut: &errOut}}}
		err := d.print(o)

		return out.String(), errOut.String(), exit.CodeOf(err)
	}

	const (
		want = `--- a/DaemonSet/kube-system/kube-proxy
+++ b/DaemonSet/kube-system/kube-proxy
@@ -1,3 +1,3 @@
 kind: DaemonSet
 spec:
-  image: kube-proxy:v1.35.1
+  image: kube-proxy:v1.36.2
--- a/Secret/s
+++ b/Secret/s
@@ -1,3 +0,0 @@
-data:
-  a: '***'
-kind: Secret
`
		beside = "ConfigMap/c is refused: the name is too long\nSecret/t is refused: Invalid\n" +
			"DaemonSet/kube-system/kube-proxy: the field .spec.replicas is left to its manager kubectl-set\n" +
			"Namespace/n is no longer among the manifests, and is not deleted: objects of this kind are never deleted\n" +
			"ConfigMap/w is not deleted without evidence that no control-plane machine has it among its manifests: cp-1: no answer\n"
	)

	out, errOut, code := print(found)
	if diff := cmp.Diff(want, out) + cmp.Diff(beside, errOut); diff != "" || code != 1 {
		t.Errorf("%d: %s", code, diff)
	}

	if _, _, code := print(manifests.Outcome{Refused: found.Refused}); code != 1 {
		t.Errorf("something is refused: %d", code)
	}

	if out, errOut, code := print(manifests.Outcome{}); out+errOut != "" || code != 0 {
		t.Errorf("nothing differs: %q, %q, %d", out, errOut, code)
	}
}
