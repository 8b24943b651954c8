package kubernetescluster_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/tools/events"
	testclock "k8s.io/utils/clock/testing"
	"pgregory.net/rapid"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/condition"
	"github.com/talos-operator/talos-operator/internal/controller/kubernetescluster"
	"github.com/talos-operator/talos-operator/internal/manifest"
)

// below is what is true of a control plane or of a group, and whether its controller sees it.
type below struct{ ready, hidden, stalled bool }

// fleet is a KubernetesCluster that bad things happen to, and what is true of it.
type fleet struct {
	*rapid.T

	ctx   context.Context //nolint:containedctx // that of the test
	api   client.Client
	r     *kubernetescluster.Reconciler
	clock *testclock.FakePassiveClock
	dir   string
	below map[string]below
	// lag: the controllers below have not got to what changed yet.
	lag    bool
	broken map[string]bool
	// blocked: the manifests cannot be written.
	refused, held, paused, blocked bool
}

var claimed = client.ObjectKey{Namespace: "ns", Name: "c"}

var errAway = errors.New("the API server is away")

func kindOf(o any) string {
	return strings.TrimSuffix(reflect.TypeOf(o).Elem().Name(), "List")
}

func newFleet(ctx context.Context, t *rapid.T, dir string) *fleet {
	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), vitistackv1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}

	e := &fleet{
		T: t, ctx: ctx, dir: dir, below: map[string]below{}, broken: map[string]bool{},
		clock: testclock.NewFakePassiveClock(time.Unix(1_800_000_000, 0)),
	}

	if err := os.RemoveAll(filepath.Join(dir, "c")); err != nil {
		t.Fatal(err)
	}

	c := &vitistackv1alpha1.KubernetesCluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", UID: "c", Generation: 1},
		Spec: vitistackv1alpha1.KubernetesClusterSpec{
			KubernetesVersion: "v1.36.2", TalosVersion: "v1.13.9", ClusterEndpoint: "https://10.0.0.1:6443",
			ControlPlane: vitistackv1alpha1.ControlPlaneTopology{Replicas: 1},
			Workers:      []vitistackv1alpha1.WorkerGroup{{Name: "a", Replicas: 1}, {Name: "b", Replicas: 1}},
		},
	}

	kinds := []client.Object{c, &v1alpha1.TalosControlPlane{}, &v1alpha1.TalosWorker{}, &v1alpha1.TalosMachine{}}
	api := fake.NewClientBuilder().WithScheme(scheme).WithTypeConverters(managedfields.NewDeducedTypeConverter()).
		WithStatusSubresource(kinds...).WithObjects(c).Build()
	e.api = api

	cut := interceptor.NewClient(api, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if e.broken["list "+kindOf(list)] {
				return errAway
			}

			return c.List(ctx, list, opts...)
		},
		Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			if e.broken["apply"] {
				return errAway
			}

			return e.apply(c, o, opts)
		},
	})
	e.r = &kubernetescluster.Reconciler{
		Client: cut, Reader: cut, Recorder: events.NewFakeRecorder(10000), Clock: e.clock, Resync: time.Minute,
		Manifests: &manifest.Store{Root: dir, Count: func(string, string) {}},
	}

	return e
}

func (e *fleet) must(err error) {
	if client.IgnoreNotFound(err) != nil {
		e.Fatal(err)
	}
}

func (e *fleet) cluster() *vitistackv1alpha1.KubernetesCluster {
	c := &vitistackv1alpha1.KubernetesCluster{}
	e.must(e.api.Get(e.ctx, claimed, c))

	return c
}

// edit changes the cluster as a person does.
func (e *fleet) edit(change func(*vitistackv1alpha1.KubernetesCluster)) {
	c := e.cluster()
	change(c)
	c.Generation++
	e.must(e.api.Update(e.ctx, c))
}

