package kubernetescluster

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/condition"
	"github.com/talos-operator/talos-operator/internal/kube"
)

// story is a cluster of one control-plane machine and one worker, as its reconciliations see it.
type story struct {
	t        *testing.T
	now      time.Time
	recorder *events.FakeRecorder
	hush     condition.Hush
	cluster  *vitistackv1alpha1.KubernetesCluster
	plane    *v1alpha1.TalosControlPlane
	group    v1alpha1.TalosWorker
	nodes    []v1alpha1.TalosMachine
}

func newStory(t *testing.T) *story {
	t.Helper()

	st := &story{
		t: t, now: time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC), recorder: events.NewFakeRecorder(100),
		cluster: &vitistackv1alpha1.KubernetesCluster{}, plane: &v1alpha1.TalosControlPlane{},
	}
	st.cluster.Name, st.plane.Name, st.group.Name = "c", "c", "c-w"
	st.cluster.Spec.ControlPlane.Replicas = 1
	st.cluster.Spec.Workers = []vitistackv1alpha1.WorkerGroup{{Name: "w", Replicas: 1}}

	for _, name := range []string{"c-cp-0", "c-w-0"} {
		m := v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Name: name}}
		m.Status.WorkingHash = "hash"
		st.nodes = append(st.nodes, m)
	}

	st.below(true)
	st.pass("Normal Ready Ready is True: control plane and workers are ready")

	return st
}

func (st *story) condition(kind string, is bool, reason, message string) []metav1.Condition {
	status := metav1.ConditionFalse
	if is {
		status = metav1.ConditionTrue
	}

	return []metav1.Condition{{
		Type: kind, Status: status, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(st.now),
	}}
}

// below is what control plane and group report.
func (st *story) below(plane bool) {
	st.plane.Status.Conditions = st.condition(v1alpha1.ConditionReady, plane, v1alpha1.ReasonWaitingForMachines, "it boots")
	st.group.Status.Conditions = st.condition(v1alpha1.ConditionReady, true, v1alpha1.ReasonReady, "well")
	st.group.Status.ReadyReplicas = 1
}

// change puts the machine of the control plane into a phase of a change; empty ends it.
func (st *story) change(phase v1alpha1.ChangePhase) {
	st.nodes[0].Status.Change = nil
	if phase != "" {
		st.nodes[0].Status.Change = &v1alpha1.MachineChange{Phase: phase, Since: metav1.NewTime(st.now)}
	}
}

// pass is one reconciliation, which has to tell exactly these events.
func (st *story) pass(want ...string) {
	st.t.Helper()

	s := &scope{
		cluster: st.cluster, base: st.cluster.DeepCopy(), topology: newTopology(st.cluster), listed: true,
		cp: st.plane, groups: []v1alpha1.TalosWorker{st.group}, nodes: st.nodes,
	}

	computeStatus(s, nil)

	before, after := s.base.Status.Conditions, st.cluster.Status.Conditions
	st.hush.Over(kube.Transitions{Bad: badReasons}, client.ObjectKeyFromObject(st.cluster), s.cause(st.now), waits,
		before, after).Record(st.recorder, st.cluster, before, after)

	var got []string
	for len(st.recorder.Events) > 0 {
		got = append(got, <-st.recorder.Events)
	}

	if !slices.Equal(got, want) {
		st.t.Errorf("told %q, want %q", got, want)
	}

	st.now = st.now.Add(time.Second)
}

const (
	away  = "Normal Provisioning Ready is False: control plane: it boots"
	again = "Normal Ready Ready is True: control plane and workers are ready"
)

// TestRebootsAreNoNews: the reboots of a rollout, whose plan is told, are not told by the cluster, however many there
// are.
func TestRebootsAreNoNews(t *testing.T) {
	st := newStory(t)

	for range 3 {
		st.change(v1alpha1.ChangeRebooting)
		st.pass()
		st.below(false)
		st.pass()
		st.change(v1alpha1.ChangeSettling)
		st.pass()

		// The control plane has not observed yet that its machine is done.
		st.change("")
		st.pass()
		st.below(true)
		st.pass()
	}

	// An outage that is no one's change is news, and so is its end.
	st.below(false)
	st.pass(away)
	st.below(true)
	st.pass(again)
}

// TestOutageBecomesNews: an outage that begins with a change and turns out to be more is told once, and so is its end.
func TestOutageBecomesNews(t *testing.T) {
	for name, turn := range map[string]func(*story){
		"the change fails":      func(st *story) { st.change(v1alpha1.ChangeFailed) },
		"it takes too long":     func(st *story) { st.now = st.now.Add(time.Hour) },
		"another machine falls": func(st *story) { st.lose(1) },
		"the quorum is lost": func(st *story) {
			st.plane.Status.Conditions = st.condition(v1alpha1.ConditionReady, false, v1alpha1.ReasonQuorumLost, "it boots")
		},
		"a machine is replaced": func(st *story) { st.nodes[1].Status.WorkingHash = "" },
	} {
		t.Run(name, func(t *testing.T) {
			st := newStory(t)
			st.change(v1alpha1.ChangeRebooting)
			st.below(false)
			st.pass()
			turn(st)
			st.pass(away)
			st.pass()
			st.below(true)
			st.pass(again)
		})
	}
}

func (st *story) lose(i int) {
	st.nodes[i].Status.Conditions = st.condition(v1alpha1.ConditionReachable, false, v1alpha1.ReasonNodeUnreachable, "gone")
}

// TestNewSpecIsNoNews: that the objects below have not observed a new spec yet is told neither when it begins nor when
// it ends. That a group grows is.
func TestNewSpecIsNoNews(t *testing.T) {
	st := newStory(t)
	st.plane.Generation = 2
	st.pass()
	st.plane.Status.Conditions[0].ObservedGeneration = 2
	st.pass()

	st.cluster.Spec.Workers[0].Replicas = 2
	st.pass("Normal Provisioning Ready is False: 1 of 2 workers are ready")

	st.nodes = append(st.nodes, *st.nodes[1].DeepCopy())
	st.group.Status.ReadyReplicas = 2
	st.pass(again)
}

// TestForgottenCluster: a cluster that is made anew tells everything.
func TestForgottenCluster(t *testing.T) {
	st := newStory(t)
	st.change(v1alpha1.ChangeRebooting)
	st.below(false)
	st.pass()
	st.hush.Forget(client.ObjectKeyFromObject(st.cluster))
	st.below(true)
	st.pass(again)
}
