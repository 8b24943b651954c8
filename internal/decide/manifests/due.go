package manifests

import (
	"slices"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/upgrade"
	"github.com/talos-operator/talos-operator/internal/kube"
)

// maxNames is how many objects a status names.
const maxNames = 16

// longestMessage is the maximum length of a message in a status.
const longestMessage = 1000

// Due returns what the status of a control plane says about manifests, nil if nothing, and whether they are compared or
// applied now. was is what it said. An upgrade of Kubernetes that is under way is noted first: once each machine runs
// its version, nothing else tells that there was one. runs is what the machines run, next the upgrade that comes next.
func Due(
	was *v1alpha1.ManifestsStatus, next *v1alpha1.UpgradeStatus, runs upgrade.Cluster, policy v1alpha1.ManifestPolicy,
) (*v1alpha1.ManifestsStatus, bool) {
	coming := ""
	if next != nil {
		coming = next.KubernetesVersion
	}

	reached := was != nil && was.KubernetesVersion != coming && runs.Runs(was.KubernetesVersion)

	switch {
	case reached && (coming == "" || policy == v1alpha1.ManifestsApply && !was.Applied):
		return was, true
	case coming == "":
		return nil, false
	case was != nil && was.KubernetesVersion == coming:
		return was, false
	}

	return &v1alpha1.ManifestsStatus{
		KubernetesVersion: coming,
		Message:           "the bootstrap manifests are compared once each machine runs Kubernetes " + coming,
	}, false
}

// Policy returns what becomes of manifests now. installing is a machine that is given another Talos; empty if none is.
// An upgrade that waits for manifests has no Talos in its status, from which machines would conclude that theirs was
// called off, so that manifests are only compared until Talos is the same everywhere.
func Policy(cp *v1alpha1.TalosControlPlane, next *v1alpha1.UpgradeStatus, installing string) v1alpha1.ManifestPolicy {
	now := next
	if now == nil || now.KubernetesVersion == "" && now.TalosVersion == "" {
		now = cp.Status.Upgrade // what comes next is not known, or nothing: what was on its way counts
	}

	wants, applied := cp.Spec.Upgrade.Manifests, cp.Status.Manifests != nil && cp.Status.Manifests.Applied
	if wants == v1alpha1.ManifestsApply && !applied && (installing != "" || now != nil && now.TalosVersion != "") {
		return v1alpha1.ManifestsReport
	}

	return wants
}

// Status returns the status for what a comparison has found; nil if there is nothing to say. problem is why there was
// none; then the objects that are known stay. Where the manifests are applied, only what is refused, withheld or left
// to others remains. Once only the latter does, they are applied no more.
func Status(
	was *v1alpha1.ManifestsStatus, found Outcome, policy v1alpha1.ManifestPolicy, problem string,
) *v1alpha1.ManifestsStatus {
	out := was.DeepCopy()

	if problem != "" {
		out.Message = kube.Shorten("the bootstrap manifests of Kubernetes "+was.KubernetesVersion+" are not compared: "+
			problem, longestMessage)

		return out
	}

	message := found.Report(was.KubernetesVersion)

	switch {
	case policy != v1alpha1.ManifestsApply:
		out.Applied = false
	case was.Applied:
		found, message = Outcome{Left: found.Left}, ""
	default:
		found.Differences = slices.DeleteFunc(slices.Clone(found.Differences), func(d Difference) bool {
			return d.Action != Delete && !found.refuses(d.Key)
		})
		message = found.Waits(was.KubernetesVersion)
		out.Applied = len(found.Refused) == 0 && len(found.Withheld) == 0
	}

	if notes := found.Unchanged(); message != "" && notes != "" {
		message += "; " + notes
	} else {
		message += notes
	}

	if message == "" {
		return nil
	}

	out.Differing, out.Objects = int32(found.Count()), found.Names(maxNames)
	out.Message = kube.Shorten(message, longestMessage)

	return out
}

// Held returns the status of an upgrade that waits for manifests. The step that they end stays: the record of the
// upgrade follows it, and no other one begins.
func Held(
	cp *v1alpha1.TalosControlPlane, next *v1alpha1.UpgradeStatus, version, message string,
) *v1alpha1.UpgradeStatus {
	out := &v1alpha1.UpgradeStatus{
		ObservedGeneration: cp.Generation, KubernetesVersion: version, KubernetesFrom: version, StepsLeft: 1,
		Components: []v1alpha1.KubernetesComponent{
			v1alpha1.ComponentAPIServer, v1alpha1.ComponentControllerManager, v1alpha1.ComponentScheduler,
			v1alpha1.ComponentProxy, v1alpha1.ComponentKubelet,
		},
		TargetKubernetes: cp.Spec.KubernetesVersion, Message: kube.Shorten(message, longestMessage),
	}

	if was := cp.Status.Upgrade; was != nil {
		out.KubernetesBegun, out.Approved = was.KubernetesBegun, was.Approved

		if was.PointOfNoReturn != "" { // otherwise a version was taken back
			out.PointOfNoReturn = v1alpha1.PointOfNoReturnPassed
		}
	}

	if next != nil {
		out.Target, out.TargetKubernetes, out.StepsLeft = next.Target, next.TargetKubernetes, next.StepsLeft+1
	}

	return out
}

// HeldBy returns why an upgrade waits for its manifests, in one word; empty if that is not for a user to resolve. What
// was refused stays refused while it cannot be looked for: was is the upgrade before, and problem why there was no
// comparison. applies: the manifests are applied.
func HeldBy(was *v1alpha1.UpgradeStatus, found Outcome, applies bool, problem string) string {
	refused := len(found.Refused) > 0 ||
		problem != "" && was != nil && was.Reason == v1alpha1.ReasonManifestsRefused

	if applies && refused {
		return v1alpha1.ReasonManifestsRefused
	}

	return ""
}
