package rollout_test

import (
	"testing"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/rollout"
)

// ofKubernetes makes a change one of a component of Kubernetes.
func ofKubernetes(m *v1alpha1.TalosMachine) { m.Status.Change.Kind = v1alpha1.ChangeKubernetes }

// calledOff makes a change one that takes a component of Kubernetes back.
func calledOff(m *v1alpha1.TalosMachine) {
	const image = "registry.k8s.io/kube-apiserver:"

	ofKubernetes(m)
	m.Status.Change.Fields = []v1alpha1.FieldChange{{Field: "cluster.apiServer.image", Old: image + "v1.36.2", New: image + "v1.35.1"}}
}

// TestUpgradeOfKubernetes: it waits for a maintenance window although nothing reboots, and the approval of its first
// plan holds for the next ones of the control plane, but for nothing else that is planned with them.
func TestUpgradeOfKubernetes(t *testing.T) {
	upgrading := func(approved bool) *v1alpha1.TalosControlPlane {
		cp := &v1alpha1.TalosControlPlane{}
		cp.Status.Upgrade = &v1alpha1.UpgradeStatus{KubernetesVersion: "v1.36.2", Approved: approved}

		return cp
	}

	for name, c := range map[string]struct {
		options  rollout.Options
		approved bool
		worker   *v1alpha1.TalosWorker
		machines machines
		phase    v1alpha1.PlanPhase
		ready    int
	}{
		"outside of a window": {options(closed), false, nil, machines{machine("a", pending("1", "2"), ofKubernetes)}, v1alpha1.PlanWaiting, 0},
		"in a window":         {options(open), false, nil, machines{machine("a", pending("1", "2"), ofKubernetes)}, v1alpha1.PlanRollingOut, 1},
		"not approved":        {options(manual), false, nil, machines{machine("a", pending("1", "2"), ofKubernetes)}, v1alpha1.PlanAwaitingApproval, 0},
		"approved before":     {options(manual), true, nil, machines{machine("a", pending("1", "2"), ofKubernetes)}, v1alpha1.PlanRollingOut, 1},
		"with a change of the configuration": {
			options(manual), true, nil,
			machines{machine("a", pending("1", "2"), ofKubernetes), machine("b", pending("1", "2"))},
			v1alpha1.PlanAwaitingApproval, 0,
		},
		"a worker group": {
			options(manual), true, &v1alpha1.TalosWorker{},
			machines{machine("a", pending("1", "2"), ofKubernetes)},
			v1alpha1.PlanAwaitingApproval, 0,
		},
	} {
		cp := upgrading(c.approved)
		for i := range c.machines {
			c.machines[i].Status.ComparedTo = rollout.ComparedTo(cp, c.worker, &c.machines[i])
		}

		out, err := rollout.Assess(rollout.Input{
			Options: c.options, Machines: c.machines, ControlPlane: cp, Worker: c.worker, Now: now,
		})
		if err != nil || out.Plan.Phase != c.phase || len(out.Ready) != c.ready {
			t.Errorf("%s: %v, %+v, %d ready", name, err, out.Plan, len(out.Ready))
		}
	}
}
