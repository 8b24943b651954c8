package workload_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	clientset "k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/talos-operator/talos-operator/internal/decide/manifests"
	"github.com/talos-operator/talos-operator/internal/workload"
	"github.com/talos-operator/talos-operator/test/wait"
)

const (
	proxySet = `{apiVersion: apps/v1, kind: DaemonSet, metadata: {namespace: kube-system, name: kube-proxy}, spec: {selector: {matchLabels: {a: p}},
		template: {metadata: {labels: {a: p}}, spec: {containers: [{name: kube-proxy, image: "kube-proxy:%s"}]}}}}`
	dns = `{apiVersion: apps/v1, kind: Deployment, metadata: {namespace: kube-system, name: coredns%s}, spec: {replicas: 2, selector: {matchLabels: {a: d}},
		template: {metadata: {labels: {a: d}}, spec: {%scontainers: [{name: coredns, image: "coredns:%s"}]}}}}`
	corefile = `{apiVersion: v1, kind: ConfigMap, metadata: {namespace: kube-system, name: coredns}, data: {Corefile: %s}}`
	mine     = ", annotations: {config.k8s.io/owning-inventory: talos-bootstrap-manifests-inventory}"
)

// bootstrapped is a cluster with what Talos brought when it was made, and with what users have changed.
type bootstrapped struct {
	*testing.T

	c       clientset.Interface
	cluster *workload.Cluster
}

func (b *bootstrapped) objects(texts ...string) []*unstructured.Unstructured {
	b.Helper()

	s := manifests.Served{Machine: "cp"}

	for _, text := range texts {
		item := map[string]any{}
		if err := yaml.Unmarshal([]byte(text), &item); err != nil {
			b.Fatal(err)
		}

		s.Items = append(s.Items, item)
	}

	out, refused := s.Objects()
	if len(refused) > 0 {
		b.Fatal(refused)
	}

	return out
}

func at(o *unstructured.Unstructured) string {
	paths := map[string]string{
		"DaemonSet": "/apis/apps/v1/namespaces/kube-system/daemonsets", "Deployment": "/apis/apps/v1/namespaces/kube-system/deployments",
		"ConfigMap": "/api/v1/namespaces/kube-system/configmaps", "Namespace": "/api/v1/namespaces",
	}

	return paths[o.GetKind()]
}

// create creates an object as Talos before 1.13 does, or applies it as later ones do.
func (b *bootstrapped) bring(manager string, apply bool, text string) {
	b.Helper()

	o := b.objects(text)[0]

	data, err := json.Marshal(o.Object)
	if err != nil {
		b.Fatal(err)
	}

	client := b.c.CoreV1().RESTClient()
	call := client.Post().AbsPath(at(o))

	if apply {
		call = client.Patch(types.ApplyPatchType).AbsPath(at(o), o.GetName()).Param("force", "true")
	}

	if err := call.Param("fieldManager", manager).Body(data).Do(b.Context()).Error(); err != nil {
		b.Fatalf("%s: %v", text, err)
	}
}

// edit changes an object as a user does.
func (b *bootstrapped) edit(path, merge string) {
	b.Helper()

	err := b.c.CoreV1().RESTClient().Patch(types.MergePatchType).AbsPath(path).Param("fieldManager", "kubectl-edit").
		Body([]byte(merge)).Do(b.Context()).Error()
	if err != nil {
		b.Fatal(err)
	}
}

// sync compares or applies, and returns what differs, is refused and is kept.
func (b *bootstrapped) sync(write bool, texts ...string) string {
	b.Helper()

	return b.compare(write, manifests.Wanted{Objects: b.objects(texts...)})
}

func (b *bootstrapped) compare(write bool, want manifests.Wanted) string {
	b.Helper()

	found, err := b.cluster.Manifests(b.Context(), want, write)
	if err != nil {
		b.Fatal(err)
	}

	var out []string

	for _, d := range found.Differences {
		out = append(out, fmt.Sprintf("%s %s", d.Action, d.Key))
	}

	for _, r := range found.Refused {
		out = append(out, fmt.Sprintf("refused %s %s", r.Key, r.Reason))
	}

	for _, k := range found.Kept {
		out = append(out, fmt.Sprintf("kept %s", k.Key))
	}

	for _, k := range found.Withheld {
		out = append(out, fmt.Sprintf("withheld %s: %s", k, found.Uncertain))
	}

	for _, l := range found.Left {
		out = append(out, fmt.Sprintf("left %s", l))
	}

	slices.Sort(out)

	return strings.Join(out, "\n")
}

