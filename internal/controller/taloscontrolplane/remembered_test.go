package taloscontrolplane_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	configmachine "github.com/siderolabs/talos/pkg/machinery/config/machine"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/lab/node"
	"github.com/talos-operator/talos-operator/test/harness"
)

// TestNewEtcdOnOneNode: a user allows a new etcd. One node gets it, wherever the operator is killed, and the permission
// counts once.
func TestNewEtcdOnOneNode(t *testing.T) {
	for _, writes := range []int{0, 1, 2, 3, 4} {
		t.Run(fmt.Sprintf("killed after %d writes", writes), func(t *testing.T) {
			e := newEnv(t)
			// Slow enough for reconciliations to observe a node that neither waits nor has data.
			cp, nodes := e.found(3, func(o *node.Options) { o.Scale = 5 * node.DefaultScale })
			seen := e.onBootstrap(nodes...)
			at := e.Clock.Now().Add(-24 * time.Hour)

			e.record(func(s *clusterstate.State) {
				s.Runtime.OwnerUID = string(cp.UID)
				s.Runtime.Bootstrap = &clusterstate.Bootstrap{Machine: "cp-1", Address: e.address(1), IntentAt: at, EstablishedAt: &at}
			})

			metav1.SetMetaDataAnnotation(&cp.ObjectMeta, v1alpha1.AllowBootstrapAnnotation, "true")
			e.Update(cp)

			if writes > 0 {
				e.Client.DieAfter(writes)
			}

			for range 3 {
				_, _ = e.pass(cp)
			}

			e.restart()
			// A lost call is repeated after some time.
			e.Until(cp, "etcd has three members", func() { e.Clock.Sleep(time.Second) },
				func() error { _, err := e.pass(cp); return err },
				func() bool { return meta.IsStatusConditionTrue(cp.Status.Conditions, v1alpha1.ConditionEtcdHealthy) })
			seen.check(t, "cp-0")

			if _, ok := cp.Annotations[v1alpha1.AllowBootstrapAnnotation]; ok {
				t.Error("what was allowed once is allowed still")
			}
		})
	}
}

// again deletes a control plane, which does not change its nodes, and applies it with another machine on its list. It
// returns the object and the node of that machine, which is configured.
func (e *env) again(cp *v1alpha1.TalosControlPlane, i int) (*v1alpha1.TalosControlPlane, *node.Node) {
	e.Helper()

	e.Delete(cp)
	e.Until(cp, "it is gone", nil, func() error { _, err := e.pass(cp); return err }, func() bool { return e.Gone(cp) })

	fresh := e.boot(i)
	at := e.Clock.Now()

	next := e.fleet.ControlPlane(e.Namespace, 1)
	next.Spec.Machines = []v1alpha1.MachineEntry{{Name: fresh.Name(), Address: fresh.Address()}}
	e.Create(next)

	_, _ = e.pass(next)

	e.record(func(s *clusterstate.State) {
		s.Runtime.Machines[fresh.Name()] = clusterstate.Machine{
			Address: fresh.Address(), Role: string(v1alpha1.RoleControlPlane), ConfiguredAt: &at,
		}
	})
	e.install(e.state(), configmachine.TypeControlPlane, fresh)

	return next, fresh
}

