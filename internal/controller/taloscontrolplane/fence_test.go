package taloscontrolplane_test

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	configmachine "github.com/siderolabs/talos/pkg/machinery/config/machine"
	talosv1alpha1 "github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/workload"
	"github.com/talos-operator/talos-operator/lab/node"
	"github.com/talos-operator/talos-operator/test/harness"
)

// fenced creates a running control plane with one node, and a machine that once belonged to it, was abandoned, and
// still runs.
func fenced(t *testing.T, change func(*clusterstate.GivenUp)) (*env, *v1alpha1.TalosControlPlane, *node.Node) {
	t.Helper()

	e := newEnv(t)
	cp, _ := e.established(1)
	n := e.boot(7, func(o *node.Options) { o.Cluster = node.NewRegistry() }) // its etcd joins no other member
	e.configure(e.state(), n)

	g := clusterstate.GivenUp{
		Name: "cp-7", Hostname: "cp-7", Address: n.Address(), UUID: n.UUID(), MemberID: "00000000000000aa",
		ControlPlane: true, At: e.Clock.Now().UTC().Truncate(time.Second),
	}
	change(&g)
	e.record(func(s *clusterstate.State) { s.Runtime.GiveUp(g) })

	return e, cp, n
}

func fencing(cp *v1alpha1.TalosControlPlane) bool {
	return meta.IsStatusConditionTrue(cp.Status.Conditions, v1alpha1.ConditionFencing)
}

// TestReturnedMachineIsWiped: an abandoned machine returns with its data. It is reported, wiped once, and its record is
// dropped when it is in maintenance mode.
func TestReturnedMachineIsWiped(t *testing.T) {
	e, cp, n := fenced(t, func(*clusterstate.GivenUp) {})

	e.until(cp, "it is recognised", func() bool { return fencing(cp) })
	e.Condition(cp, v1alpha1.ConditionFencing, metav1.ConditionTrue, v1alpha1.ReasonMachineReturned, "it is being wiped")
	e.until(cp, "it is wiped and forgotten", func() bool {
		return !fencing(cp) && len(e.state().Runtime.GivenUp) == 0 && n.Status().Stage == "maintenance"
	})

	if resets := harness.Calls("Reset", n); resets != 1 {
		t.Errorf("it was reset %d times", resets)
	}
}

// TestReturnedMachineOfAnotherOwner: a machine is not wiped that another control plane, which owns the cluster by now, may
// have listed again.
func TestReturnedMachineOfAnotherOwner(t *testing.T) {
	e, cp, n := fenced(t, func(*clusterstate.GivenUp) {})
	e.claim(elsewhere, string(cp.UID))

	for range 5 {
		_, _ = e.pass(cp)
		e.Clock.Sleep(time.Second)
	}

	if got, resets := e.state().Runtime.RivalUID, harness.Calls("Reset", n); got != elsewhere || resets != 0 {
		t.Errorf("it was reset %d times; the other owner is %q", resets, got)
	}
}

// TestReturnedMachineJoins: an abandoned machine without data that joins etcd in the moment in which it is to be wiped is
// not wiped.
func TestReturnedMachineJoins(t *testing.T) {
	e := newEnv(t)
	cp, _ := e.established(1)
	n := e.boot(7)
	n.StallPulls(true)
	e.configure(e.state(), n)
	e.record(func(s *clusterstate.State) {
		s.Runtime.GiveUp(clusterstate.GivenUp{
			Name: "cp-7", Hostname: "cp-7", Address: n.Address(), UUID: n.UUID(), ControlPlane: true, At: e.Clock.Now(),
			WipeApproved: true, // its Node is ready
		})
	})

	var once sync.Once

	joined := false

	e.Client.BeforeWrites(func(_ string, o client.Object) {
		secret, ok := o.(*corev1.Secret)
		if !ok || !bytes.Contains(bytes.Join(slices.Collect(maps.Values(secret.Data)), nil), []byte("resetAt")) {
			return
		}

		once.Do(func() {
			n.StallPulls(false)
			e.Eventually("it joins", func(context.Context) error {
				if n.Status().EtcdMember == "" {
					return errors.New("not yet")
				}

				return nil
			})

			joined = true
		})
	})

	e.until(cp, "it is about to be wiped", func() bool { return joined })

	if resets := harness.Calls("Reset", n); resets > 0 {
		t.Fatalf("it was reset %d times while it was a member of etcd", resets)
	}

	for _, g := range e.state().Runtime.GivenUp {
		if g.ResetAt != nil {
			t.Errorf("it is recorded as told to wipe itself: %+v", g)
		}
	}

	e.Condition(cp, v1alpha1.ConditionFencing, metav1.ConditionTrue, v1alpha1.ReasonMachineReturned, "member")
}

