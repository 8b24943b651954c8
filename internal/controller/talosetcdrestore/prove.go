package talosetcdrestore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/decide/restore"
	"github.com/talos-operator/talos-operator/internal/evidence"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/kube"
	"github.com/talos-operator/talos-operator/internal/safety"
	"github.com/talos-operator/talos-operator/internal/workload"
)

// waitForWorkers is how long a restore waits for the kubelets of workers. It completes without those that do not
// return: they may have been removed since the backup.
const waitForWorkers = 2 * time.Minute

// cluster connects to the Kubernetes API on the named machines.
func (r *Reconciler) cluster(ctx context.Context, s *scope, names []string) (*workload.Cluster, error) {
	var addresses []string

	for _, name := range names {
		if m := s.machine(name); m != nil {
			addresses = append(addresses, evidence.Address(m))
		}
	}

	return r.Workloads.Cluster(ctx, s.held.State.Bundle, addresses)
}

// prove verifies that the running etcd is the restored one, by its revision, and that its Secrets can be read.
func (r *Reconciler) prove(ctx context.Context, s *scope, d restore.Decision) error {
	cluster, err := r.cluster(ctx, s, d.Machines)
	if err != nil {
		return failure.Waiting(v1alpha1.ReasonAPIServerUnavailable, "etcd runs; waiting for the Kubernetes API", r.poll(s))
	}

	found, err := cluster.Contents(ctx)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "The contents of etcd cannot be read")

		return unproven(err)
	}

	st := &s.restore.Status
	if want := st.Backup.Revision + s.restore.Spec.RevisionBump; found.Revision < want {
		return r.stop(ctx, s, v1alpha1.ReasonRestoreFailed, fmt.Sprintf("etcd is at revision %d, and the backup at %d: it "+
			"is not what was restored", found.Revision, want))
	}

	st.Revision = found.Revision
	if n := s.evidenceOf(st.Machine); n != nil {
		st.MemberID = safety.FormatMemberID(n.MemberID)
	}

	message := fmt.Sprintf("etcd runs at revision %d on %s; %d namespaces, %d Secrets that can be read", found.Revision,
		st.Machine, found.Namespaces, found.Secrets)
	r.tell(s, "Prove", "%s", message)

	return r.enter(ctx, s, v1alpha1.RestoreJoining, message)
}

// unproven says why the contents of etcd cannot be read through the API server.
func unproven(err error) error {
	if errors.Is(err, workload.ErrTooMuch) {
		return failure.Waiting(v1alpha1.ReasonAPIServerUnavailable, "the contents of etcd are not verified: the "+
			"Kubernetes API returns more data than is read of one cluster; see the operator log", pollSlow)
	}

	return failure.Waiting(v1alpha1.ReasonAPIServerUnavailable, "the Kubernetes API responds, but does not show what "+
		"etcd holds; are its Secrets encrypted with other keys?", pollSlow)
}

// complete ends the restore once the kubelets are back, and releases the cluster to the other controllers.
func (r *Reconciler) complete(ctx context.Context, s *scope, d restore.Decision) error {
	cluster, err := r.cluster(ctx, s, d.Machines)
	if err != nil {
		return failure.Waiting(v1alpha1.ReasonAPIServerUnavailable, "waiting for the Kubernetes API", r.poll(s))
	}

	began := s.began(v1alpha1.RestoreJoining)

	missing, workers, err := r.kubelets(ctx, s, cluster, began)

	switch {
	case err != nil:
		return failure.Waiting(v1alpha1.ReasonAPIServerUnavailable, "waiting for the Kubernetes API to report the nodes",
			r.poll(s))
	case len(missing) > 0:
		return failure.Waiting(v1alpha1.ReasonNodeNotReady, "waiting for the kubelets of "+strings.Join(missing, ", "),
			r.poll(s))
	case len(workers) > 0 && r.Clock.Since(began) < waitForWorkers:
		return failure.Waiting(v1alpha1.ReasonNodeNotReady, "waiting for the kubelets of "+strings.Join(workers, ", "),
			r.poll(s))
	}

	if err := r.recordRestored(ctx, s); err != nil {
		return err
	}

	message := fmt.Sprintf("etcd runs from backup %s: revision %d, %d members", s.restore.Status.Backup.ID,
		s.restore.Status.Revision, len(d.Machines))
	if len(workers) > 0 {
		message += "; not back yet: " + strings.Join(workers, ", ")
	}

	return r.succeed(ctx, s, message)
}