func (b *bootstrapped) expect(what, got string, want ...string) {
	b.Helper()

	if diff := cmp.Diff(strings.Join(want, "\n"), got); diff != "" {
		b.Errorf("%s: %s", what, diff)
	}
}

// versions are the versions of all objects that a run may write.
func (b *bootstrapped) versions() string {
	b.Helper()

	var out []string

	for _, path := range []string{
		"/apis/apps/v1/namespaces/kube-system/daemonsets", "/apis/apps/v1/namespaces/kube-system/deployments", "/api/v1/namespaces/kube-system/configmaps",
	} {
		list := &metav1.PartialObjectMetadataList{}

		raw, err := b.c.CoreV1().RESTClient().Get().AbsPath(path).Do(b.Context()).Raw()
		if err == nil {
			err = json.Unmarshal(raw, list)
		}

		if err != nil {
			b.Fatal(err)
		}

		for i := range list.Items {
			out = append(out, list.Items[i].Name+" "+list.Items[i].ResourceVersion)
		}
	}

	return strings.Join(out, "\n")
}

func (b *bootstrapped) inventory() []string {
	b.Helper()

	have, err := b.c.CoreV1().ConfigMaps("kube-system").Get(b.Context(), manifests.InventoryName, metav1.GetOptions{})
	if err != nil {
		b.Fatal(err)
	}

	out := make([]string, 0, len(have.Data))
	for entry := range have.Data {
		out = append(out, entry)
	}

	slices.Sort(out)

	return out
}