// registersAs configures a worker whose kubelet registers another name than the hostname.
func (e *env) registersAs(name string, n *node.Node) {
	e.Helper()

	data, err := harness.Config(e.state(), configmachine.TypeWorker)
	if err != nil {
		e.Fatal(err)
	}

	cfg, err := configloader.NewFromBytes(data)
	if err == nil {
		cfg, err = cfg.PatchV1Alpha1(func(c *talosv1alpha1.Config) error {
			c.MachineConfig.MachineKubelet.KubeletExtraArgs = talosv1alpha1.Args{
				"hostname-override": talosv1alpha1.NewArgValue(name, nil),
			}

			return nil
		})
	}

	if err == nil {
		data, err = cfg.Bytes()
	}

	if err != nil {
		e.Fatal(err)
	}

	e.Eventually(n.Name()+" takes its config", func(ctx context.Context) error { return harness.Install(ctx, n, data) })
}

// TestReturnedReadyMachine: an abandoned worker returns and its Node is ready, whose name is not the hostname. The machine
// and its Node are not changed until a user approves the wipe. A name that was not abandoned is rejected.
func TestReturnedReadyMachine(t *testing.T) {
	const nodeName = "w-7.example.org"

	e := newEnv(t)
	cp, _ := e.established(1)
	n := e.boot(7)
	e.registersAs(nodeName, n)
	e.Eventually("its Node is ready", func(ctx context.Context) error {
		c, err := e.r.Workloads.Cluster(ctx, e.state().Bundle, []string{e.address(0)})
		if err != nil {
			return err
		}

		ready, err := c.Ready(ctx, workload.NodeRef{Name: nodeName})
		if err == nil && !ready {
			err = errors.New("not yet")
		}

		return err
	})
	e.record(func(s *clusterstate.State) {
		s.Runtime.GiveUp(clusterstate.GivenUp{
			Name: "w-7", Hostname: n.Name(), NodeName: nodeName, Address: n.Address(), UUID: n.UUID(), At: e.Clock.Now(),
		})
	})

	e.until(cp, "it is recognised", func() bool { return fencing(cp) })
	e.Condition(cp, v1alpha1.ConditionFencing, metav1.ConditionTrue, v1alpha1.ReasonMachineReturned,
		"reports its Node "+nodeName+" ready: it is not changed; to wipe it, annotate this object with "+
			v1alpha1.WipeMachinesAnnotation+"=w-7")
	e.after(time.Minute, cp)

	if resets := harness.Calls("Reset", n); resets != 0 || !slices.Contains(e.nodeObjects(), nodeName) {
		t.Fatalf("%d resets; the Nodes are %v", resets, e.nodeObjects())
	}

	metav1.SetMetaDataAnnotation(&cp.ObjectMeta, v1alpha1.WipeMachinesAnnotation, "w-7, cp-0")
	e.Update(cp)
	e.until(cp, "its Node is removed", func() bool { return !slices.Contains(e.nodeObjects(), nodeName) })
	e.until(cp, "it is wiped and forgotten", func() bool { return len(e.state().Runtime.GivenUp) == 0 })

	if told := e.Told(); !slices.ContainsFunc(told, func(s string) bool { return strings.Contains(s, "Will not wipe cp-0:") }) {
		t.Errorf("no event tells that cp-0 is not wiped: %v", told)
	}

	if resets := harness.Calls("Reset", n); resets != 1 || cp.Annotations[v1alpha1.WipeMachinesAnnotation] != "" {
		t.Errorf("%d resets; the annotations are %v", resets, cp.Annotations)
	}
}

