package taloscontrolplane

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/rollout"
	"github.com/talos-operator/talos-operator/internal/decide/upgrade"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/kube"
)

// awaitImages returns the status of an upgrade that has not begun: it does not begin before the machines have pulled
// their images of its version, which they do once its status asks for it. One that was allowed to begin, and waits for
// its approval or a window, stays allowed.
func (r *Reconciler) awaitImages(
	ctx context.Context, s *scope, next *v1alpha1.UpgradeStatus, machines []v1alpha1.TalosMachine,
) *v1alpha1.UpgradeStatus {
	if s.cp.Spec.Upgrade.PrePull == v1alpha1.PrePullNever || next.TalosVersion+next.KubernetesVersion == "" {
		return next
	}

	was := s.cp.Status.Upgrade
	next.PrePull = &v1alpha1.UpgradeImages{TalosVersion: next.TalosVersion, KubernetesVersion: next.KubernetesVersion}

	wait, reason := "", ""

	workers, err := r.workersOf(ctx, s.cp)
	if err != nil {
		ctrl.LoggerFrom(ctx).Info("Listing the worker groups before an upgrade failed", "error", err.Error())

		wait = "the worker groups cannot be listed: " + failure.Message(err)
	} else {
		found := judgeImages(s.cp, next, workers, machines)
		next.Obstacles = kube.Shorten(upgrade.JoinObstacles(next.Obstacles, found.Tolerated), longestMessage)
		wait = found.Wait

		if found.Failed {
			reason = v1alpha1.ReasonImagePull
		}
	}

	if wait == "" || was != nil && was.ObservedGeneration == s.cp.Generation &&
		was.TalosVersion == next.TalosVersion && was.KubernetesVersion == next.KubernetesVersion {
		return next
	}

	out := refused(next, was, preflight{message: wait, reason: reason})
	out.PrePull, out.Obstacles = next.PrePull, next.Obstacles

	return out
}

// workersOf returns the worker groups of a control plane.
func (r *Reconciler) workersOf(ctx context.Context, cp *v1alpha1.TalosControlPlane) ([]v1alpha1.TalosWorker, error) {
	list := &v1alpha1.TalosWorkerList{}
	if err := r.Client.List(ctx, list, client.InNamespace(cp.Namespace), kube.Shared); err != nil {
		return nil, fmt.Errorf("listing the worker groups of %s: %w", cp.Name, err)
	}

	var out []v1alpha1.TalosWorker

	for i := range list.Items {
		if list.Items[i].Spec.ControlPlaneRef.Name == cp.Name {
			out = append(out, list.Items[i])
		}
	}

	return out, nil
}

// judgeImages decides from what the machines say about their images whether the upgrade may begin. A machine that is not
// selected, or is paused, gets none, and is not waited for. It is pure.
func judgeImages(
	cp *v1alpha1.TalosControlPlane, next *v1alpha1.UpgradeStatus, workers []v1alpha1.TalosWorker,
	machines []v1alpha1.TalosMachine,
) upgrade.Pulls {
	planned := cp.DeepCopy()
	planned.Status.Upgrade = next

	var pulls []upgrade.Pull

	unselected := rollout.Unselected(cp, machines)

	for _, m := range configured(machines) {
		if slices.Contains(unselected, m.Name) || m.Status.TalosVersion == next.TalosVersion ||
			meta.IsStatusConditionTrue(m.Status.Conditions, v1alpha1.ConditionPaused) {
			continue
		}

		w := workerOf(workers, m)
		p := upgrade.Pull{Machine: m.Name}

		if m.Spec.WorkerRef != nil {
			p.Group = m.Spec.WorkerRef.Name
		}

		if said := m.Status.Images; said != nil && said.WantedBy == rollout.ImagesFor(planned, w) {
			p.Done, p.Problem = said.Pulled, said.Message
		}

		if !p.Done && p.Problem == "" && !meta.IsStatusConditionTrue(m.Status.Conditions, v1alpha1.ConditionReachable) {
			p.Problem = m.Name + " does not respond"
		}

		pulls = append(pulls, p)
	}

	version := "Talos " + next.TalosVersion
	if next.KubernetesVersion != "" {
		version = "Kubernetes " + next.KubernetesVersion
	}

	return upgrade.JudgePulls(version, pulls, func(group string) int { return mayFail(cp, workers, machines, group) })
}

// workerOf returns the group of a worker; nil for a control-plane machine, or if the group is gone.
func workerOf(workers []v1alpha1.TalosWorker, m *v1alpha1.TalosMachine) *v1alpha1.TalosWorker {
	for i := range workers {
		if w := &workers[i]; m.Spec.WorkerRef != nil && m.Spec.WorkerRef.Name == w.Name {
			return w
		}
	}

	return nil
}

// mayFail returns how many machines of a worker group may have failed before its rollout stops.
func mayFail(
	cp *v1alpha1.TalosControlPlane, workers []v1alpha1.TalosWorker, machines []v1alpha1.TalosMachine, group string,
) int {
	at := slices.IndexFunc(workers, func(w v1alpha1.TalosWorker) bool { return w.Name == group })
	if at < 0 {
		return 0
	}

	size := 0

	for i := range machines {
		if w := workerOf(workers, &machines[i]); w != nil && w.Name == group && !deleting(&machines[i]) {
			size++
		}
	}

	return rollout.OptionsOf(cp, &workers[at]).MayFail(size)
}
