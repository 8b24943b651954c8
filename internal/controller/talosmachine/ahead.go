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

// ahead is what a machine gets of the version of Talos that its cluster is about to be upgraded to.
type ahead struct {
	// installer of that version; empty if the machine does not get it.
	installer string
	// refused says why it must not get it; empty if it may.
	refused string
}

// installerAhead returns what a machine gets of the version that the cluster is about to be upgraded to. It is pure.
func installerAhead(cp *v1alpha1.TalosControlPlane, m *v1alpha1.TalosMachine, runs running, image string) ahead {
	u := cp.Status.Upgrade
	if u == nil || u.Pulling == nil || u.Pulling.TalosVersion == "" {
		return ahead{}
	}

	next := cp.DeepCopy()
	next.Status.Upgrade = &v1alpha1.UpgradeStatus{
		ObservedGeneration: cp.Generation, TalosVersion: u.Pulling.TalosVersion, ControlPlaneDone: true,
	}

	runs.incomplete = false // what it has not reported yet refuses nothing before the upgrade

	found := compareSystems(next, m, runs, image)

	switch {
	case found.reverting:
		return ahead{}
	case found.refused != "":
		return ahead{refused: found.refused}
	case found.want == found.live:
		return ahead{}
	}

	return ahead{installer: found.image}
}
