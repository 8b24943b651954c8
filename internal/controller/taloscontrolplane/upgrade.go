package taloscontrolplane

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/upgrade"
	"github.com/talos-operator/talos-operator/internal/kube"
)

// maxUpgraded is how many machines the status of an upgrade names.
const maxUpgraded = 16

// planUpgrade decides which version of Talos the machines of the cluster are upgraded to now. They follow the status,
// never the spec, so that no machine gets ahead of a path that others have not gone.
func (r *Reconciler) planUpgrade(ctx context.Context, s *scope) (ctrl.Result, error) {
	o := s.cp.Spec.Upgrade
	if o == nil || o.Talos != v1alpha1.UpgradeAutomatic {
		s.cp.Status.Upgrade = nil

		return ctrl.Result{}, nil
	}

	// The path goes on once each machine has taken a step of it, so they are read live.
	list := &v1alpha1.TalosMachineList{}

	err := r.Reader.List(ctx, list, client.InNamespace(s.cp.Namespace),
		client.MatchingLabels{v1alpha1.ControlPlaneLabel: s.cp.Name})
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("listing the machines of %s: %w", s.cp.Name, err)
	}

	s.cp.Status.Upgrade = upgradeOf(s.cp, list.Items)

	return ctrl.Result{}, nil
}

// upgradeOf returns the state of an upgrade; nil if each machine runs what the spec asks for. It is pure.
func upgradeOf(cp *v1alpha1.TalosControlPlane, machines []v1alpha1.TalosMachine) *v1alpha1.UpgradeStatus {
	out := &v1alpha1.UpgradeStatus{ObservedGeneration: cp.Generation, Target: cp.Spec.TalosVersion}

	runs, missing := versionsOf(cp, machines)
	if len(missing) > 0 {
		// What machines do meanwhile goes on: a node that boots tells its versions later than it answers.
		if was := cp.Status.Upgrade; was != nil && was.Target == out.Target && was.ObservedGeneration == cp.Generation {
			out = was.DeepCopy()
		}

		out.Message = kube.Shorten("waiting for the versions of "+strings.Join(missing, ", "), longestMessage)

		return out
	}

	now, err := upgrade.NextTalos(runs, upgrade.Target{Talos: cp.Spec.TalosVersion}, cp.Spec.Upgrade.Via...)

	var refusal *upgrade.Refusal

	switch {
	case errors.As(err, &refusal):
		out.Message = kube.Shorten(refusal.Error(), longestMessage)
	case now.Left == 0:
		return nil
	default:
		out.TalosVersion, out.StepsLeft, out.Message = now.Talos, int32(now.Left), now.Waits
		out.Machines = now.Machines[:min(len(now.Machines), maxUpgraded)]
		out.ControlPlaneDone = !slices.ContainsFunc(runs.Nodes, func(n upgrade.Node) bool {
			return n.ControlPlane && slices.Contains(now.Machines, n.Name)
		})
	}

	return out
}

// versionsOf returns what the machines of a cluster run, and the names of those of which that is not known. A worker
// that is not configured gets its versions with its first config; a control-plane machine that is not may be an old
// one, whose object was made anew.
func versionsOf(cp *v1alpha1.TalosControlPlane, machines []v1alpha1.TalosMachine) (upgrade.Cluster, []string) {
	runs, missing := upgrade.Cluster{Kubernetes: cp.Status.ObservedKubeVersion}, []string{}

	for _, e := range cp.Spec.Machines {
		if !slices.ContainsFunc(machines, func(m v1alpha1.TalosMachine) bool {
			return m.Name == e.Name && m.DeletionTimestamp.IsZero()
		}) {
			missing = append(missing, e.Name)
		}
	}

	for i := range machines {
		m := &machines[i]
		worker := m.Spec.WorkerRef != nil

		switch configured := meta.IsStatusConditionTrue(m.Status.Conditions, v1alpha1.ConditionConfigured); {
		case !m.DeletionTimestamp.IsZero(), worker && !configured:
		case !configured, m.Status.TalosVersion == "", m.Status.KubeletVersion == "":
			missing = append(missing, m.Name)
		default:
			runs.Nodes = append(runs.Nodes, upgrade.Node{
				Name: m.Name, ControlPlane: !worker, Talos: m.Status.TalosVersion,
				Kubelet: upgrade.KubeletVersion(m.Status.KubeletVersion),
			})
		}
	}

	return runs, missing
}

// longestMessage is the maximum length of a message in a status.
const longestMessage = 1000
