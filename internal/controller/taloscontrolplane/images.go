package taloscontrolplane

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/rollout"
	"github.com/talos-operator/talos-operator/internal/decide/upgrade"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/kube"
	"github.com/talos-operator/talos-operator/internal/pause"
)

const (
	// pollImages is how soon machines are observed again that images are awaited of: no event reports that a worker no
	// longer responds or is not ready.
	pollImages = 30 * time.Second
	// longestSilence is how long a machine may say nothing about its images before the upgrade no longer waits for it: its
	// reconciliation ends before the pull.
	longestSilence = 15 * time.Minute
	// pulledFor is how long machines are believed to have their images: Talos deletes one that nothing uses about an hour
	// after its pull.
	pulledFor = 30 * time.Minute
)

// requests remembers since when the machines of each cluster have not responded to a request for images. A restart
// loses them, which prolongs the wait. The zero value is ready to use and safe for concurrent use.
type requests struct {
	mu    sync.Mutex
	since map[types.NamespacedName]map[string]time.Time
}

// silent returns since when each machine says nothing, by what is requested of it, and forgets all others of the
// cluster.
func (r *requests) silent(key types.NamespacedName, asked []string, now time.Time) map[string]time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()

	out := map[string]time.Time{}

	for _, one := range asked {
		out[one] = now
		if at, ok := r.since[key][one]; ok {
			out[one] = at
		}
	}

	if r.since == nil {
		r.since = map[types.NamespacedName]map[string]time.Time{}
	}

	r.since[key] = out

	return out
}

func (r *requests) forget(key types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()

	delete(r.since, key)
}

// awaitMachines returns the status of an upgrade that has not begun: it does not begin before the machines have pulled
// their images of its version, which they do once its status asks for it. One that was allowed to begin, and waits for
// its approval or a window, stays allowed.
func (r *Reconciler) awaitMachines(
	ctx context.Context, s *scope, next *v1alpha1.UpgradeStatus, machines []v1alpha1.TalosMachine,
) *v1alpha1.UpgradeStatus {
	if next.TalosVersion+next.KubernetesVersion == "" {
		return next
	}

	was := s.cp.Status.Upgrade
	if s.cp.Spec.Upgrade.PrePull != v1alpha1.PrePullNever {
		next.Pulling = pullingFor(was, next)
	}

	held := preflight{}

	workers, err := r.workersOf(ctx, s.cp)
	if err != nil {
		ctrl.LoggerFrom(ctx).Info("Listing the worker groups before an upgrade failed", "error", err.Error())

		held.message = "the worker groups cannot be listed: " + failure.Message(err)
	} else {
		held = r.judgeMachines(ctx, s, next, workers, machines)
		next.Obstacles = kube.Shorten(upgrade.JoinObstacles(next.Obstacles, held.obstacles), longestMessage)
	}

	s.noteImages(next.Pulling, held, r.now())

	if held.message == "" || was != nil && was.ObservedGeneration == s.cp.Generation &&
		was.SchematicsOnly == next.SchematicsOnly && was.TalosVersion == next.TalosVersion &&
		was.KubernetesVersion == next.KubernetesVersion {
		return next
	}

	out := refused(next, was, held)
	out.Pulling, out.Obstacles = next.Pulling, next.Obstacles

	return out
}

// pullingFor returns the request for the images of an upgrade, with what is known about them. Each spec has the
// machines asked anew.
func pullingFor(was, next *v1alpha1.UpgradeStatus) *v1alpha1.UpgradeImages {
	if was != nil && samePull(was.Pulling, next) {
		p := was.Pulling.DeepCopy()
		if was.ObservedGeneration != next.ObservedGeneration {
			p.PulledTime = nil
		}

		return p
	}

	return &v1alpha1.UpgradeImages{TalosVersion: next.TalosVersion, KubernetesVersion: next.KubernetesVersion}
}

func samePull(p *v1alpha1.UpgradeImages, next *v1alpha1.UpgradeStatus) bool {
	return p != nil && p.TalosVersion == next.TalosVersion && p.KubernetesVersion == next.KubernetesVersion
}

// noteImages records since when the machines have the images of an upgrade. What is waited for later, such as a machine
// that has joined, does not make the images of the others newer.
func (s *scope) noteImages(p *v1alpha1.UpgradeImages, held preflight, now time.Time) {
	s.images = &held

	if p != nil && p.PulledTime == nil && held.message == "" {
		p.PulledTime = new(metav1.NewTime(now))
	}
}

// awaitImages says what the first machine of an upgrade waits for because machines may no longer have its images; empty
// if it is nothing. They are asked only once everything but backups and hooks permits it to begin: an approval may take
// days, and a pull each hour until then would be in vain. Without a judgement of this reconciliation, as while etcd
// does not respond, nothing is waited for: the upgrade may be what repairs the cluster.
func (r *Reconciler) awaitImages(s *scope, c rollout.Candidate) string {
	u := s.cp.Status.Upgrade
	if s.images == nil || u == nil || u.Pulling == nil || !upgrade.Advances(&c.Change) {
		return ""
	}

	p, now := u.Pulling, r.now()

	switch {
	case p.PulledTime == nil && p.Requests > 0:
		u.Reason = s.images.reason

		return s.images.message
	case p.PulledTime == nil || now.Sub(p.PulledTime.Time) < pulledFor:
		return ""
	}

	wait := fmt.Sprintf("the images were last confirmed at %s, and Talos deletes unused images after about an hour: "+
		"asking the machines again", p.PulledTime.UTC().Format(time.RFC3339))
	p.PulledTime = nil
	p.Requests++
	s.images.message = wait // the other candidates of this reconciliation wait for the same
	s.poll = earliest(s.poll, now.Add(pollImages))

	return wait
}