// apply adds to the fake what an API server does: a UID, and a generation that counts the changes of the spec.
func (e *fleet) apply(c client.Client, config runtime.ApplyConfiguration, opts []client.ApplyOption) error {
	of := config.(interface {
		client.Object
		GroupVersionKind() schema.GroupVersionKind
	})
	before, after := &unstructured.Unstructured{}, &unstructured.Unstructured{}
	before.SetGroupVersionKind(of.GroupVersionKind())
	after.SetGroupVersionKind(of.GroupVersionKind())

	key := types.NamespacedName{Namespace: of.GetNamespace(), Name: of.GetName()}
	e.must(c.Get(e.ctx, key, before))

	if err := c.Apply(e.ctx, config, opts...); err != nil {
		return err
	}

	e.must(c.Get(e.ctx, key, after))

	if before.GetUID() == "" || !equality.Semantic.DeepEqual(before.Object["spec"], after.Object["spec"]) {
		after.SetUID(types.UID(after.GetKind() + after.GetName()))
		after.SetGeneration(before.GetGeneration() + 1)
		e.must(c.Update(e.ctx, after))
	}

	return nil
}

// report has the controllers below tell what is so.
func (e *fleet) report(o client.Object, conditions *[]metav1.Condition) {
	is, key := e.below[o.GetName()], metav1.ConditionFalse

	switch {
	case is.hidden:
		key = metav1.ConditionUnknown
	case is.fine():
		key = metav1.ConditionTrue
	}

	*conditions = []metav1.Condition{{
		Type: v1alpha1.ConditionReady, Status: key, Reason: "Told", ObservedGeneration: o.GetGeneration(),
	}}

	if is.stalled {
		*conditions = append(*conditions, metav1.Condition{
			Type: v1alpha1.ConditionStalled, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonConfigRefused,
		})
	}

	e.must(e.api.Status().Update(e.ctx, o))
}

func (e *fleet) pass() {
	planes, groups := &v1alpha1.TalosControlPlaneList{}, &v1alpha1.TalosWorkerList{}
	e.must(e.api.List(e.ctx, planes))
	e.must(e.api.List(e.ctx, groups))

	for i := range planes.Items {
		switch cp := &planes.Items[i]; {
		case e.lag:
		case cp.DeletionTimestamp.IsZero():
			e.report(cp, &cp.Status.Conditions)
		default: // its controller is done with it
			cp.Finalizers = nil
			e.must(e.api.Update(e.ctx, cp))
		}
	}

	for i := range groups.Items {
		g := &groups.Items[i]
		if e.lag {
			continue
		}

		if !g.DeletionTimestamp.IsZero() { // its controller is done with it
			g.Finalizers = nil
			e.must(e.api.Update(e.ctx, g))

			continue
		}

		// Of a group that is not observed, the numbers are those of the last time.
		if is := e.below[g.Name]; !is.hidden {
			if g.Status.ReadyReplicas = 0; is.ready {
				g.Status.ReadyReplicas = int32(len(g.Spec.Machines))
			}
		}

		e.report(g, &g.Status.Conditions)
	}

	// What fails is broken by the test; the conditions tell.
	_, _ = e.r.Reconcile(e.ctx, ctrl.Request{NamespacedName: claimed})
}

