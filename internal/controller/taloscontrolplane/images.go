package taloscontrolplane

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/rollout"
	"github.com/talos-operator/talos-operator/internal/decide/upgrade"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/kube"
)

// pollReady is how soon machines are looked at again that are not ready: those of worker groups do not tell.
const pollReady = 30 * time.Second

// awaitMachines returns the status of an upgrade that has not begun: it does not begin while workers are not ready, nor
// before the machines have pulled their images of its version, which they do once its status asks for it. One that was
// allowed to begin, and waits for its approval or a window, stays allowed.
func (r *Reconciler) awaitMachines(
	ctx context.Context, s *scope, next *v1alpha1.UpgradeStatus, machines []v1alpha1.TalosMachine,
) *v1alpha1.UpgradeStatus {
	if next.TalosVersion+next.KubernetesVersion == "" {
		return next
	}

	was := s.cp.Status.Upgrade
	if s.cp.Spec.Upgrade.PrePull != v1alpha1.PrePullNever {
		next.Pulling = &v1alpha1.UpgradeImages{TalosVersion: next.TalosVersion, KubernetesVersion: next.KubernetesVersion}
	}

	held := preflight{}

	workers, err := r.workersOf(ctx, s.cp)
	if err != nil {
		ctrl.LoggerFrom(ctx).Info("Listing the worker groups before an upgrade failed", "error", err.Error())

		held.message = "the worker groups cannot be listed: " + failure.Message(err)
	} else {
		held = r.judgeMachines(s, next, workers, machines)
		next.Obstacles = kube.Shorten(upgrade.JoinObstacles(next.Obstacles, held.obstacles), longestMessage)
	}

	if held.message == "" || was != nil && was.ObservedGeneration == s.cp.Generation &&
		was.TalosVersion == next.TalosVersion && was.KubernetesVersion == next.KubernetesVersion {
		return next
	}

	out := refused(next, was, held)
	out.Pulling, out.Obstacles = next.Pulling, next.Obstacles

	return out
}

// judgeMachines decides from what the machines say about themselves whether an upgrade may begin.
func (r *Reconciler) judgeMachines(
	s *scope, next *v1alpha1.UpgradeStatus, workers []v1alpha1.TalosWorker, machines []v1alpha1.TalosMachine,
) preflight {
	version := "Talos " + next.TalosVersion
	if next.KubernetesVersion != "" {
		version = "Kubernetes " + next.KubernetesVersion
	}

	concerned := concernedBy(s.cp, next, machines)
	may := func(group string) int { return mayFail(s.cp, workers, machines, group) }

	wait, sick := upgrade.JudgeHealth(version, sickOf(concerned), may)
	if wait != "" {
		s.poll = r.Clock.Now().Add(pollReady)
	}

	out := preflight{message: wait, obstacles: sick}

	if next.Pulling != nil {
		pulls := upgrade.JudgePulls(version, pullsOf(s.cp, next, workers, concerned), may)
		out.obstacles = upgrade.JoinObstacles(sick, pulls.Tolerated)
		out.message = upgrade.JoinObstacles(wait, pulls.Wait)

		if pulls.Failed {
			out.reason = v1alpha1.ReasonImagePull
		}
	}

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

// concernedBy returns the machines that an upgrade has to bring to its version. Those that are not selected, or are
// paused, are not among them, because nothing is done to them. It is pure.
func concernedBy(
	cp *v1alpha1.TalosControlPlane, next *v1alpha1.UpgradeStatus, machines []v1alpha1.TalosMachine,
) []*v1alpha1.TalosMachine {
	unselected := rollout.Unselected(cp, machines)

	return slices.DeleteFunc(configured(machines), func(m *v1alpha1.TalosMachine) bool {
		return slices.Contains(unselected, m.Name) || m.Status.TalosVersion == next.TalosVersion ||
			meta.IsStatusConditionTrue(m.Status.Conditions, v1alpha1.ConditionPaused)
	})
}

// sickOf returns the machines that respond and say that they are not ready. It is pure.
func sickOf(machines []*v1alpha1.TalosMachine) []upgrade.Sick {
	var out []upgrade.Sick

	for _, m := range machines {
		c := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionReady)
		if c != nil && c.Status == metav1.ConditionFalse && c.Reason == v1alpha1.ReasonNodeNotReady {
			out = append(out, upgrade.Sick{Machine: m.Name, Group: groupOf(m), Why: c.Message})
		}
	}

	return out
}

// pullsOf returns what the machines say about their images. It is pure.
func pullsOf(
	cp *v1alpha1.TalosControlPlane, next *v1alpha1.UpgradeStatus, workers []v1alpha1.TalosWorker,
	machines []*v1alpha1.TalosMachine,
) []upgrade.Pull {
	planned := cp.DeepCopy()
	planned.Status.Upgrade = next

	var out []upgrade.Pull

	for _, m := range machines {
		p := upgrade.Pull{Machine: m.Name, Group: groupOf(m)}

		if said := m.Status.Images; said != nil && said.RequestedFor == rollout.ImagesFor(planned, workerOf(workers, m)) {
			p.Done, p.Problem = said.Pulled, said.Message
		}

		if !p.Done && p.Problem == "" && !meta.IsStatusConditionTrue(m.Status.Conditions, v1alpha1.ConditionReachable) {
			p.Problem = m.Name + " does not respond"
		}

		out = append(out, p)
	}

	return out
}

// groupOf returns the name of the group of a worker; empty for a control-plane machine.
func groupOf(m *v1alpha1.TalosMachine) string {
	if m.Spec.WorkerRef == nil {
		return ""
	}

	return m.Spec.WorkerRef.Name
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
