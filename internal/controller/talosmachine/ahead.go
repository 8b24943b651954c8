package talosmachine

import (
	"time"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/rollout"
)

const (
	// aheadTimeout limits the pull of one image. The node itself tries an image that cannot be pulled for 20 minutes, and
	// does not say why meanwhile.
	aheadTimeout = 30 * time.Minute
	// retryAhead is how soon images are pulled again that could not be pulled, and retryAheadLater how soon after
	// quickRetries failures: a registry must not be asked for ever each minute.
	retryAhead      = time.Minute
	retryAheadLater = 30 * time.Minute
	quickRetries    = 3
	// aheadAtOnce is how many machines of a cluster pull at the same time: they share a registry or a mirror.
	aheadAtOnce = 10
	// pollAhead is how soon a machine checks by itself whether it is next to pull. It is told so when a pull ends, unless
	// the machine that was told before it did not begin.
	pollAhead = 30 * time.Second
)

// pullsAhead reports whether the node has not pulled the images of the version yet that its cluster is about to be
// upgraded to.
func (s *scope) pullsAhead() bool {
	want, has := s.requested(), s.machine.Status.Images

	return want != "" && (has == nil || has.RequestedFor != want || !has.Pulled)
}

// requested names the images that the node pulls; empty if there are none. A machine that is not selected for upgrades
// stays as it is.
func (s *scope) requested() string {
	if len(rollout.Unselected(s.controlPlane, []v1alpha1.TalosMachine{*s.machine})) > 0 {
		return ""
	}

	return rollout.ImagesFor(s.controlPlane, s.worker)
}

// installerAhead returns the installer of the version of Talos that the cluster is about to be upgraded to; empty if
// the machine does not get it. It is pure.
func installerAhead(cp *v1alpha1.TalosControlPlane, m *v1alpha1.TalosMachine, runs running, image string) string {
	u := cp.Status.Upgrade
	if u == nil || u.Pulling == nil || u.Pulling.TalosVersion == "" {
		return ""
	}

	next := cp.DeepCopy()
	next.Status.Upgrade = &v1alpha1.UpgradeStatus{
		ObservedGeneration: cp.Generation, TalosVersion: u.Pulling.TalosVersion, ControlPlaneDone: true,
	}

	found := compareSystems(next, m, runs, image)
	if found.want == found.live || found.reverting {
		return ""
	}

	return found.image
}
