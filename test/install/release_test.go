package install

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/lab/management"
	"github.com/talos-operator/talos-operator/test/wait"
)

const (
	// prefix of the groups of the chart that is installed here: other tests use the real CRDs of the same API server.
	prefix = "chart."
	group  = prefix + "talos-operator.io"
	field  = "allowSchedulingOnControlPlanes"
)

// release of the chart in a namespace of its own.
type release struct {
	*testing.T
	admin           client.Client
	namespace, name string
	kubeconfig      string
}

// TestChartRelease installs the chart, upgrades it, uninstalls it and installs it again. A cluster and its Secret survive all of
// it, and the CRDs follow the chart, and stay when it goes.
func TestChartRelease(t *testing.T) {
	t.Parallel()

	r := newRelease(t)
	current := r.chart(nil)
	older := r.chart(strings.NewReplacer(field+":", "unknownToTheOlderOne:"))

	r.helm("install", older)
	r.create()

	if r.served() {
		t.Fatalf("the older CRD has the field %s", field)
	}

	r.survives("after upgrade", func() {
		r.helm("upgrade", current, "--set", "image.tag=v2", "--set", "backups.existingClaim=backups")
	})
	r.replaces("Recreate", false)
	r.fits()

	if !r.served() {
		t.Errorf("the CRD has not been upgraded: there is no field %s", field)
	}

	deployment := r.get("apps/v1", "Deployment", r.name+"-talos-operator-controller-manager")
	containers, _, _ := unstructured.NestedSlice(deployment.Object, "spec", "template", "spec", "containers")

	if image := containers[0].(map[string]any)["image"]; image != "ghcr.io/vitistack/talos-operator:v2" {
		t.Errorf("image %v", image)
	}

	r.survives("after uninstall", func() { r.helm("uninstall", "") })
	r.gone("apps/v1", "Deployment", r.name+"-talos-operator-controller-manager")
	r.gone("rbac.authorization.k8s.io/v1", "ClusterRole", r.name+"-talos-operator")
	r.gone("v1", "ServiceAccount", r.name+"-talos-operator-controller-manager")

	r.survives("after the second install", func() { r.helm("install", current, "--set", "backups.existingClaim=backups") })
	r.replaces("Recreate", false)

	r.survives("without CRDs", func() {
		r.helm("upgrade", current, "--reset-then-reuse-values", "--set", "crds.install=false", "--set", "backups.existingClaim=")
	})
	r.replaces("RollingUpdate", true)

	// Older CRDs, which kubectl has applied, as a release of another name and namespace finds them.
	manifest, err := run(helmPath, "template", r.name, older)
	if err != nil {
		t.Fatal(err)
	}

	for _, crd := range crdsOf(t, manifest) {
		if err := shared.ApplyObject(t.Context(), crd); err != nil {
			t.Fatal(err)
		}
	}

	if r.served() {
		t.Fatalf("the CRD that kubectl applied has the field %s", field)
	}

	other := newRelease(t)
	if _, err := other.try("install", current); err == nil || !strings.Contains(err.Error(), "CustomResourceDefinition") {
		t.Errorf("a release takes the CRDs of another one: %v", err)
	}

	r.survives("after the takeover", func() { other.helm("install", current, "--take-ownership", "--force-conflicts") })

	if !r.served() {
		t.Errorf("the CRD has not been upgraded by the takeover: there is no field %s", field)
	}

	if owner := r.crd("taloscontrolplanes." + group).GetAnnotations()["meta.helm.sh/release-name"]; owner != other.name {
		t.Errorf("the CRD belongs to the release %s", owner)
	}
}

// largestRelease is how many bytes a revision may have in its Secret. One of more than 1 MiB cannot be installed.
const largestRelease = 700_000