// succeed records that the restore is complete.
func (r *Reconciler) succeed(ctx context.Context, s *scope, message string) error {
	s.endStep(r.Clock.Now(), message)
	s.beginStep(r.Clock.Now(), v1alpha1.RestoreComplete)
	s.endStep(r.Clock.Now(), message)

	if err := r.save(ctx, s); err != nil {
		return err
	}

	r.event(s, corev1.EventTypeNormal, v1alpha1.ReasonRestored, "Complete", "%s", message)

	return nil
}

func (s *scope) began(step v1alpha1.RestoreStep) time.Time {
	for _, one := range s.restore.Status.Steps {
		if one.Step == step {
			return one.StartedAt.Time
		}
	}

	return s.restore.CreationTimestamp.Time
}

// kubelets returns the nodes whose kubelets are not back: those of the control plane, and those of workers.
func (r *Reconciler) kubelets(ctx context.Context, s *scope, cluster *workload.Cluster, began time.Time) (
	missing, workers []string, err error,
) {
	list := &v1alpha1.TalosMachineList{}

	err = r.Client.List(ctx, list, client.InNamespace(s.restore.Namespace), kube.Shared,
		client.MatchingLabels{v1alpha1.ControlPlaneLabel: s.cp.Name})
	if err != nil {
		return nil, nil, fmt.Errorf("listing the machines of %s: %w", s.cp.Name, err)
	}

	for i := range list.Items {
		m := &list.Items[i]
		if deleting(m) || slices.Contains(s.restore.Spec.LostMachines, m.Name) {
			continue
		}

		ref := workload.NodeRef{
			Name: cmp.Or(m.Status.NodeName, m.Status.Hostname), UUID: m.Status.UUID, BootID: m.Status.BootID,
		}

		alive, err := cluster.Alive(ctx, ref, began)
		if err != nil {
			return nil, nil, err
		}

		worker := m.Spec.Role != v1alpha1.RoleControlPlane

		switch {
		case alive, worker && !meta.IsStatusConditionTrue(m.Status.Conditions, v1alpha1.ConditionReachable):
		case r.standsAlone(ctx, s, m):
		case worker:
			workers = append(workers, m.Name)
		default:
			missing = append(missing, m.Name)
		}
	}

	slices.Sort(missing)
	slices.Sort(workers)

	return missing, workers, nil
}

// standsAlone reports whether the kubelet runs with a configuration that keeps it from registering, so that its Node
// would be awaited forever. If that is unknown, the restore waits for the node.
func (r *Reconciler) standsAlone(ctx context.Context, s *scope, m *v1alpha1.TalosMachine) bool {
	node, err := r.Nodes.Node(ctx, r.source(s).Ref(m))
	if err != nil {
		return false
	}

	alone, err := node.KubeletStandsAlone(ctx)

	return err == nil && alone
}

// recordRestored records the new etcd of the cluster, and unblocks the other controllers.
func (r *Reconciler) recordRestored(ctx context.Context, s *scope) error {
	rt, now := &s.held.State.Runtime, r.Clock.Now().UTC().Truncate(time.Second)
	first := s.restore.Status.Machine

	rt.Restore, rt.Disruption, rt.DecommissionedAt = nil, nil, nil
	rt.RecordRestore(s.runAt(v1alpha1.RestoreComplete, now))
	rt.OwnerUID, rt.Upgrade = string(s.cp.UID), rt.Upgrade.Closed()
	rt.Bootstrap = &clusterstate.Bootstrap{
		Machine: first, Address: rt.Machines[first].Address, IntentAt: now, EstablishedAt: &now,
	}

	if n := s.evidenceOf(first); n != nil {
		rt.Bootstrap.MemberID = n.MemberID
	}

	if err := r.States.Update(ctx, s.held); err != nil {
		return fmt.Errorf("recording the restored etcd of %s: %w", s.cp.Name, err)
	}

	return nil
}