// bootstrapManifests: what Talos owns follows the manifests, what users have changed stays, what is refused stops
// nothing else, and only what Talos or the operator has brought and holds no data is deleted.
func bootstrapManifests(t *testing.T, c clientset.Interface, cluster *workload.Cluster) {
	t.Helper()

	b := &bootstrapped{t, c, cluster}
	old := func(name, marks string) string {
		return "{apiVersion: v1, kind: ConfigMap, metadata: {namespace: kube-system, name: " + name + marks + "}, data: {a: b}}"
	}

	b.bring("talos", false, fmt.Sprintf(proxySet, "v1.35.1"))
	b.bring("talos", true, fmt.Sprintf(dns, mine, "volumes: [{name: old, emptyDir: {}}], ", "v1.12"))
	b.bring("talos", false, fmt.Sprintf(corefile, "theirs"))
	b.bring("talos", false, old("gone", ""))
	b.bring("talos", false, old("kept", ", annotations: {talos-operator.io/keep: 'true'}"))
	b.bring("helm", false, old("taken", ""))
	b.bring("talos", false, old("took", ""))
	b.edit("/api/v1/namespaces/kube-system/configmaps/took", `{"data":{"c":"d"}}`)
	b.bring("helm", false, old("other", ", annotations: {config.k8s.io/owning-inventory: helm}"))
	b.bring("talos", false, "{apiVersion: v1, kind: Namespace, metadata: {name: olds}}")
	b.edit("/apis/apps/v1/namespaces/kube-system/deployments/coredns", `{"spec":{"replicas":5}}`)
	b.edit("/api/v1/namespaces/kube-system/configmaps/coredns", `{"data":{"Corefile":"edited"}}`)

	_, err := c.CoreV1().ConfigMaps("kube-system").Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: manifests.InventoryName},
		Data: map[string]string{
			"kube-system_coredns_apps_Deployment": "", "kube-system_gone__ConfigMap": "", "kube-system_kept__ConfigMap": "",
			"kube-system_taken__ConfigMap": "", "kube-system_took__ConfigMap": "", "kube-system_m__reader_rbac.authorization.k8s.io_ClusterRole": "",
			"_olds__Namespace": "", "kube-system_missing__ConfigMap": "", "ns_x_gone.example.com_Kind": "",
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}

	const (
		crd = "{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: things.m.example.com}, spec: {group: m.example.com, " +
			"scope: Namespaced, names: {kind: Thing, plural: things}, versions: [{name: v1, served: true, storage: true, schema: " +
			"{openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}}"
		thing = "{apiVersion: m.example.com/v1, kind: Thing, metadata: {namespace: extra, name: t}}"
	)

	want := []string{
		fmt.Sprintf(proxySet, "v1.36.2"), fmt.Sprintf(dns, "", "", "v1.14"), fmt.Sprintf(corefile, "new"), crd, thing,
		"{apiVersion: v1, kind: Namespace, metadata: {name: extra}}",
		"{apiVersion: v1, kind: Secret, metadata: {namespace: extra, name: token}, stringData: {a: b}}",
		"{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {namespace: kube-system, name: 'm:reader'}}",
	}
	bad := append(slices.Clone(want),
		"{apiVersion: v1, kind: ConfigMap, metadata: {namespace: extra, name: Bad}}",
		"{apiVersion: v1, kind: ConfigMap, metadata: {namespace: extra, generateName: nameless}}",
		"{apiVersion: v1, kind: ConfigMap, metadata: {namespace: absent, name: a}}",
		"{apiVersion: nothing.example.com/v1, kind: Thing, metadata: {name: t}}", old("other", ""))
	refused := []string{
		"refused ConfigMap/absent/a NotFound", "refused ConfigMap/extra/ InvalidName", "refused ConfigMap/extra/Bad Invalid",
		"refused ConfigMap/kube-system/other OtherInventory", "refused Thing/t UnknownKind",
	}
	kept := []string{"kept ConfigMap/kube-system/kept", "kept ConfigMap/kube-system/taken", "kept ConfigMap/kube-system/took", "kept Namespace/olds"}
	left := []string{"left ConfigMap/kube-system/coredns.data.Corefile (kubectl-edit)", "left Deployment/kube-system/coredns.spec.replicas (kubectl-edit)"}
	differ := []string{
		"change DaemonSet/kube-system/kube-proxy", "change Deployment/kube-system/coredns", "create ClusterRole/m:reader",
		"create CustomResourceDefinition/things.m.example.com", "create Namespace/extra", "create Secret/extra/token", "create Thing/extra/t",
		"delete ConfigMap/kube-system/gone",
	}

	before := b.versions()
	b.expect("a comparison", b.sync(false, want...), slices.Concat(differ, kept, left)...)
	b.withoutEvidence(want)
	b.expect("a comparison changes nothing", b.versions(), before)

	// A definition takes a moment, so the first run may refuse its object.
	first := strings.Split(b.sync(true, bad...), "\n")
	for _, line := range slices.Concat(slices.DeleteFunc(slices.Clone(differ), func(s string) bool { return strings.Contains(s, "Thing") }), refused) {
		if !slices.Contains(first, line) {
			t.Errorf("%q is missing in %q", line, first)
		}
	}

	if _, err := c.CoreV1().ConfigMaps("kube-system").Get(t.Context(), "gone", metav1.GetOptions{}); err != nil {
		t.Errorf("something was deleted before everything was applied: %v", err)
	}

	wait.For(t, "the definition is served", func(ctx context.Context) error {
		found, err := cluster.Manifests(ctx, manifests.Wanted{Objects: b.objects(want...)}, true)
		if err == nil && len(found.Refused) > 0 {
			err = fmt.Errorf("%+v", found.Refused)
		}

		return err
	})
	b.outcome()

	applied := b.versions()
	b.expect("again", b.sync(true, want...), left...)
	b.expect("again changes nothing", b.versions(), applied)

	// talosctl upgrade-k8s takes it over, and the operator after it.
	b.bring("talos", true, fmt.Sprintf(proxySet, "v1.36.2"))
	b.bring("talos", true, fmt.Sprintf(proxySet, "v1.36.3"))
	b.expect("after talosctl", b.sync(true, want...), append([]string{"change DaemonSet/kube-system/kube-proxy"}, left...)...)
	b.expect("afterwards", b.sync(false, want...), left...)

	// Another tool takes the image.
	b.edit("/apis/apps/v1/namespaces/kube-system/daemonsets/kube-proxy", `{"spec":{"template":{"spec":{"containers":[{"name":"kube-proxy","image":"mine:v1"}]}}}}`)
	b.expect("an image of others", b.sync(true, want...), left[0],
		`left DaemonSet/kube-system/kube-proxy.spec.template.spec.containers[name="kube-proxy"].image (kubectl-edit)`, left[1])
}