// TestReturnedMachineRefuses: a machine that cannot be wiped is asked again, and blocks nothing else of the cluster.
func TestReturnedMachineRefuses(t *testing.T) {
	e, cp, n := fenced(t, func(*clusterstate.GivenUp) {})
	n.Faults().Fail("Reset", codes.Unavailable, 1, 0)

	e.until(cp, "it shows that wiping failed", func() bool {
		c := meta.FindStatusCondition(cp.Status.Conditions, v1alpha1.ConditionFencing)

		return c != nil && strings.Contains(c.Message, "wiping it failed and is retried")
	})

	if _, err := e.pass(cp); err != nil {
		t.Errorf("the pass ended with %v", err)
	}

	e.Condition(cp, v1alpha1.ConditionFencing, metav1.ConditionTrue, v1alpha1.ReasonMachineReturned, "repeated until it is wiped")

	if !meta.IsStatusConditionTrue(cp.Status.Conditions, v1alpha1.ConditionReady) {
		t.Errorf("the conditions are %+v", cp.Status.Conditions)
	}

	n.Faults().Clear()
	e.after(3*time.Minute, cp)
	e.until(cp, "it is wiped and forgotten", func() bool { return len(e.state().Runtime.GivenUp) == 0 })
}

// TestReturnedMachineIsLeftAlone: a returned machine is not changed if a user wants that, or if another machine has its
// address by now.
func TestReturnedMachineIsLeftAlone(t *testing.T) {
	for what, c := range map[string]struct {
		change func(*clusterstate.GivenUp)
		tells  string
	}{
		"on hold":         {func(g *clusterstate.GivenUp) { g.Hold = true }, "not changed"},
		"shared UUID":     {func(g *clusterstate.GivenUp) { g.UUID = "" }, ""},
		"another name":    {func(g *clusterstate.GivenUp) { g.Hostname = "cp-8" }, ""},
		"another machine": {func(g *clusterstate.GivenUp) { g.UUID = "6d1b8c7e-0000-4000-8000-00000000beef" }, ""},
	} {
		t.Run(what, func(t *testing.T) {
			e, cp, n := fenced(t, c.change)
			mutations := n.Faults().MutatingCalls()

			for range 3 {
				if _, err := e.pass(cp); err != nil {
					t.Fatal(err)
				}
			}

			if fencing(cp) != (c.tells != "") {
				t.Errorf("the conditions are %+v", cp.Status.Conditions)
			}

			if c.tells != "" {
				e.Condition(cp, v1alpha1.ConditionFencing, metav1.ConditionTrue, v1alpha1.ReasonMachineReturned, c.tells)
			}

			if now := n.Faults().MutatingCalls(); now != mutations || len(e.state().Runtime.GivenUp) != 1 {
				t.Errorf("%d mutating calls; the state has %+v", now-mutations, e.state().Runtime.GivenUp)
			}
		})
	}
}

// TestReturnedMemberIsNotWiped: while etcd lists a member at the machine's address, the machine is not wiped.
func TestReturnedMemberIsNotWiped(t *testing.T) {
	e := newEnv(t)
	cp, _ := e.established(1)
	n := e.boot(7)
	e.join(n)
	e.record(func(s *clusterstate.State) {
		s.Runtime.GiveUp(clusterstate.GivenUp{
			Name: "cp-7", Address: n.Address(), UUID: n.UUID(), ControlPlane: true, At: e.Clock.Now(),
		})
	})

	e.until(cp, "it is told", func() bool { return fencing(cp) })
	e.Condition(cp, v1alpha1.ConditionFencing, metav1.ConditionTrue, v1alpha1.ReasonMachineReturned, "once the control plane")

	if resets := harness.Calls("Reset", n); resets > 0 {
		t.Errorf("it was reset %d times", resets)
	}
}
