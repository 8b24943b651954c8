package talosmachine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/lab/node"
)

// giveUp removes a dead machine from the cluster, as its group does once it has been replaced.
func (e *env) giveUp(name string) {
	e.Helper()

	e.nodes[name].Kill()
	e.until(name, "it is missed", reason(v1alpha1.ConditionReachable, v1alpha1.ReasonNodeUnreachable))

	change(e, &v1alpha1.TalosMachine{}, name, func(m *v1alpha1.TalosMachine) {
		m.Spec.OnDelete = v1alpha1.OnDeleteDecommission

		metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1alpha1.SkipResetAnnotation, "true")
	})

	e.Delete(e.machine(name))

	e.Eventually(name+" is given up", func(context.Context) error {
		m := &v1alpha1.TalosMachine{}

		if _, err := e.r.Reconcile(e.Context(), ctrl.Request{NamespacedName: e.Key(name)}); err != nil {
			return err
		}

		err := e.Admin.Get(e.Context(), e.Key(name), m)
		if apierrors.IsNotFound(err) {
			return nil
		}

		return errors.Join(errors.New(show(m)), err)
	})
}

// approve approves the wipe of an abandoned machine, as the annotation on its control plane does.
func (e *env) approve(name string) {
	e.Helper()
	e.record(func(rt *clusterstate.Runtime) {
		for key, g := range rt.GivenUp {
			if g.Name == name {
				g.WipeApproved = true
				rt.GivenUp[key] = g
			}
		}
	})
}

// kubernetesReady waits until Kubernetes reports the Node of a machine ready: a machine that returns and has not got as
// far is wiped.
func (e *env) kubernetesReady(name string) {
	e.Helper()
	e.Eventually("the Node "+name+" is ready", func(ctx context.Context) error {
		n, err := e.api().CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}

		for _, c := range n.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
				return nil
			}
		}

		return fmt.Errorf("%+v", n.Status.Conditions)
	})
}

// resets returns how often a machine was told to wipe itself.
func (e *env) resets(name string) int { return e.nodes[name].Faults().Calls("Reset") }

// left reconciles an abandoned machine that has returned, and checks that it is not changed and that the reason is
// reported.
func (e *env) left(name, doubt string) {
	e.Helper()
	e.until(name, "a person is asked", func(m *v1alpha1.TalosMachine) bool {
		c := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionReady)

		return c != nil && c.Reason == v1alpha1.ReasonMachineReturned && strings.Contains(c.Message, doubt)
	})

	if n := e.resets(name); n != 0 {
		e.Errorf("%s was reset %d times", name, n)
	}
}

// TestGivenUpMachineIsListedAgain: a control-plane node and a worker that were abandoned return with all their data,
// and are listed again. Their Nodes are ready, so a user has to approve the wipe. They are wiped before anything else,
// and are configured anew.
func TestGivenUpMachineIsListedAgain(t *testing.T) {
	e := found(t, 3, 1)
	former := e.machine("cp-2").Status.EtcdMemberID

	for _, name := range []string{"cp-2", "w-0"} {
		uuid := e.machine(name).Status.UUID
		e.giveUp(name)

		g, ok := e.state().Runtime.GivenUp[uuid]
		if !ok || g.Name != name || g.Address != e.nodes[name].Address() || g.Hostname == "" || g.NodeName != name ||
			g.ControlPlane != (name == "cp-2") || g.ControlPlane && g.MemberID != former {
			t.Errorf("the state has %+v for %s", g, name)
		}

		if _, ok := e.state().Runtime.Machines[name]; ok {
			t.Errorf("the state still counts on %s", name)
		}
	}

	if _, there := e.members("cp-0")[former]; there {
		t.Error("the member of cp-2 is still there")
	}

	for _, name := range []string{"cp-2", "w-0"} {
		if err := e.nodes[name].PowerOn(t.Context()); err != nil {
			t.Fatal(err)
		}

		e.kubernetesReady(name)
	}

	e.list("cp-2", 3, nil)
	e.list("w-0", 100, &v1alpha1.ObjectReference{Name: group})

	for _, name := range []string{"cp-2", "w-0"} {
		e.left(name, "Kubernetes reports its Node "+name+" ready")
		e.approve(name)
		e.until(name, "it is back", func(m *v1alpha1.TalosMachine) bool { return ready(m) && m.Status.WorkingHash != "" })

		if n := e.nodes[name].Faults().Calls("Reset"); n != 1 {
			t.Errorf("%s was reset %d times", name, n)
		}

		if i := e.machine(name).Status.Intent; i != nil {
			t.Errorf("%s still has the intent %+v", name, i)
		}
	}

	if members := e.members("cp-0"); len(members) != 3 {
		t.Errorf("the members are %v", members)
	}

	if left := e.state().Runtime.GivenUp; len(left) > 0 {
		t.Errorf("the state still has %+v", left)
	}
}

