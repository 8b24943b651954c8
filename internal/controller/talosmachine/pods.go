package talosmachine

import (
	"context"
	"slices"
	"strings"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/talos"
)

// podsField is where a machine config has its static pods.
const podsField = "machine.pods"

// podLag says which static pods a control-plane machine waits for that runs with a change of them; empty if for none.
// Otherwise the next machine would get pods that do not run on this one. All pods count, also those of patches: the
// kubelet refuses them all for one that is invalid, and then reports none.
func (r *Reconciler) podLag(ctx context.Context, s *scope) string {
	c := s.machine.Status.Change
	if c == nil || s.worker != nil || s.controlPlane == nil || s.liveHash != c.Target || !changesPods(c) {
		return ""
	}

	patience := min(talos.StaticPodLag, s.rollout().HealthTimeout/2)
	if c.Phase == v1alpha1.ChangeSettling && !c.Reboot && r.Clock.Now().Sub(c.Since.Time) < patience {
		return "its kubelet to report the static pods that it has now"
	}

	names, err := s.livePods()
	if err != nil {
		return "its static pods: " + err.Error()
	}

	if len(names) == 0 {
		return ""
	}

	node, err := r.node(ctx, s)
	if err != nil {
		return "its static pods, which cannot be queried: " + err.Error()
	}

	have, err := node.StaticPods(ctx)
	if err != nil {
		return "its static pods, which cannot be queried: " + err.Error()
	}

	return judgePods(s.machine.Name, names, have).message
}

// changesPods reports whether a change brings, alters or removes static pods, or may do so.
func changesPods(c *v1alpha1.MachineChange) bool {
	return c.MoreFields > 0 || slices.ContainsFunc(c.Fields, func(f v1alpha1.FieldChange) bool {
		rest, is := strings.CutPrefix(f.Field, podsField)

		return is && (rest == "" || rest[0] == '[' || rest[0] == '.')
	})
}