// judgeMachines decides from what the machines say about themselves whether an upgrade may begin.
func (r *Reconciler) judgeMachines(
	ctx context.Context, s *scope, next *v1alpha1.UpgradeStatus, workers []v1alpha1.TalosWorker,
	machines []v1alpha1.TalosMachine,
) preflight {
	version := "Talos " + next.TalosVersion
	if next.KubernetesVersion != "" {
		version = "Kubernetes " + next.KubernetesVersion
	}

	concerned := slices.DeleteFunc(concernedBy(s.cp, next, machines), func(m *v1alpha1.TalosMachine) bool {
		return r.holds(ctx, m, workerOf(workers, m))
	})
	out := preflight{obstacles: upgrade.ExplainHealth(unfit(concerned))}

	was := s.cp.Status.Upgrade
	if was == nil || next.Pulling == nil || !samePull(was.Pulling, next) {
		r.requests.forget(s.key()) // what machines did not say to an earlier request says nothing about this one
	}

	if next.Pulling != nil {
		may := func(group string) int { return mayFail(s.cp, workers, machines, group) }
		pulls := upgrade.JudgePulls(version, r.pullsOf(s, next, workers, concerned), may)
		out.obstacles = upgrade.JoinObstacles(out.obstacles, pulls.Tolerated)

		if out.message = pulls.Wait; out.message != "" {
			s.poll = r.Clock.Now().Add(pollImages)
		}

		switch {
		case pulls.Refused:
			out.reason = v1alpha1.ReasonUpgradeUnsupported
		case pulls.Failed:
			out.reason = v1alpha1.ReasonImagePull
		}
	}

	return out
}

// holds reports whether a machine is paused. Its annotations and those above it count: its condition may be of before.
// If that cannot be determined, the machine is waited for.
func (r *Reconciler) holds(ctx context.Context, m *v1alpha1.TalosMachine, w *v1alpha1.TalosWorker) bool {
	objects := []client.Object{m}
	if w != nil {
		objects = append(objects, w)
	}

	hold, err := pause.Find(ctx, r.Client, objects...)

	return err == nil && hold.Any()
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

// concernedBy returns the machines that an upgrade has to bring to its version. Those that are not selected are not
// among them, because nothing is done to them. It is pure.
func concernedBy(
	cp *v1alpha1.TalosControlPlane, next *v1alpha1.UpgradeStatus, machines []v1alpha1.TalosMachine,
) []*v1alpha1.TalosMachine {
	unselected := rollout.Unselected(cp, machines)

	return slices.DeleteFunc(configured(machines), func(m *v1alpha1.TalosMachine) bool {
		return slices.Contains(unselected, m.Name) || next.TalosVersion != "" && !getsTalos(m, next)
	})
}

// unfit returns the machines that do not respond, or are not ready. It is pure.
func unfit(machines []*v1alpha1.TalosMachine) []upgrade.Unfit {
	var out []upgrade.Unfit

	for _, m := range machines {
		if !responds(m) {
			out = append(out, upgrade.Unfit{Machine: m.Name})
		} else if c := notReady(m); c != nil {
			out = append(out, upgrade.Unfit{Machine: m.Name, Why: cmp.Or(c.Message, c.Reason)})
		}
	}

	return out
}

func responds(m *v1alpha1.TalosMachine) bool {
	return meta.IsStatusConditionTrue(m.Status.Conditions, v1alpha1.ConditionReachable)
}

// notReady returns the condition of a machine that says why it is not ready; nil if it does not.
func notReady(m *v1alpha1.TalosMachine) *metav1.Condition {
	c := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionReady)
	if c == nil || c.Status != metav1.ConditionFalse {
		return nil
	}

	return c
}

// pullsOf returns what the machines say about their images.
func (r *Reconciler) pullsOf(
	s *scope, next *v1alpha1.UpgradeStatus, workers []v1alpha1.TalosWorker, machines []*v1alpha1.TalosMachine,
) []upgrade.Pull {
	planned := s.cp.DeepCopy()
	planned.Status.Upgrade = next

	var asked []string

	requested := func(m *v1alpha1.TalosMachine) string { return rollout.ImagesFor(planned, workerOf(workers, m)) }
	request := func(m *v1alpha1.TalosMachine) string { return m.Name + " " + requested(m) }

	for _, m := range machines {
		if i := m.Status.Images; i == nil || i.RequestedFor != requested(m) {
			asked = append(asked, request(m))
		}
	}

	now := r.Clock.Now()
	since := r.requests.silent(s.key(), asked, now)

	var out []upgrade.Pull

	for _, m := range machines {
		at, silent := since[request(m)]
		out = append(out, pullOf(m, silent, silent && now.Sub(at) >= longestSilence))
	}

	return out
}

// pullOf returns what a machine says about its images: silent if it has said nothing since it was asked, for too long
// if it is overdue.
func pullOf(m *v1alpha1.TalosMachine, silent, overdue bool) upgrade.Pull {
	p := upgrade.Pull{Machine: m.Name, Group: groupOf(m), Skipped: !responds(m) || notReady(m) != nil}

	switch i := m.Status.Images; {
	case overdue && !p.Skipped:
		p.Skipped, p.Why = true, fmt.Sprintf("it has not begun to pull them within %s", longestSilence)
	case silent:
	case i.Pulled:
		p.Done = true
	case i.Refused != "":
		p.Refused = i.Refused
	case i.Message != "" && i.LastAttemptTime == nil && !p.Skipped: // it cannot tell which images it needs
		p.Skipped, p.Why = true, i.Message
	case i.LastAttemptTime != nil && responds(m):
		p.Problem = i.Message
	}

	return p
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
