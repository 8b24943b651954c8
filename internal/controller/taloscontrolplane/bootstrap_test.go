package taloscontrolplane_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/lab/apid"
	"github.com/talos-operator/talos-operator/lab/node"
	"github.com/talos-operator/talos-operator/test/harness"
	"github.com/talos-operator/talos-operator/test/wait"
)

// records are the contents of the state Secret at the bootstrap calls.
type records struct {
	mu   sync.Mutex
	seen []*clusterstate.Bootstrap
}

func (e *env) onBootstrap(nodes ...*node.Node) *records {
	r := &records{}

	for _, n := range nodes {
		n.Faults().Subscribe(func(c apid.Call) {
			if !strings.HasSuffix(c.Method, "/Bootstrap") {
				return
			}

			secret := &corev1.Secret{}
			found := &clusterstate.Bootstrap{Machine: "unreadable"}

			if err := e.Admin.Get(context.Background(), e.Key("c-state"), secret); err == nil {
				if state, err := clusterstate.Decode(secret.Data); err == nil {
					found = state.Runtime.Bootstrap
				}
			}

			r.mu.Lock()
			defer r.mu.Unlock()

			r.seen = append(r.seen, found)
		})
	}

	return r
}

// check compares what was recorded at the bootstrap calls.
func (r *records) check(t *testing.T, machines ...string) {
	t.Helper()

	r.mu.Lock()
	defer r.mu.Unlock()

	if len(r.seen) != len(machines) {
		t.Errorf("%d calls, want %d", len(r.seen), len(machines))

		return
	}

	for i, b := range r.seen {
		if b == nil || b.Machine != machines[i] || b.IntentAt.IsZero() || b.EstablishedAt != nil {
			t.Errorf("recorded when call %d came in: %+v", i+1, b)
		}
	}
}

func bootstrapped(cp *v1alpha1.TalosControlPlane) bool {
	return meta.IsStatusConditionTrue(cp.Status.Conditions, v1alpha1.ConditionBootstrapped)
}

// TestBootstrapOnce: of three waiting nodes, one is bootstrapped once, and only after the choice was recorded. The
// status reflects what etcd reports, not what was requested.
func TestBootstrapOnce(t *testing.T) {
	e := newEnv(t)
	cp, nodes := e.found(3)
	seen := e.onBootstrap(nodes...)

	if res, err := e.pass(cp); err != nil || res.RequeueAfter <= 0 {
		t.Errorf("the pass that asks: %+v, %v", res, err)
	}

	if b := cp.Status.Bootstrap; b == nil || b.Machine != "cp-0" || b.EstablishedAt != nil {
		t.Errorf("status after the call: %+v", b)
	}

	e.until(cp, "etcd has three members", func() bool {
		return meta.IsStatusConditionTrue(cp.Status.Conditions, v1alpha1.ConditionEtcdHealthy)
	})
	e.Condition(cp, v1alpha1.ConditionBootstrapped, metav1.ConditionTrue, v1alpha1.ReasonBootstrapped, "member list")
	e.Condition(cp, v1alpha1.ConditionEtcdHealthy, metav1.ConditionTrue, v1alpha1.ReasonEtcdHealthy, "3 voting members")
	seen.check(t, "cp-0")

	b := e.state().Runtime.Bootstrap
	if b.EstablishedAt == nil || b.MemberID == 0 || b.Address != e.address(0) || cp.Status.EtcdMembers != 3 {
		t.Errorf("established: %+v, %d members", b, cp.Status.EtcdMembers)
	}

	if st := cp.Status.Bootstrap; st.EstablishedAt == nil || st.Machine != "cp-0" {
		t.Errorf("status: %+v", st)
	}

	// Neither time nor a new replica changes that.
	e.Clock.Sleep(time.Hour)
	e.restart()

	for range 2 {
		_, _ = e.pass(cp)
	}

	if got := harness.Calls("Bootstrap", nodes...); got != 1 || !e.state().Runtime.Bootstrap.EstablishedAt.Equal(*b.EstablishedAt) {
		t.Errorf("%d calls, %+v", got, e.state().Runtime.Bootstrap)
	}
}

