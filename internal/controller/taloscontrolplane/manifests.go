package taloscontrolplane

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/change"
	"github.com/talos-operator/talos-operator/internal/decide/manifests"
	"github.com/talos-operator/talos-operator/internal/decide/upgrade"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/safety"
)

const (
	// manifestsInterval is how often differences that are only reported are looked for again: nothing reports that a user
	// has removed them.
	manifestsInterval = 10 * time.Minute
	// manifestsRetry is how soon manifests are applied again that were refused, or could not be compared.
	manifestsRetry = time.Minute
)

// settleManifests compares the cluster to the bootstrap manifests of Talos once each machine runs a version of
// Kubernetes, and applies them if the spec says so. It returns the status of an upgrade that waits for them; nil if
// none does.
func (r *Reconciler) settleManifests(
	ctx context.Context, s *scope, next *v1alpha1.UpgradeStatus, machines []v1alpha1.TalosMachine,
) *v1alpha1.UpgradeStatus {
	st := &s.cp.Status
	policy := s.cp.Spec.Upgrade.Manifests

	if targetOf(s.cp).Kubernetes == "" {
		st.Manifests = nil // the operator upgrades no Kubernetes, so none of it is its to end

		return nil
	}

	runs, missing := versionsOf(s.cp, r.group(s).Entries(), machines)
	if len(missing) > 0 {
		return nil // what is unknown ends nothing: the status stays
	}

	var due bool

	if st.Manifests, due = manifests.Due(st.Manifests, next, runs, policy); !due {
		r.compared.forget(s.key())

		return nil
	}

	version := st.Manifests.KubernetesVersion
	of := fmt.Sprintf("%d/%s", s.cp.Generation, version)

	if last, ok := r.compared.get(s.key(), of, r.Clock.Now()); ok {
		if policy != v1alpha1.ManifestsApply {
			return nil
		}

		return manifests.Held(s.cp, next, version, last.message)
	}

	return r.lookAtManifests(ctx, s, next, machines)
}

// lookAtManifests compares and applies manifests, and remembers until when that holds.
func (r *Reconciler) lookAtManifests(
	ctx context.Context, s *scope, next *v1alpha1.UpgradeStatus, machines []v1alpha1.TalosMachine,
) *v1alpha1.UpgradeStatus {
	st := &s.cp.Status
	version, write := st.Manifests.KubernetesVersion, s.cp.Spec.Upgrade.Manifests == v1alpha1.ManifestsApply
	last, again := preflight{of: fmt.Sprintf("%d/%s", s.cp.Generation, version)}, manifestsRetry

	found, problem := r.syncManifests(ctx, s, version, machines, write)
	st.Manifests = manifests.Status(st.Manifests, found, s.cp.Spec.Upgrade.Manifests, problem)

	switch {
	case problem != "":
		last.message = "waiting for the bootstrap manifests of Kubernetes " + version + ": " + problem
	case write:
		last.message = found.Waits(version)
	default:
		again = manifestsInterval
	}

	if problem == "" && (write && last.message == "" || !write && st.Manifests.Differing == 0) {
		st.Manifests = nil
		r.compared.forget(s.key())

		return nil
	}

	last.until = r.Clock.Now().Add(again)
	r.compared.put(s.key(), last)

	if !write {
		return nil
	}

	return manifests.Held(s.cp, next, version, last.message)
}

// syncManifests compares the cluster to the manifests of a version and, with write, applies them. problem says why that
// was not possible.
func (r *Reconciler) syncManifests(
	ctx context.Context, s *scope, version string, machines []v1alpha1.TalosMachine, write bool,
) (found manifests.Outcome, problem string) {
	served, problem := r.servedManifests(ctx, s, version, machines)
	if problem != "" {
		return found, problem
	}

	objects, err := served.Objects()
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "The bootstrap manifests of a node cannot be read")

		return found, "those of " + served.Machine + " cannot be read"
	}

	if write {
		if verdict, err := r.ownerPermits(ctx, s); err != nil || verdict.Action != safety.Proceed {
			return found, failureOr(err, verdict.Message)
		}
	}

	cluster, err := r.Workloads.Cluster(ctx, s.held.State.Bundle, s.addresses())
	if err != nil {
		return found, failure.Message(err)
	}

	found, err = cluster.Manifests(ctx, objects, write)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Comparing the bootstrap manifests failed")

		return found, "the comparison failed; see the operator log"
	}

	if n := found.Count(); write && n > 0 {
		ctrl.LoggerFrom(ctx).Info("Applied bootstrap manifests", "version", version, "objects", found.Names(n),
			"refused", found.Refusals())
	}

	return found, ""
}

func failureOr(err error, message string) string {
	if err != nil {
		return failure.Message(err)
	}

	return message
}

// servedManifests returns the manifests of one control-plane machine that runs the version and serves those of its
// configuration. problem is that of the last machine that does not.
func (r *Reconciler) servedManifests(
	ctx context.Context, s *scope, version string, machines []v1alpha1.TalosMachine,
) (served manifests.Served, problem string) {
	source := r.source(s)
	problem = "no control-plane machine is configured for this version"

	for _, m := range controlPlaneOf(machines) {
		if !servesManifests(&m, version) {
			continue
		}

		node, err := r.Nodes.Node(ctx, source.Ref(&m))
		if err == nil {
			served, err = node.Manifests(ctx)
		}

		if err != nil {
			problem = m.Name + ": " + failure.Message(err)

			continue
		}

		served.Machine = m.Name
		if problem = served.Refuse(version); problem == "" {
			return served, ""
		}
	}

	return manifests.Served{}, problem
}

// servesManifests reports whether a control-plane machine has a configuration with a version of Kubernetes, and no
// other one is on its way.
func servesManifests(m *v1alpha1.TalosMachine, version string) bool {
	v, c := m.Status.ComponentVersions, m.Status.Change

	return !deleting(m) && meta.IsStatusConditionTrue(m.Status.Conditions, v1alpha1.ConditionConfigured) && v != nil &&
		upgrade.VersionOf(v.APIServer) == version && (!change.Begun(c) || c.Phase == v1alpha1.ChangeFailed)
}
