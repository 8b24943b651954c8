package kubernetescluster_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/metrics"
)

// names of the objects of a kind that a cluster controls.
func (b *bench) names(list client.ObjectList, owner client.Object) []string {
	b.t.Helper()

	if err := b.admin.List(b.t.Context(), list, client.InNamespace(b.ns)); err != nil {
		b.t.Fatal(err)
	}

	items, err := meta.ExtractList(list)
	if err != nil {
		b.t.Fatal(err)
	}

	var out []string

	for _, item := range items {
		if o, ok := item.(client.Object); ok && metav1.IsControlledBy(o, owner) {
			out = append(out, o.GetName()+"@"+o.GetResourceVersion())
		}
	}

	slices.Sort(out)

	return out
}

func (b *bench) children(c client.Object) []string {
	return slices.Concat(b.names(&vitistackv1alpha1.MachineList{}, c), b.names(&v1alpha1.TalosControlPlaneList{}, c),
		b.names(&v1alpha1.TalosWorkerList{}, c))
}

func (b *bench) condition(c *vitistackv1alpha1.KubernetesCluster, kind string, status metav1.ConditionStatus, text string) {
	b.t.Helper()

	got := meta.FindStatusCondition(c.Status.Conditions, kind)
	if got == nil || got.Status != status || !strings.Contains(got.Reason+": "+got.Message, text) {
		b.t.Errorf("%s: condition %s is %+v, want %s with %q", c.Name, kind, got, status, text)
	}
}

// TestController runs against one API server; every subtest has a namespace of its own.
func TestController(t *testing.T) {
	for name, run := range map[string]func(*bench){
		"expansion": (*bench).expansion, "foreign": (*bench).foreign, "invalid": (*bench).invalid, "deletion": (*bench).deletion,
		"shrinking": (*bench).shrinking, "contents": (*bench).contents, "drift": (*bench).drift,
		"occupied": (*bench).occupied, "twins": (*bench).twins, "material": (*bench).material,
		"summary": (*bench).summary, "refused": (*bench).refused, "held": (*bench).held, "blocked": (*bench).blocked,
		"modes": (*bench).modes, "spares": (*bench).spares, "handed": (*bench).handed,
		"refusedBelow": (*bench).refusedBelow, "quota": (*bench).quota, "again": (*bench).again,
		"installDisk": (*bench).installDisk, "lowerCase": (*bench).lowerCase,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(newBench(t))
		})
	}
}

func (b *bench) expansion() {
	c := b.create("grown", good)
	b.reconcile(c)

	var names []string
	for _, child := range b.children(c) {
		name, _, _ := strings.Cut(child, "@")
		names = append(names, name)
	}

	want := []string{"grown-cp-0", "grown-cp-1", "grown-cp-2", "grown-web-0", "grown-web-1", "grown", "grown-web"}
	if diff := cmp.Diff(want, names); diff != "" {
		b.t.Errorf("children (-want +got):\n%s", diff)
	}

	m := &vitistackv1alpha1.Machine{}
	if err := b.admin.Get(b.t.Context(), client.ObjectKey{Namespace: b.ns, Name: "grown-web-1"}, m); err != nil {
		b.t.Fatal(err)
	}

	labels := map[string]string{
		vitistackv1alpha1.ClusterNameLabel: "grown", vitistackv1alpha1.RoleLabel: "worker",
		vitistackv1alpha1.WorkerGroupLabel: "web",
	}
	if diff := cmp.Diff(labels, m.Labels); diff != "" {
		b.t.Errorf("labels (-want +got):\n%s", diff)
	}

	if !slices.Contains(c.Finalizers, vitistackv1alpha1.ClusterFinalizer) || c.Status.MachineCount != 5 ||
		c.Status.Phase != vitistackv1alpha1.PhaseProvisioning || c.Status.ObservedGeneration != c.Generation {
		b.t.Errorf("finalizers %v, status %+v", c.Finalizers, c.Status)
	}

	b.condition(c, vitistackv1alpha1.ConditionTopologyValid, metav1.ConditionTrue, "")
	b.condition(c, vitistackv1alpha1.ConditionMachinesCreated, metav1.ConditionTrue, "5 machines")
	b.condition(c, vitistackv1alpha1.ConditionFilesGenerated, metav1.ConditionTrue, "")
	b.condition(c, vitistackv1alpha1.ConditionReady, metav1.ConditionFalse, "")

	if files, err := filepath.Glob(filepath.Join(b.dir, "grown", "*")); err != nil || len(files) < 5 {
		b.t.Errorf("files %v, %v", files, err)
	}

	// Another pass, later, writes nothing at all.
	before := append(b.children(c), c.ResourceVersion)

	b.clock.SetTime(b.clock.Now().Add(time.Hour))
	b.reconcile(c)

	if diff := cmp.Diff(before, append(b.children(c), c.ResourceVersion)); diff != "" {
		b.t.Errorf("a pass without a change wrote (-before +after):\n%s", diff)
	}

	// A grown group gets its machines; the others stay as they are.
	c.Spec.Workers[0].Replicas = 3
	if err := b.admin.Update(b.t.Context(), c); err != nil {
		b.t.Fatal(err)
	}

	b.reconcile(c)

	if after := b.children(c); len(after) != 8 || !slices.Contains(after, before[0]) || c.Status.MachineCount != 6 {
		b.t.Errorf("after the growth: %v, %d machines", after, c.Status.MachineCount)
	}
}

