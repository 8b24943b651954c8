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

	if targetOf(s.cp).Kubernetes == "" {
		st.Manifests = nil // the operator upgrades no Kubernetes, so none of it is its to end

		return nil
	}

	runs, missing := versionsOf(s.cp, r.group(s).Entries(), machines)
	if len(missing) > 0 {
		return nil // what is unknown ends nothing: the status stays
	}

	var due bool

	policy := manifests.Policy(s.cp, next, installing(machines))
	if st.Manifests, due = manifests.Due(st.Manifests, next, runs, policy); !due {
		r.compared.forget(s.key())

		return nil
	}

	version := st.Manifests.KubernetesVersion
	of := fmt.Sprintf("%d/%s/%s", s.cp.Generation, version, policy)

	last, ok := r.compared.get(s.key(), of, r.Clock.Now())
	if !ok {
		last = r.lookAtManifests(ctx, s, policy, machines)
		last.of = of

		if st.Manifests == nil {
			r.compared.forget(s.key())
		} else {
			r.compared.put(s.key(), last)
		}
	}

	if last.message == "" {
		return nil
	}

	held := manifests.Held(s.cp, next, version, last.message)
	held.Reason = last.reason

	return held
}

// lookAtManifests compares manifests, and applies them once if policy says so. It returns until when that holds, and
// what the upgrade waits for, if anything.
func (r *Reconciler) lookAtManifests(
	ctx context.Context, s *scope, policy v1alpha1.ManifestPolicy, machines []v1alpha1.TalosMachine,
) (last preflight) {
	st := &s.cp.Status
	version, write := st.Manifests.KubernetesVersion, policy == v1alpha1.ManifestsApply && !st.Manifests.Applied
	again := manifestsRetry

	found, problem := r.syncManifests(ctx, s, version, machines, write)
	st.Manifests = manifests.Status(st.Manifests, found, policy, problem)

	if write && problem != "" {
		last.message = "waiting for the bootstrap manifests of Kubernetes " + version + ": " + problem
	} else if write {
		last.message = found.Waits(version)
	}

	last.reason = manifests.HeldBy(st.Upgrade, found, write, problem)

	if problem == "" && last.message == "" {
		again = manifestsInterval
	}

	last.until = r.Clock.Now().Add(again)

	return last
}

// syncManifests compares the cluster to the manifests of a version and, with write, applies them. problem says why that
// was not possible.
func (r *Reconciler) syncManifests(
	ctx context.Context, s *scope, version string, machines []v1alpha1.TalosMachine, write bool,
) (found manifests.Outcome, problem string) {
	want, problem := manifests.Merge(r.servedManifests(ctx, s, version, machines), version)
	if problem != "" {
		return found, problem
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

	found, err = cluster.Manifests(ctx, want, write)
	if err != nil {
		ctrl.LoggerFrom(ctx).Info("Comparing the bootstrap manifests failed", "error", failure.Message(err))

		return found, "the comparison failed: " + failure.Message(err)
	}

	n, unchanged := found.Count(), found.Unchanged()
	if write && (n > 0 || len(found.Kept) > 0 || unchanged != "") {
		ctrl.LoggerFrom(ctx).Info("Applied bootstrap manifests", "version", version, "objects", found.Names(n),
			"refused", found.Refusals(), "unchanged", unchanged, "kept", found.Kept)
	}

	return found, ""
}

func failureOr(err error, message string) string {
	if err != nil {
		return failure.Message(err)
	}

	return message
}

// servedManifests returns what each control-plane machine says about its manifests. One that is on its way to another
// configuration, or out of the cluster, says nothing.
func (r *Reconciler) servedManifests(
	ctx context.Context, s *scope, version string, machines []v1alpha1.TalosMachine,
) []manifests.Served {
	source := r.source(s)

	var all []manifests.Served

	for _, m := range controlPlaneOf(machines) {
		served := manifests.Served{Problem: "it is not configured for this version, or is being changed or deleted"}

		if servesManifests(&m, version) {
			node, err := r.Nodes.Node(ctx, source.Ref(&m))
			if err == nil {
				served, err = node.Manifests(ctx)
			}

			if err != nil {
				served = manifests.Served{Problem: failure.Message(err)}
			}
		}

		served.Machine = m.Name
		all = append(all, served)
	}

	return all
}

// servesManifests reports whether a control-plane machine has a configuration with a version of Kubernetes, and no
// other one is on its way.
func servesManifests(m *v1alpha1.TalosMachine, version string) bool {
	v, c := m.Status.ComponentVersions, m.Status.Change

	return !deleting(m) && meta.IsStatusConditionTrue(m.Status.Conditions, v1alpha1.ConditionConfigured) && v != nil &&
		upgrade.VersionOf(v.APIServer) == version && (!change.Begun(c) || c.Phase == v1alpha1.ChangeFailed)
}