// fits checks the size of what Helm has stored of each revision.
func (r *release) fits() {
	r.Helper()

	var revisions corev1.SecretList

	err := r.admin.List(r.Context(), &revisions, client.InNamespace(r.namespace), client.MatchingLabels{"owner": "helm"})
	if err != nil || len(revisions.Items) != 2 {
		r.Fatalf("%d revisions, error %v", len(revisions.Items), err)
	}

	for _, s := range revisions.Items {
		size := len(s.Data["release"])
		r.Logf("%s has %d bytes", s.Name, size)

		if size == 0 || size > largestRelease {
			r.Errorf("%s has %d bytes, want at most %d", s.Name, size, largestRelease)
		}
	}
}

// crdsOf returns the CRDs of a rendered chart, without what makes them those of a release.
func crdsOf(t *testing.T, manifest []byte) []*unstructured.Unstructured {
	t.Helper()

	found, err := management.Decode(manifest)
	if err != nil {
		t.Fatal(err)
	}

	crds := of(found, "CustomResourceDefinition")
	if len(crds) == 0 {
		t.Fatal("there are no CRDs")
	}

	return crds
}

func newRelease(t *testing.T) *release {
	t.Helper()

	namespace := shared.Namespace(t)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")

	if err := management.WriteKubeconfig(kubeconfig, shared.Config(), namespace); err != nil {
		t.Fatal(err)
	}

	return &release{T: t, admin: shared.Admin(t), namespace: namespace, name: namespace, kubeconfig: kubeconfig}
}

// chart copies the chart with groups of its own, and changes its CRDs.
func (r *release) chart(change *strings.Replacer) string {
	r.Helper()

	dir := filepath.Join(r.TempDir(), "talos-operator")
	if err := os.CopyFS(dir, os.DirFS(chart)); err != nil {
		r.Fatal(err)
	}

	crds, err := filepath.Glob(filepath.Join(dir, "templates/crds/*"))
	if err != nil {
		r.Fatal(err)
	}

	for _, path := range crds {
		content, err := os.ReadFile(path)
		if err != nil {
			r.Fatal(err)
		}

		text := strings.NewReplacer("talos-operator.io", group, "vitistack.io", prefix+"vitistack.io").Replace(string(content))
		if change != nil {
			text = change.Replace(text)
		}

		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			r.Fatal(err)
		}
	}

	return dir
}

// applies has one test at a time write CRDs: an API server gives each request 34 s (requestTimeoutUpperBound of its
// handlers), which the large schemas of several charts at once can exceed on a busy machine.
var applies sync.Mutex

func (r *release) try(command, chart string, args ...string) ([]byte, error) {
	all := []string{command, r.name, "--namespace", r.namespace, "--kubeconfig", r.kubeconfig}
	if chart != "" {
		// The API server of the tests publishes no OpenAPI documents. It checks the objects itself.
		all = append(all, chart, "--disable-openapi-validation")

		applies.Lock()
		defer applies.Unlock()
	}

	return run(helmPath, append(all, args...)...)
}

func (r *release) helm(command, chart string, args ...string) {
	r.Helper()

	if out, err := r.try(command, chart, args...); err != nil {
		r.Fatalf("%v\n%s", err, out)
	}
}

// create makes a cluster with its Secret, and has the CRDs removed at the end.
func (r *release) create() {
	r.Helper()
	r.Cleanup(r.removeCRDs)

	plane := r.object(group+"/v1alpha1", "TalosControlPlane", "prod")
	plane.Object["spec"] = map[string]any{
		"talosVersion": "v1.13.9", "kubernetesVersion": "v1.36.2", "endpoint": "https://127.10.0.1:6443",
		"machines": []any{map[string]any{"name": "prod-cp-0", "address": "127.10.0.1"}},
	}
	plane.SetFinalizers([]string{"talos-operator.io/finalizer"})

	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: "prod-state"}, Data: map[string][]byte{"ca": []byte("key")},
	}

	for _, o := range []client.Object{plane, secret} {
		wait.For(r.T, "the API server serves the kinds", func(ctx context.Context) error { return r.admin.Create(ctx, o) })
	}
}