// foreign: what another owner made keeps its name, its content and its owner.
func (b *bench) foreign() {
	theirs := &vitistackv1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "shared-cp-1", Namespace: b.ns}}
	if err := b.admin.Create(b.t.Context(), theirs); err != nil {
		b.t.Fatal(err)
	}

	c := b.create("shared", good)
	b.reconcile(c)
	b.condition(c, vitistackv1alpha1.ConditionReady, metav1.ConditionFalse, "shared-cp-1 exists and is controlled by another owner")
	b.condition(c, vitistackv1alpha1.ConditionMachinesCreated, metav1.ConditionFalse, "shared-cp-1")

	if err := b.admin.Delete(b.t.Context(), c); err != nil {
		b.t.Fatal(err)
	}

	b.reconcile(c)

	after := &vitistackv1alpha1.Machine{}
	if err := b.admin.Get(b.t.Context(), client.ObjectKeyFromObject(theirs), after); err != nil ||
		after.ResourceVersion != theirs.ResourceVersion {
		b.t.Errorf("somebody else's Machine was touched (%v)", err)
	}
}

// invalid: a spec that breaks a rule makes nothing, says why, and works once it is corrected.
func (b *bench) invalid() {
	c := b.create("broken", strings.Replace(good, "v1.13.9", "v1.2.0", 1))
	b.reconcile(c)
	b.condition(c, vitistackv1alpha1.ConditionTopologyValid, metav1.ConditionFalse, "v1.2.0")
	b.condition(c, v1alpha1.ConditionStalled, metav1.ConditionTrue, "v1.2.0")

	if c.Status.Phase != vitistackv1alpha1.PhaseFailed || len(b.children(c)) != 0 {
		b.t.Errorf("phase %s, children %v", c.Status.Phase, b.children(c))
	}

	if !b.warned("v1.2.0") {
		b.t.Error("no event says what is wrong")
	}

	c.Spec.TalosVersion = "v1.13.9"
	if err := b.admin.Update(b.t.Context(), c); err != nil {
		b.t.Fatal(err)
	}

	b.reconcile(c)
	b.condition(c, vitistackv1alpha1.ConditionTopologyValid, metav1.ConditionTrue, "")

	if c.Status.Phase != vitistackv1alpha1.PhaseProvisioning || len(b.children(c)) != 7 ||
		meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionStalled) != nil {
		b.t.Errorf("after the repair: phase %s, children %v", c.Status.Phase, b.children(c))
	}
}

func (b *bench) warned(text string) bool {
	for {
		select {
		case e := <-b.events.Events:
			if strings.HasPrefix(e, "Warning") && strings.Contains(e, text) {
				return true
			}
		default:
			return false
		}
	}
}

// deletion: workers, then the control plane, then the Machines, then the files.
func (b *bench) deletion() {
	c := b.create("ended", good)
	b.reconcile(c)

	// Those that are responsible for them hold them with finalizers of their own.
	group, plane := &v1alpha1.TalosWorker{}, &v1alpha1.TalosControlPlane{}
	b.hold(group, "ended-web")
	b.hold(plane, "ended")

	if err := b.admin.Delete(b.t.Context(), c); err != nil {
		b.t.Fatal(err)
	}

	steps := []struct {
		waitsFor string
		release  client.Object
		left     int
	}{{"waiting for the workers", group, 7}, {"waiting for the control plane", plane, 6}}

	for _, step := range steps {
		b.reconcile(c)
		b.condition(c, vitistackv1alpha1.ConditionReady, metav1.ConditionFalse, step.waitsFor)

		if got := b.children(c); len(got) != step.left {
			b.t.Errorf("%s: %v", step.waitsFor, got)
		}

		b.release(step.release)
	}

	b.reconcile(c)
	b.reconcile(c)

	if err := b.admin.Get(b.t.Context(), client.ObjectKeyFromObject(c), c); !apierrors.IsNotFound(err) {
		b.t.Errorf("the cluster is still there: %v", err)
	}

	if _, err := os.Stat(filepath.Join(b.dir, "ended")); !os.IsNotExist(err) {
		b.t.Errorf("the files are still there: %v", err)
	}

	if n := metrics.Machines.DeletePartialMatch(prometheus.Labels{"cluster": "ended"}); n > 0 {
		b.t.Errorf("%d series count machines of the cluster", n)
	}
}