// TestBootstrapCallLost: the choice is recorded although the call failed, so an immediate reconciliation calls no node,
// whichever replica runs it. After some time without an effect, the same node is called again.
func TestBootstrapCallLost(t *testing.T) {
	e := newEnv(t)
	cp, nodes := e.found(1)
	seen := e.onBootstrap(nodes...)
	nodes[0].Faults().Fail("Bootstrap", codes.Unavailable, 1, 1)

	asked := e.Clock.Now().UTC().Truncate(time.Second)

	if _, err := e.pass(cp); failure.ClassOf(err) != failure.ClassTransient || err == nil {
		t.Errorf("a call that failed: %v", err)
	}

	if b := e.state().Runtime.Bootstrap; b == nil || b.Machine != "cp-0" || b.Address != e.address(0) || !b.IntentAt.Equal(asked) {
		t.Fatalf("recorded: %+v", b)
	}

	for _, after := range []time.Duration{0, 7 * time.Second, 14 * time.Second} {
		e.Clock.SetTime(asked.Add(after))
		e.restart()

		if res, err := e.pass(cp); err != nil || res.RequeueAfter <= 0 {
			t.Errorf("%s later: %+v, %v", after, res, err)
		}
	}

	seen.check(t, "cp-0")

	e.Clock.SetTime(asked.Add(15 * time.Second))
	e.until(cp, "etcd answers", func() bool { return bootstrapped(cp) })
	seen.check(t, "cp-0", "cp-0")
}

// TestBootstrapAlreadyExists: a node that reports existing etcd data has already done what was requested.
func TestBootstrapAlreadyExists(t *testing.T) {
	e := newEnv(t)
	cp, nodes := e.found(1)
	seen := e.onBootstrap(nodes...)
	nodes[0].Faults().Fail("Bootstrap", codes.AlreadyExists, 1, 1)

	for range 3 {
		if res, err := e.pass(cp); err != nil || res.RequeueAfter <= 0 {
			t.Errorf("AlreadyExists is no success: %+v, %v", res, err)
		}
	}

	e.Condition(cp, v1alpha1.ConditionBootstrapped, metav1.ConditionFalse, v1alpha1.ReasonBootstrapping, "cp-0")

	if c := meta.FindStatusCondition(cp.Status.Conditions, v1alpha1.ConditionStalled); c != nil {
		t.Errorf("stalled: %+v", c)
	}

	seen.check(t, "cp-0")
}

// TestNoBootstrapWithoutEvidence: an unreachable node that was configured may have etcd data.
func TestNoBootstrapWithoutEvidence(t *testing.T) {
	e := newEnv(t)
	cp, nodes := e.found(3)
	seen := e.onBootstrap(nodes...)
	nodes[2].Partition(true)

	if res, err := e.pass(cp); err != nil || res.RequeueAfter <= 0 {
		t.Errorf("with a silent node: %+v, %v", res, err)
	}

	e.Condition(cp, v1alpha1.ConditionBootstrapped, metav1.ConditionFalse, v1alpha1.ReasonWaitingForEvidence, "cp-2")
	e.Condition(cp, v1alpha1.ConditionReachable, metav1.ConditionFalse, v1alpha1.ReasonNodeUnreachable, "cp-2")
	seen.check(t)

	if b := e.state().Runtime.Bootstrap; b != nil {
		t.Errorf("an intent without evidence: %+v", b)
	}

	nodes[2].Partition(false)
	e.until(cp, "etcd answers", func() bool { return bootstrapped(cp) })
	seen.check(t, "cp-0")
}

// TestLostEtcdIsNotReplaced: if etcd was running, nodes without its data are a loss. Only a user may allow a new etcd.
func TestLostEtcdIsNotReplaced(t *testing.T) {
	e := newEnv(t)
	cp, nodes := e.found(1)
	seen := e.onBootstrap(nodes...)
	at := e.Clock.Now().Add(-24 * time.Hour)

	e.record(func(s *clusterstate.State) {
		s.Runtime.OwnerUID = string(cp.UID)
		s.Runtime.Bootstrap = &clusterstate.Bootstrap{Machine: "cp-0", Address: e.address(0), IntentAt: at, EstablishedAt: &at}
	})

	for range 2 {
		_, _ = e.pass(cp)
	}

	e.Condition(cp, v1alpha1.ConditionBootstrapped, metav1.ConditionFalse, v1alpha1.ReasonEtcdLost, v1alpha1.AllowBootstrapAnnotation)
	seen.check(t)

	metav1.SetMetaDataAnnotation(&cp.ObjectMeta, v1alpha1.AllowBootstrapAnnotation, "true")

	e.Update(cp)

	e.until(cp, "etcd answers", func() bool { return bootstrapped(cp) })
	seen.check(t, "cp-0")
}