// withoutEvidence: what another machine serves is not gone, and as long as one says nothing, what is gone stays.
func (b *bootstrapped) withoutEvidence(want []string) {
	b.Helper()

	gone := manifests.Key{Kind: "ConfigMap", Namespace: "kube-system", Name: "gone"}

	if got := b.compare(false, manifests.Wanted{Objects: b.objects(want...), Others: []manifests.Key{gone}}); strings.Contains(got, gone.String()) {
		b.Errorf("another machine serves it: %s", got)
	}

	listed, versions := b.inventory(), b.versions()

	b.expect("without evidence", b.compare(true, manifests.Wanted{Uncertain: "cp-1: no answer"}),
		"withheld ConfigMap/kube-system/gone: cp-1: no answer", "withheld ConfigMap/kube-system/kept: cp-1: no answer",
		"withheld ConfigMap/kube-system/taken: cp-1: no answer", "withheld ConfigMap/kube-system/took: cp-1: no answer",
		"withheld Deployment/kube-system/coredns: cp-1: no answer", "withheld Namespace/olds: cp-1: no answer")
	b.expect("everything stays", b.versions(), versions)
	b.expect("the inventory stays", strings.Join(b.inventory(), "\n"), listed...)
}

// outcome checks what a cluster has once everything is applied.
func (b *bootstrapped) outcome() {
	b.Helper()

	proxy, err := b.c.AppsV1().DaemonSets("kube-system").Get(b.Context(), "kube-proxy", metav1.GetOptions{})
	if err != nil || proxy.Spec.Template.Spec.Containers[0].Image != "kube-proxy:v1.36.2" || len(proxy.Annotations["config.k8s.io/owning-inventory"]) > 0 {
		b.Errorf("kube-proxy: %+v, %v", proxy, err)
	}

	d, err := b.c.AppsV1().Deployments("kube-system").Get(b.Context(), "coredns", metav1.GetOptions{})
	if err != nil || *d.Spec.Replicas != 5 || d.Spec.Template.Spec.Containers[0].Image != "coredns:v1.14" ||
		len(d.Spec.Template.Spec.Volumes) > 0 || d.Annotations["config.k8s.io/owning-inventory"] != manifests.InventoryName {
		b.Errorf("CoreDNS: %+v, %v", d, err)
	}

	text, err := b.c.CoreV1().ConfigMaps("kube-system").Get(b.Context(), "coredns", metav1.GetOptions{})
	if err != nil || text.Data["Corefile"] != "edited" {
		b.Errorf("the Corefile: %v, %v", text.Data, err)
	}

	if _, err := b.c.CoreV1().ConfigMaps("kube-system").Get(b.Context(), "gone", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		b.Errorf("what the manifests no longer have is there: %v", err)
	}

	if _, err := b.c.RbacV1().ClusterRoles().Get(b.Context(), "m:reader", metav1.GetOptions{}); err != nil {
		b.Errorf("it has an older entry with a namespace: %v", err)
	}

	for _, name := range []string{"kept", "taken", "took"} {
		if _, err := b.c.CoreV1().ConfigMaps("kube-system").Get(b.Context(), name, metav1.GetOptions{}); err != nil {
			b.Error(err)
		}
	}

	b.expect("the inventory", strings.Join(b.inventory(), "\n"), "_extra__Namespace", "_m__reader_rbac.authorization.k8s.io_ClusterRole",
		"_things.m.example.com_apiextensions.k8s.io_CustomResourceDefinition", "extra_t_m.example.com_Thing", "extra_token__Secret",
		"kube-system_coredns__ConfigMap", "kube-system_coredns_apps_Deployment", "kube-system_kube-proxy_apps_DaemonSet")
}