// shrinking: the machine that a person chose goes first, its Machine only once no TalosMachine runs on it; what stays
// keeps its name, a grown group fills the gap, and a group that leaves the spec goes altogether.
func (b *bench) shrinking() {
	c := b.create("shrunk", strings.Replace(good, "replicas: 2", "replicas: 3", 1))
	b.reconcile(c)

	m := &vitistackv1alpha1.Machine{}
	node := &v1alpha1.TalosMachine{
		ObjectMeta: metav1.ObjectMeta{
			Name: "shrunk-web-1", Namespace: b.ns, Labels: map[string]string{v1alpha1.WorkerLabel: "shrunk-web"},
		},
		Spec: v1alpha1.TalosMachineSpec{
			ControlPlaneRef: v1alpha1.ObjectReference{Name: "shrunk"}, Role: v1alpha1.RoleWorker,
			WorkerRef: &v1alpha1.ObjectReference{Name: "shrunk-web"},
		},
	}

	if err := b.admin.Create(b.t.Context(), node); err != nil {
		b.t.Fatal(err)
	}

	if err := b.admin.Get(b.t.Context(), client.ObjectKeyFromObject(node), m); err != nil {
		b.t.Fatal(err)
	}

	metav1.SetMetaDataAnnotation(&m.ObjectMeta, vitistackv1alpha1.DeleteAnnotation, "true")

	if err := b.admin.Update(b.t.Context(), m); err != nil {
		b.t.Fatal(err)
	}

	b.replicas(c, 2)
	b.machines(c, "shrunk-web-0", "shrunk-web-1", "shrunk-web-2")

	if got := b.listed("shrunk-web"); !slices.Equal(got, []string{"shrunk-web-0", "shrunk-web-2"}) {
		b.t.Errorf("the group lists %v", got)
	}

	if err := b.admin.Delete(b.t.Context(), node); err != nil {
		b.t.Fatal(err)
	}

	b.reconcile(c)
	b.machines(c, "shrunk-web-0", "shrunk-web-2")
	b.replicas(c, 3)
	b.machines(c, "shrunk-web-0", "shrunk-web-1", "shrunk-web-2")

	c.Spec.Workers = nil
	if err := b.admin.Update(b.t.Context(), c); err != nil {
		b.t.Fatal(err)
	}

	group := &v1alpha1.TalosWorker{}

	b.reconcile(c)
	b.get(group, "shrunk-web")
	b.release(group) // as its controller does, once its machines are out
	b.reconcile(c)
	b.machines(c)

	err := b.admin.Get(b.t.Context(), client.ObjectKeyFromObject(group), group)
	if !apierrors.IsNotFound(err) {
		b.t.Errorf("the group that left the spec: %v", err)
	}
}

func (b *bench) replicas(c *vitistackv1alpha1.KubernetesCluster, workers int32) {
	b.t.Helper()

	c.Spec.Workers[0].Replicas = workers
	if err := b.admin.Update(b.t.Context(), c); err != nil {
		b.t.Fatal(err)
	}

	b.reconcile(c)
}

// machines compares the worker Machines of a cluster.
func (b *bench) machines(c client.Object, want ...string) {
	b.t.Helper()

	var got []string

	for _, name := range b.names(&vitistackv1alpha1.MachineList{}, c) {
		if name, _, _ = strings.Cut(name, "@"); strings.Contains(name, "-web-") {
			got = append(got, name)
		}
	}

	if diff := cmp.Diff(want, got); diff != "" {
		b.t.Errorf("worker Machines (-want +got):\n%s", diff)
	}
}

func (b *bench) listed(group string) []string {
	b.t.Helper()

	w := &v1alpha1.TalosWorker{}
	if err := b.admin.Get(b.t.Context(), client.ObjectKey{Namespace: b.ns, Name: group}, w); err != nil {
		b.t.Fatal(err)
	}

	var out []string
	for _, e := range w.Spec.Machines {
		out = append(out, e.Name)
	}

	slices.Sort(out)

	return out
}

func (b *bench) hold(o client.Object, name string) {
	b.t.Helper()
	b.setFinalizers(o, name, []string{"example.org/hold"})
}

func (b *bench) release(o client.Object) {
	b.t.Helper()
	b.setFinalizers(o, o.GetName(), nil)
}

func (b *bench) setFinalizers(o client.Object, name string, finalizers []string) {
	b.t.Helper()

	ctx := context.Background()
	if err := b.admin.Get(ctx, client.ObjectKey{Namespace: b.ns, Name: name}, o); err != nil {
		b.t.Fatal(err)
	}

	o.SetFinalizers(finalizers)

	if err := b.admin.Update(ctx, o); err != nil {
		b.t.Fatal(err)
	}
}