// survives does something, and checks that the cluster and its Secret are the same before and after it.
func (r *release) survives(when string, do func()) {
	r.Helper()

	before := r.state()

	do()

	if diff := cmp.Diff(before, r.state()); diff != "" {
		r.Fatalf("%s:\n%s", when, diff)
	}
}

// state of what must not change: UIDs, deletions, and content.
func (r *release) state() map[string]any {
	r.Helper()

	out := map[string]any{}

	for _, o := range []*unstructured.Unstructured{
		r.get(group+"/v1alpha1", "TalosControlPlane", "prod"), r.get("v1", "Secret", "prod-state"),
	} {
		out[o.GetKind()] = []any{o.GetUID(), o.GetDeletionTimestamp(), o.Object["spec"], o.Object["data"], o.GetFinalizers()}
	}

	return out
}

// served says whether the API server knows the field that the older CRD lacks.
func (r *release) served() bool {
	r.Helper()

	crd := r.crd("taloscontrolplanes." + group)
	if crd.GetAnnotations()["helm.sh/resource-policy"] != "keep" {
		r.Errorf("the CRD is not kept: %v", crd.GetAnnotations())
	}

	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	_, ok, err := unstructured.NestedMap(versions[0].(map[string]any),
		"schema", "openAPIV3Schema", "properties", "spec", "properties", field)
	if err != nil {
		r.Fatal(err)
	}

	return ok
}

func (r *release) crd(name string) *unstructured.Unstructured {
	r.Helper()

	return r.get("apiextensions.k8s.io/v1", "CustomResourceDefinition", name)
}

// removeCRDs leaves the API server to the other tests as it was. The finalizer goes first: no operator removes it.
func (r *release) removeCRDs() {
	ctx := context.Background()
	plane := r.object(group+"/v1alpha1", "TalosControlPlane", "prod")

	if err := r.admin.Patch(ctx, plane, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))); err != nil {
		r.Error(err)
	}

	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(schema.FromAPIVersionAndKind("apiextensions.k8s.io/v1", "CustomResourceDefinitionList"))

	if err := r.admin.List(ctx, list); err != nil {
		r.Error(err)
	}

	for i := range list.Items {
		if strings.Contains(list.Items[i].GetName(), "."+prefix) {
			if err := r.admin.Delete(ctx, &list.Items[i]); err != nil {
				r.Error(err)
			}
		}
	}
}

// replaces checks how pods are replaced. The API server sets what a rolling update is, which Recreate must not keep.
func (r *release) replaces(want string, rolling bool) {
	r.Helper()

	deployment := r.get("apps/v1", "Deployment", r.name+"-talos-operator-controller-manager")
	strategy, _, _ := unstructured.NestedMap(deployment.Object, "spec", "strategy")

	if _, rolls := strategy["rollingUpdate"]; strategy["type"] != want || rolls != rolling {
		r.Errorf("strategy %v, want %s", strategy, want)
	}
}

func (r *release) object(version, kind, name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(schema.FromAPIVersionAndKind(version, kind))
	o.SetName(name)

	if kind != "ClusterRole" && kind != "CustomResourceDefinition" {
		o.SetNamespace(r.namespace)
	}

	return o
}

func (r *release) get(version, kind, name string) *unstructured.Unstructured {
	r.Helper()

	o := r.object(version, kind, name)
	if err := r.find(o); err != nil {
		r.Fatalf("%s %s: %v", kind, name, err)
	}

	return o
}

func (r *release) gone(version, kind, name string) {
	r.Helper()

	if err := r.find(r.object(version, kind, name)); !apierrors.IsNotFound(err) {
		r.Errorf("%s %s is still there: %v", kind, name, err)
	}
}

func (r *release) find(o *unstructured.Unstructured) error {
	return r.admin.Get(r.Context(), types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}, o)
}
