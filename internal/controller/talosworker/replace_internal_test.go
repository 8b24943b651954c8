package talosworker

import (
	"context"
	"maps"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/talos"
	"github.com/talos-operator/talos-operator/lab/node"
	"github.com/talos-operator/talos-operator/test/loopback"
	"github.com/talos-operator/talos-operator/test/pki"
	"github.com/talos-operator/talos-operator/test/wait"
)

// spare boots a machine in maintenance mode, and returns its address.
func spare(t *testing.T) string {
	t.Helper()

	n, err := node.New(node.Options{Name: "s", Address: loopback.Address(t), Dir: t.TempDir(), Modelled: true})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(n.Kill)

	if err := n.PowerOn(t.Context()); err != nil {
		t.Fatal(err)
	}

	wait.For(t, "maintenance mode", func(context.Context) error {
		return wait.True(n.Status().Stage == "maintenance")
	})

	return n.Address()
}

// found makes the state of the cluster, with the replacements of its groups.
func (s *shop) found(replaced map[string]map[string]string) {
	s.Helper()

	bundle, err := pki.New(s.r.Clock.Now())
	if err != nil {
		s.Fatal(err)
	}

	state := clusterstate.NewState(bundle, clusterstate.BundleConfig{ClusterName: "c"}, "")
	state.Runtime.ReplacedWorkers = replaced

	if _, err := s.r.States.Create(s.Context(), types.NamespacedName{Namespace: "ns", Name: "c"}, state); err != nil {
		s.Fatal(err)
	}
}

// exists tells whether there is a TalosMachine.
func (s *shop) exists(name string) bool {
	s.Helper()

	err := s.c.Get(s.Context(), types.NamespacedName{Namespace: "ns", Name: name}, &v1alpha1.TalosMachine{})
	if client.IgnoreNotFound(err) != nil {
		s.Fatal(err)
	}

	return err == nil
}

// replaced is what is recorded of a group.
func (s *shop) replaced(group string) map[string]string {
	s.Helper()

	held, err := s.r.States.Load(s.Context(), types.NamespacedName{Namespace: "ns", Name: "c"})
	if err != nil {
		s.Fatal(err)
	}

	return held.State.Runtime.ReplacedWorkers[group]
}

// edit changes the spec of the group.
func (s *shop) edit(change func(*v1alpha1.TalosWorker)) {
	s.Helper()

	w, _ := s.worker()
	change(w)

	if err := s.c.Update(s.Context(), w); err != nil {
		s.Fatal(err)
	}
}

// TestReplace: a spare takes the place of a machine once no other one is being taken out and the record says so, and is
// configured only after that machine is gone. A record whose spare is no longer listed ends; those of other groups stay.
func TestReplace(t *testing.T) {
	t.Parallel()

	w0 := owned("w-0")
	w0.Annotations = map[string]string{v1alpha1.ReplaceAnnotation: "s"}
	s := newShop(t, []string{"w-0"}, w0, owned("w-9"))

	s.r.Nodes = talos.NewPool()
	t.Cleanup(s.r.Nodes.Close)

	others := map[string]string{"x-0": "y"}
	s.found(map[string]map[string]string{"x": others})

	address := spare(t)

	s.edit(func(w *v1alpha1.TalosWorker) {
		w.Spec.Spares = []v1alpha1.MachineEntry{{Name: "s", Address: address}}
	})
	s.pass()

	if got := s.replaced("w"); !s.leaves("w-9") || len(got) != 0 {
		t.Fatalf("while w-9 is taken out, %v is recorded", got)
	}

	s.end("w-9")

	if res := s.pass(); res.RequeueAfter != pollReplaced || !maps.Equal(s.replaced("w"), map[string]string{"w-0": "s"}) {
		t.Fatalf("%v is recorded, and the list is made anew after %s", s.replaced("w"), res.RequeueAfter)
	}

	if !s.stays("w-0") {
		t.Error("w-0 is taken out by the pass that records its replacement")
	}

	s.pass()

	if !s.leaves("w-0") || s.exists("s") {
		t.Errorf("w-0 is not taken out, or s is configured before that (%t)", s.exists("s"))
	}

	s.end("w-0")
	s.pass()

	if got := s.machine("s"); got.Spec.Address != address {
		t.Errorf("s has the address %q", got.Spec.Address)
	}

	want := []v1alpha1.Replacement{{Machine: "w-0", Spare: "s"}}
	if w, _ := s.worker(); !slices.Equal(w.Status.Replacements, want) {
		t.Errorf("the status tells of %v", w.Status.Replacements)
	}

	s.edit(func(w *v1alpha1.TalosWorker) { w.Spec.Spares = nil })

	if res := s.pass(); res.RequeueAfter != pollReplaced || len(s.replaced("w")) != 0 || !maps.Equal(s.replaced("x"), others) {
		t.Errorf("without the spare, %v is recorded, and %v of the other group", s.replaced("w"), s.replaced("x"))
	}
}

// TestUnfitSpare: a machine whose spare cannot be used is not replaced, and the group says why.
func TestUnfitSpare(t *testing.T) {
	t.Parallel()

	w0 := owned("w-0")
	w0.Annotations = map[string]string{v1alpha1.ReplaceAnnotation: "s"}
	s := newShop(t, []string{"w-0"}, w0)

	s.found(nil)
	s.edit(func(w *v1alpha1.TalosWorker) {
		w.Spec.Spares = []v1alpha1.MachineEntry{{Name: "s", MachineRef: &v1alpha1.ObjectReference{Name: "infra"}}}
	})
	s.pass()

	const want = "w-0 is to be replaced, and no spare machine is suitable: s has no address yet"
	if got := s.replaced("w"); len(got) != 0 || !s.stays("w-0") || s.condition(v1alpha1.ConditionRemediating) != want {
		t.Errorf("%v is recorded, and the group says %q", got, s.condition(v1alpha1.ConditionRemediating))
	}
}