// TestRememberedHoldsTheBootstrap: a control plane was deleted without its nodes and applied with another list. A
// machine that is not on it may run the etcd of the cluster; only a user knows that it is gone permanently.
func TestRememberedHoldsTheBootstrap(t *testing.T) {
	e := newEnv(t)
	cp, nodes := e.found(1)
	e.until(cp, "etcd answers", func() bool { return bootstrapped(cp) })
	nodes[0].Partition(true)

	next, fresh := e.again(cp, 2)
	e.Eventually("its etcd waits", func(ctx context.Context) error { return harness.Prepares(ctx, fresh, e.state()) })

	for range 3 {
		_, _ = e.pass(next)

		e.Clock.Sleep(time.Minute)
	}

	e.Condition(next, v1alpha1.ConditionBootstrapped, metav1.ConditionFalse, v1alpha1.ReasonWaitingForEvidence,
		"cp-0 is no longer listed: list it again, or, once it is wiped or destroyed, annotate the object with "+
			v1alpha1.ForgetMachinesAnnotation+"=cp-0")

	if got := harness.Calls("Bootstrap", fresh); got != 0 {
		t.Fatalf("%d bootstraps of a second etcd", got)
	}

	nodes[0].Kill()
	e.record(func(st *clusterstate.State) {
		st.Runtime.Machines["w-0"] = clusterstate.Machine{Address: e.address(20), Role: string(v1alpha1.RoleWorker)}
	})
	metav1.SetMetaDataAnnotation(&next.ObjectMeta, v1alpha1.ForgetMachinesAnnotation, "cp-0, "+fresh.Name()+",w-0,cp-9")
	e.Update(next)
	e.until(next, "etcd answers", func() bool { return bootstrapped(next) })

	known := slices.Sorted(maps.Keys(e.state().Runtime.Machines))
	if want := []string{fresh.Name(), "w-0"}; !slices.Equal(known, want) || next.Annotations[v1alpha1.ForgetMachinesAnnotation] != "" {
		t.Errorf("remembered %v, want %v; annotations %v", known, want, next.Annotations)
	}

	told := e.Told()
	for _, want := range []string{"Forgot cp-0: ", "Did not forget " + fresh.Name() + ", w-0, cp-9: "} {
		if !slices.ContainsFunc(told, func(s string) bool { return strings.Contains(s, want) }) {
			t.Errorf("no event says %q: %v", want, told)
		}
	}
}

// TestNewEtcdWaitsForTheChoice: another node is chosen only after the first one had the time to show data.
func TestNewEtcdWaitsForTheChoice(t *testing.T) {
	e := newEnv(t)
	cp, nodes := e.found(3)
	at := e.Clock.Now()

	e.record(func(s *clusterstate.State) {
		s.Runtime.OwnerUID = string(cp.UID)
		s.Runtime.Bootstrap = &clusterstate.Bootstrap{Machine: "cp-1", Address: e.address(1), IntentAt: at, EstablishedAt: &at}
	})
	metav1.SetMetaDataAnnotation(&cp.ObjectMeta, v1alpha1.AllowBootstrapAnnotation, "true")
	e.Update(cp)

	e.Clock.SetTime(at.Add(59 * time.Second))

	if _, err := e.pass(cp); err != nil || harness.Calls("Bootstrap", nodes...) != 0 {
		t.Fatalf("%d calls: %v", harness.Calls("Bootstrap", nodes...), err)
	}

	e.Clock.SetTime(at.Add(time.Minute))
	e.until(cp, "etcd answers", func() bool { return bootstrapped(cp) })

	// A permission that is not needed is removed, so that it cannot apply later.
	metav1.SetMetaDataAnnotation(&cp.ObjectMeta, v1alpha1.AllowBootstrapAnnotation, "true")
	e.Update(cp)
	e.until(cp, "the annotation is removed", func() bool { return cp.Annotations[v1alpha1.AllowBootstrapAnnotation] == "" })
}

// TestRememberedRunsEtcd: the unlisted machine responds, and runs the etcd of the cluster. The listed one joins it.
func TestRememberedRunsEtcd(t *testing.T) {
	e := newEnv(t)
	cp, nodes := e.found(1)
	e.until(cp, "etcd answers", func() bool { return bootstrapped(cp) })

	next, fresh := e.again(cp, 2)
	e.until(next, "it joins", func() bool { return bootstrapped(next) && fresh.Status().EtcdMember != "" })

	if got := harness.Calls("Bootstrap", fresh); got != 0 || nodes[0].Status().EtcdMember == "" {
		t.Errorf("%d bootstraps: %+v and %+v", got, nodes[0].Status(), fresh.Status())
	}
}