// TestStateOfWipedNodes: a Secret of an earlier control plane whose nodes have been reset is used for a new bootstrap
// with the same PKI; the old record does not count.
func TestStateOfWipedNodes(t *testing.T) {
	e := newEnv(t)
	cp, nodes := e.found(1)
	seen := e.onBootstrap(nodes...)
	at := e.Clock.Now().Add(-24 * time.Hour)
	pki := e.state().Bundle

	e.record(func(s *clusterstate.State) {
		s.Runtime.OwnerUID = "" // the earlier object of the name was deleted properly
		s.Runtime.Bootstrap = &clusterstate.Bootstrap{Machine: "gone", Address: "gone", IntentAt: at, EstablishedAt: &at}
	})

	_, _ = e.pass(cp)

	if bootstrapped(cp) {
		t.Error("bootstrapped by an old record alone")
	}

	e.until(cp, "etcd answers", func() bool { return bootstrapped(cp) })
	seen.check(t, "cp-0")

	if s := e.state(); !s.Bundle.Equal(pki) || s.Runtime.OwnerUID != string(cp.UID) || s.Runtime.Bootstrap.Machine != "cp-0" {
		t.Errorf("recorded: %+v", s.Runtime)
	}
}

// TestPausedMachine: the annotation on a machine blocks the bootstrap of its node.
func TestPausedMachine(t *testing.T) {
	e := newEnv(t)
	cp, nodes := e.found(1)

	hold := func(value string) {
		t.Helper()

		m := e.talosMachine(0)
		metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1alpha1.PausedAnnotation, value)

		e.Update(m)
	}

	hold("true")
	e.until(cp, "it is held", func() bool {
		c := meta.FindStatusCondition(cp.Status.Conditions, v1alpha1.ConditionReady)

		return c != nil && c.Reason == v1alpha1.ReasonPaused && strings.Contains(c.Message, "while cp-0 is paused")
	})

	if got := harness.Calls("Bootstrap", nodes...); got != 0 || e.state().Runtime.Bootstrap != nil {
		t.Errorf("%d bootstraps of a node that is held; recorded: %+v", got, e.state().Runtime.Bootstrap)
	}

	hold("false")
	e.until(cp, "etcd answers", func() bool { return bootstrapped(cp) })
}

// TestPausedSendsNothing: the annotation blocks a due bootstrap, and everything else.
func TestPausedSendsNothing(t *testing.T) {
	e := newEnv(t)
	cp, nodes := e.found(1)
	before := nodes[0].Faults().MutatingCalls()

	metav1.SetMetaDataAnnotation(&cp.ObjectMeta, v1alpha1.PausedAnnotation, "")

	e.Update(cp)

	since := wait.Now()

	for range 3 {
		if _, err := e.pass(cp); err != nil {
			t.Error(err)
		}
	}

	e.Condition(cp, v1alpha1.ConditionPaused, metav1.ConditionTrue, v1alpha1.ReasonPaused, "annotation")

	if w := e.Writes(since); len(w) != 1 || w[0].Resource != "taloscontrolplanes/status" {
		t.Errorf("writes: %v", w)
	}

	if got := nodes[0].Faults().MutatingCalls(); got != before {
		t.Errorf("%d mutating calls to a node below a paused object", got-before)
	}

	// Observations are still reported.
	e.Condition(cp, v1alpha1.ConditionReachable, metav1.ConditionTrue, v1alpha1.ReasonReachable, "")

	metav1.SetMetaDataAnnotation(&cp.ObjectMeta, v1alpha1.PausedAnnotation, "false")

	e.Update(cp)

	e.until(cp, "etcd answers", func() bool { return bootstrapped(cp) })

	if c := meta.FindStatusCondition(cp.Status.Conditions, v1alpha1.ConditionPaused); c != nil {
		t.Errorf("still %+v", c)
	}
}
