package taloscontrolplane

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/decide/history"
	"github.com/talos-operator/talos-operator/internal/decide/hook"
	"github.com/talos-operator/talos-operator/internal/decide/upgrade"
)

// TestStandstill: workers have stopped an upgrade once one has failed with it and none is left that goes on without a
// user; a user, or a group that goes on, asks for the next one.
func TestStandstill(t *testing.T) {
	const old, wanted = "v1.35.1", "v1.36.2"

	type edit = func(*v1alpha1.TalosMachine)

	change := func(phase v1alpha1.ChangePhase) *v1alpha1.MachineChange {
		return &v1alpha1.MachineChange{ID: "1", Kind: v1alpha1.ChangeKubernetes, Phase: phase, Image: "kubelet:" + wanted}
	}
	plane := kubernetesMachine("a", wanted, wanted, wanted, nil)
	machine := func(name string, c *v1alpha1.MachineChange, edits ...edit) v1alpha1.TalosMachine {
		m := kubernetesMachine(name, "", "", old, c)
		m.Labels = map[string]string{"name": name}
		m.Status.Conditions = append(m.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionReachable, Status: metav1.ConditionTrue})

		for _, e := range edits {
			e(&m)
		}

		return m
	}
	broken := func(edits ...edit) v1alpha1.TalosMachine {
		return machine("w-0", change(v1alpha1.ChangeFailed), edits...)
	}
	other := func(c *v1alpha1.MachineChange, edits ...edit) v1alpha1.TalosMachine {
		return machine("w-1", c, append(edits, func(m *v1alpha1.TalosMachine) { m.Spec.WorkerRef.Name = "other" })...)
	}
	retried := func(m *v1alpha1.TalosMachine) { m.Annotations = map[string]string{v1alpha1.RetryAnnotation: "true"} }
	granted := func(m *v1alpha1.TalosMachine) { m.Spec.Change = &v1alpha1.ChangeGrant{ID: "1"} }
	booted := func(m *v1alpha1.TalosMachine) { m.Status.Change.Booted = true }
	silent := func(m *v1alpha1.TalosMachine) { m.Status.Conditions = m.Status.Conditions[:1] }
	leaving := func(m *v1alpha1.TalosMachine) { m.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }
	pending, approval, waits := change(v1alpha1.ChangePending), v1alpha1.PlanAwaitingApproval, v1alpha1.PlanWaiting

	for name, c := range map[string]struct {
		machines      []v1alpha1.TalosMachine
		other         v1alpha1.PlanPhase // of the other group; the first one has stopped
		edit          func(*v1alpha1.UpgradeOptions)
		stands, asked bool
	}{
		"one has failed":              {machines: []v1alpha1.TalosMachine{broken()}, stands: true},
		"nothing has failed":          {machines: []v1alpha1.TalosMachine{machine("w-0", nil)}},
		"it is retried":               {machines: []v1alpha1.TalosMachine{broken(retried)}, asked: true},
		"it leaves":                   {machines: []v1alpha1.TalosMachine{broken(leaving)}},
		"the retry waits for others":  {machines: []v1alpha1.TalosMachine{other(pending)}, other: waits, asked: true},
		"another group goes on":       {machines: []v1alpha1.TalosMachine{broken(), other(pending)}, other: waits, asked: true},
		"another group is not there":  {machines: []v1alpha1.TalosMachine{broken(), other(nil)}, other: waits},
		"another group has no plan":   {machines: []v1alpha1.TalosMachine{broken(), other(nil)}},
		"another one is silent":       {machines: []v1alpha1.TalosMachine{broken(), other(pending, silent)}, other: waits, stands: true},
		"another group is done":       {machines: []v1alpha1.TalosMachine{broken(), other(nil, func(m *v1alpha1.TalosMachine) { m.Status.KubeletVersion = wanted })}, stands: true},
		"another group needs a user":  {machines: []v1alpha1.TalosMachine{broken(), other(pending)}, other: approval, stands: true},
		"another one has been let":    {machines: []v1alpha1.TalosMachine{broken(), other(pending, granted)}, other: approval, asked: true},
		"another one is at it":        {machines: []v1alpha1.TalosMachine{broken(), other(change(v1alpha1.ChangeSettling))}, other: approval, asked: true},
		"it is rolled back by itself": {machines: []v1alpha1.TalosMachine{broken(booted)}, edit: func(o *v1alpha1.UpgradeOptions) { o.Rollback = v1alpha1.RollbackAutomatic }},
		"others are not selected": {
			machines: []v1alpha1.TalosMachine{broken(), other(pending)}, other: waits, stands: true,
			edit: func(o *v1alpha1.UpgradeOptions) {
				o.MachineSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"name": "w-0"}}
			},
		},
	} {
		cp := &v1alpha1.TalosControlPlane{ObjectMeta: metav1.ObjectMeta{Name: "c", Generation: 7}}
		cp.Spec.Upgrade = &v1alpha1.UpgradeOptions{Kubernetes: v1alpha1.UpgradeAutomatic}
		cp.Status.Upgrade = &v1alpha1.UpgradeStatus{ObservedGeneration: 7, KubernetesVersion: wanted}

		if c.edit != nil {
			c.edit(cp.Spec.Upgrade)
		}

		workers := []v1alpha1.TalosWorker{
			{ObjectMeta: metav1.ObjectMeta{Name: "group"}, Status: v1alpha1.TalosWorkerStatus{Plan: &v1alpha1.PlanStatus{Phase: v1alpha1.PlanStopped}}},
			{ObjectMeta: metav1.ObjectMeta{Name: "other"}},
		}
		if c.other != "" {
			workers[1].Status.Plan = &v1alpha1.PlanStatus{Phase: c.other}
		}

		in := history.Input{Component: upgrade.Kubernetes, ControlPlane: cp, Machines: append(c.machines, plane)}
		run := &clusterstate.UpgradeRun{Component: "Kubernetes", From: old, To: wanted}

		if stands, asked := standstill(in, workers, run); stands != c.stands || asked != c.asked {
			t.Errorf("%s: stands %t, asked %t", name, stands, asked)
		}
	}
}

// TestHoldWorkers: an upgrade that no worker has begun is not published while hooks hold it; one that workers have
// begun stays, and holds them.
func TestHoldWorkers(t *testing.T) {
	const version = "v1.13.10"

	for name, c := range map[string]struct {
		begin, stands, busy, was bool
		published, held          bool
	}{
		"nothing holds it":         {begin: true, published: true},
		"a worker has stopped it":  {begin: true, stands: true, busy: true, published: true, held: true},
		"hooks after it run":       {stands: true, busy: true, was: true, published: true, held: true},
		"hooks before it, anew":    {was: true, published: true, held: true},
		"hooks before it":          {},
		"hooks have let it go on":  {begin: true, was: true, published: true},
		"one that has begun waits": {busy: true, published: true, held: true},
	} {
		s := newScope(&v1alpha1.TalosControlPlane{})
		s.base.Status.Upgrade = &v1alpha1.UpgradeStatus{WorkersHeld: c.was}
		s.guard.Busy = c.busy

		got := s.holdWorkers(&v1alpha1.UpgradeStatus{TalosVersion: version}, hook.Output{Begin: c.begin, Message: "a hook"}, c.stands)
		if (got.TalosVersion == version) != c.published || got.WorkersHeld != c.held || (c.held || !c.published) != (got.Message == "a hook") {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