// happen is one event.
func (e *fleet) happen() {
	switch rapid.SampledFrom([]string{
		"below", "below", "below", "workers", "workers", "version", "refuse", "delete", "hold", "break", "mend", "files", "restart",
	}).Draw(e.T, "event") {
	case "below":
		e.below[rapid.SampledFrom([]string{"c", "c-a", "c-b"}).Draw(e.T, "object")] = below{
			ready: rapid.Bool().Draw(e.T, "ready"), hidden: rapid.IntRange(0, 3).Draw(e.T, "hidden") == 0,
			stalled: rapid.IntRange(0, 3).Draw(e.T, "stalled") == 0,
		}
	case "workers":
		name := rapid.SampledFrom([]string{"a", "b"}).Draw(e.T, "group")
		replicas := rapid.Int32Range(0, 3).Draw(e.T, "replicas")

		e.edit(func(c *vitistackv1alpha1.KubernetesCluster) {
			c.Spec.Workers = slices.DeleteFunc(c.Spec.Workers, func(g vitistackv1alpha1.WorkerGroup) bool { return g.Name == name })
			if replicas > 0 {
				c.Spec.Workers = append(c.Spec.Workers, vitistackv1alpha1.WorkerGroup{Name: name, Replicas: replicas})
			}
		})
	case "version":
		e.edit(func(c *vitistackv1alpha1.KubernetesCluster) {
			c.Spec.TalosVersion = map[string]string{"v1.13.9": "v1.13.8", "v1.13.8": "v1.13.9"}[c.Spec.TalosVersion]
		})
	case "refuse":
		e.refused = !e.refused
		e.edit(func(c *vitistackv1alpha1.KubernetesCluster) {
			if c.Spec.ClusterEndpoint = "https://10.0.0.1:6443"; e.refused {
				c.Spec.ClusterEndpoint = "nowhere"
			}
		})
	case "delete":
		o := rapid.SampledFrom([]client.Object{
			&vitistackv1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "c-a-0"}},
			&v1alpha1.TalosControlPlane{ObjectMeta: metav1.ObjectMeta{Name: "c"}},
			&v1alpha1.TalosWorker{ObjectMeta: metav1.ObjectMeta{Name: "c-a"}},
		}).Draw(e.T, "deleted")
		o.SetNamespace("ns")
		e.must(e.api.Delete(e.ctx, o))
	case "hold":
		hold := rapid.SampledFrom([]string{"", "paused", "DryRun"}).Draw(e.T, "hold")
		e.held, e.paused = hold != "", hold == "paused"
		e.edit(func(c *vitistackv1alpha1.KubernetesCluster) {
			c.Annotations = map[string]map[string]string{
				"paused": {v1alpha1.PausedAnnotation: "true"}, "DryRun": {v1alpha1.ReconcileModeAnnotation: "DryRun"},
			}[hold]
		})
	case "break":
		e.broken[rapid.SampledFrom([]string{
			"apply", "list Machine", "list TalosControlPlane", "list TalosWorker", "list TalosMachine",
		}).Draw(e.T, "call")] = true
	case "mend":
		clear(e.broken)
	case "files":
		e.must(os.RemoveAll(filepath.Join(e.dir, "c")))

		if e.blocked = rapid.Bool().Draw(e.T, "blocked"); e.blocked {
			e.must(os.WriteFile(filepath.Join(e.dir, "c"), nil, 0o600))
		}
	case "restart":
		e.r = &kubernetescluster.Reconciler{
			Client: e.r.Client, Reader: e.r.Reader, Recorder: e.r.Recorder, Clock: e.clock, Resync: e.r.Resync,
			Manifests: &manifest.Store{Root: e.dir, Count: func(string, string) {}},
		}
	}
}

// complete: the control plane and every group have as many machines as the spec says, and all of them are ready. A
// version that is held back takes nothing from that.
func (e *fleet) complete() bool {
	cp := &v1alpha1.TalosControlPlane{}
	if err := e.api.Get(e.ctx, claimed, cp); err != nil || !e.below["c"].fine() || len(cp.Spec.Machines) != 1 {
		return false
	}

	c := e.cluster()

	return !slices.ContainsFunc(c.Spec.Workers, func(g vitistackv1alpha1.WorkerGroup) bool {
		w := &v1alpha1.TalosWorker{}
		err := e.api.Get(e.ctx, client.ObjectKey{Namespace: "ns", Name: "c-" + g.Name}, w)

		return err != nil || !e.below[w.Name].fine() || len(w.Spec.Machines) != int(g.Replicas)
	}) && (e.held || cp.Spec.TalosVersion == c.Spec.TalosVersion)
}

func (b below) fine() bool { return b.ready && !b.hidden && !b.stalled }

// machines: those that the spec asks for exist.
func (e *fleet) machines() bool {
	list := &vitistackv1alpha1.MachineList{}
	e.must(e.api.List(e.ctx, list))

	count := map[string]int32{}
	for _, m := range list.Items {
		count[m.Labels[vitistackv1alpha1.WorkerGroupLabel]]++
	}

	return count[""] == 1 && !slices.ContainsFunc(e.cluster().Spec.Workers, func(g vitistackv1alpha1.WorkerGroup) bool {
		return count[g.Name] < g.Replicas
	})
}

// files: there is a manifest of each Machine.
func (e *fleet) files() bool {
	list := &vitistackv1alpha1.MachineList{}
	e.must(e.api.List(e.ctx, list))

	return !slices.ContainsFunc(list.Items, func(m vitistackv1alpha1.Machine) bool {
		_, err := os.Stat(filepath.Join(e.dir, "c", m.Name+".yaml"))

		return err != nil && !slices.Contains(e.leaving(), m.Name)
	})
}