// TestSharedUUID: all boards have the same firmware UUID. One worker is abandoned; the others, which were not, are not
// changed, and the one that returns cannot be distinguished from them.
func TestSharedUUID(t *testing.T) {
	for what, uuid := range map[string]string{
		"known to be shared": "03000200-0400-0500-0006-000700080009", "unheard of": "6d1b8c7e-0000-4000-8000-00000000beef",
	} {
		t.Run(what, func(t *testing.T) {
			e := newEnv(t)
			e.createGroups(1)
			e.createState()
			e.boot("cp-0", 1, nil)

			workers := []string{"w-0", "w-1", "w-2"}
			for i, name := range workers {
				e.boot(name, 100+i, &v1alpha1.ObjectReference{Name: group}, func(o *node.Options) { o.UUID = uuid })
			}

			e.bootstrap("cp-0")

			for name := range e.nodes {
				e.until(name, "it is ready", func(m *v1alpha1.TalosMachine) bool { return m.Status.WorkingHash != "" })
			}

			e.giveUp("w-0")

			if err := e.nodes["w-0"].PowerOn(t.Context()); err != nil {
				t.Fatal(err)
			}

			e.list("w-0", 100, &v1alpha1.ObjectReference{Name: group})
			e.until("w-0", "it is back", ready)

			for _, name := range workers {
				e.pass(name)

				if n := e.resets(name); n != 0 {
					t.Errorf("%s was reset %d times", name, n)
				}
			}
		})
	}
}

// TestOldState: w-0 was abandoned once, returned, was configured anew, and works. An older copy of the state Secret
// contains only the first part. The machine is not changed until a user confirms that it belongs to the cluster.
func TestOldState(t *testing.T) {
	e := found(t, 1, 1)
	m := e.machine("w-0")
	e.record(func(rt *clusterstate.Runtime) {
		delete(rt.Machines, "w-0")
		rt.GiveUp(clusterstate.GivenUp{
			Name: "w-0", Hostname: m.Status.Hostname, Address: m.Status.Address, UUID: m.Status.UUID,
			At: e.Clock.Now().Add(-30 * 24 * time.Hour),
		})
	})

	e.left("w-0", "it has worked since")

	// A lost status does not make it another machine, either.
	m = e.machine("w-0")
	m.Status.WorkingHash = ""
	e.UpdateStatus(m)
	e.left("w-0", "Kubernetes reports its Node w-0 ready")

	change(e, &v1alpha1.TalosMachine{}, "w-0", func(m *v1alpha1.TalosMachine) {
		metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1alpha1.AcceptMachineAnnotation, m.Status.UUID)
	})
	e.until("w-0", "it is taken back", func(m *v1alpha1.TalosMachine) bool { return ready(m) && m.Status.WorkingHash != "" })

	if rt := e.state().Runtime; len(rt.GivenUp) > 0 || rt.Machines["w-0"].UUID == "" || e.resets("w-0") != 0 {
		t.Errorf("%d resets; the state has %+v and %+v", e.resets("w-0"), rt.GivenUp, rt.Machines)
	}
}

// TestReturnedUnderAnotherName: only the UUID is that of an abandoned machine. A user has to decide.
func TestReturnedUnderAnotherName(t *testing.T) {
	for what, tc := range map[string]struct {
		change func(*clusterstate.GivenUp)
		doubt  string
	}{
		"name":    {func(g *clusterstate.GivenUp) { g.Name = "w-9" }, "its name was w-9"},
		"address": {func(g *clusterstate.GivenUp) { g.Address = "127.0.0.9" }, "its address was 127.0.0.9"},
	} {
		t.Run(what, func(t *testing.T) {
			e := found(t, 1, 1)
			m := e.machine("w-0")
			g := clusterstate.GivenUp{
				Name: "w-0", Hostname: "gone", Address: m.Status.Address, UUID: m.Status.UUID, At: e.Clock.Now(),
			}
			tc.change(&g)
			e.record(func(rt *clusterstate.Runtime) {
				delete(rt.Machines, "w-0")
				rt.GiveUp(g)
			})

			e.left("w-0", tc.doubt)
			e.approve(g.Name)
			e.until("w-0", "it is wiped", func(*v1alpha1.TalosMachine) bool { return e.resets("w-0") == 1 })
		})
	}
}

// TestNobodyToAsk: without a response from Kubernetes, no machine is wiped.
func TestNobodyToAsk(t *testing.T) {
	e := found(t, 1, 1)
	e.giveUp("w-0")

	if err := e.nodes["w-0"].PowerOn(t.Context()); err != nil {
		t.Fatal(err)
	}

	e.list("w-0", 100, &v1alpha1.ObjectReference{Name: group})

	e.lockOut()

	e.left("w-0", "the Kubernetes API does not say whether its Node is ready")
}