// leaving are the Machines that are to go.
func (e *fleet) leaving() []string {
	c, out := e.cluster(), []string{"c-a-0", "c-a-1", "c-a-2", "c-b-0", "c-b-1", "c-b-2"}

	return slices.DeleteFunc(out, func(name string) bool {
		return slices.ContainsFunc(c.Spec.Workers, func(g vitistackv1alpha1.WorkerGroup) bool {
			return strings.HasPrefix(name, "c-"+g.Name+"-") && g.Replicas == 3
		})
	})
}

// check holds the conditions against what is so.
func (e *fleet) check() {
	c := e.cluster()
	healthy := len(e.broken) == 0 && !e.refused && !e.held

	for kind, is := range map[string]bool{
		vitistackv1alpha1.ConditionReady: e.complete() && !e.refused && !e.paused, vitistackv1alpha1.ConditionTopologyValid: !e.refused,
		vitistackv1alpha1.ConditionMachinesCreated: e.machines(), vitistackv1alpha1.ConditionFilesGenerated: e.files(),
	} {
		got := meta.FindStatusCondition(c.Status.Conditions, kind)

		switch {
		case got == nil:
			e.Fatalf("%s is missing", kind)
		case got.Status == metav1.ConditionTrue && !is:
			e.Fatalf("%s is claimed: %+v", kind, got)
		case got.Status != metav1.ConditionTrue && is && healthy && kind != vitistackv1alpha1.ConditionFilesGenerated:
			e.Fatalf("%s is not told: %+v", kind, got)
		}
	}

	blind := slices.ContainsFunc([]string{"list Machine", "list TalosControlPlane", "list TalosWorker"}, func(call string) bool {
		return e.broken[call]
	})
	if ready := meta.FindStatusCondition(c.Status.Conditions, vitistackv1alpha1.ConditionReady); blind &&
		ready.Status == metav1.ConditionTrue {
		e.Fatalf("Ready is claimed by a controller that cannot know: %+v", ready)
	}
}

// checkSeen: a spec that some object below was changed for, and has not observed yet, is not claimed to be done.
func (e *fleet) checkSeen() {
	c := e.cluster()

	ready := meta.FindStatusCondition(c.Status.Conditions, vitistackv1alpha1.ConditionReady)
	if ready.Status != metav1.ConditionTrue || ready.ObservedGeneration != c.Generation {
		return
	}

	planes, groups := &v1alpha1.TalosControlPlaneList{}, &v1alpha1.TalosWorkerList{}
	e.must(e.api.List(e.ctx, planes))
	e.must(e.api.List(e.ctx, groups))

	told := map[client.Object][]metav1.Condition{}
	for i := range planes.Items {
		told[&planes.Items[i]] = planes.Items[i].Status.Conditions
	}

	for i := range groups.Items {
		told[&groups.Items[i]] = groups.Items[i].Status.Conditions
	}

	for o, conditions := range told {
		if of := meta.FindStatusCondition(conditions, v1alpha1.ConditionReady); of == nil || of.ObservedGeneration < o.GetGeneration() {
			e.Fatalf("Ready is claimed, and %s has not seen its spec: %+v", o.GetName(), ready)
		}
	}
}

// TestNoConditionLies: whatever becomes of the objects below, of the spec, of the files and of the API server, in any
// order, no condition of a cluster claims within its bound what is not so.
func TestNoConditionLies(t *testing.T) {
	dir := t.TempDir()

	rapid.Check(t, func(rt *rapid.T) {
		e := newFleet(t.Context(), rt, dir)
		e.below["c"], e.below["c-a"], e.below["c-b"] = below{ready: true}, below{ready: true}, below{ready: true}

		for range 3 {
			e.pass()
		}

		e.check()

		for range rapid.IntRange(1, 3).Draw(rt, "steps") {
			for range rapid.IntRange(1, 3).Draw(rt, "events") {
				e.happen()
			}

			// What just changed is not claimed to be done before those below have observed it.
			e.lag = true
			e.pass()
			e.checkSeen()

			e.lag = false
			e.pass()
			e.pass()

			e.clock.SetTime(e.clock.Now().Add(condition.Bound))
			e.pass()
			e.check()
		}
	})
}
