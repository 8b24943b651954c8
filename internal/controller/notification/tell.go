package notification

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/notification"
	"github.com/talos-operator/talos-operator/internal/kube"
)

// tell brings the ledgers of the records up to date, and sends what is due about one of them.
func (r *Reconciler) tell(ctx context.Context, s *scope) (ctrl.Result, error) {
	if len(s.targets) == 0 {
		return ctrl.Result{}, nil
	}

	records, err := r.records(ctx, s.cp)
	if err != nil {
		return ctrl.Result{}, err
	}

	plans, err := r.plans(ctx, s.cp)
	if err != nil {
		return ctrl.Result{}, err
	}

	for _, o := range records {
		before := decodeLedger(o)
		_, status := partsOf(o)

		if sent, err := r.follows(ctx, s, o, before, before.Observe(status, plans, r.Clock.Now())); sent || err != nil {
			return ctrl.Result{}, err
		}
	}

	before := decodeLedger(s.cp)
	_, err = r.follows(ctx, s, s.cp, before, before.Block(s.cp.Status.Upgrade, r.Clock.Now()))

	return ctrl.Result{}, err
}

// follows sends what is due of the ledger of an object, or records it. sent: the others are next in another
// reconciliation.
func (r *Reconciler) follows(
	ctx context.Context, s *scope, o client.Object, before, ledger notification.Ledger,
) (sent bool, err error) {
	due, next := ledger.Due(s.targets, r.Clock.Now())
	if len(due) > 0 {
		if err := r.send(ctx, s, o, ledger, due); err != nil {
			return false, err
		}

		s.next = r.Clock.Now()

		return true, nil
	}

	if ledger.Worth(before) {
		if err := r.annotate(ctx, o, ledger, true); err != nil {
			return false, err
		}
	}

	if s.next.IsZero() || !next.IsZero() && next.Before(s.next) {
		s.next = next
	}

	return false, nil
}

// records are those of a control plane, in the order in which they began.
func (r *Reconciler) records(ctx context.Context, cp *v1alpha1.TalosControlPlane) ([]client.Object, error) {
	var out []client.Object

	in, labels := client.InNamespace(cp.Namespace), client.MatchingLabels{v1alpha1.ControlPlaneLabel: cp.Name}

	talos, kubernetes := &v1alpha1.TalosUpgradeList{}, &v1alpha1.KubernetesUpgradeList{}
	for _, list := range []client.ObjectList{talos, kubernetes} {
		if err := r.Client.List(ctx, list, in, labels, kube.Controlled{Owner: cp.UID}); err != nil {
			return nil, fmt.Errorf("listing the upgrades of %s: %w", cp.Name, err)
		}
	}

	for i := range talos.Items {
		out = append(out, &talos.Items[i])
	}

	for i := range kubernetes.Items {
		out = append(out, &kubernetes.Items[i])
	}

	out = slices.DeleteFunc(out, func(o client.Object) bool {
		return !metav1.IsControlledBy(o, cp) || !o.GetDeletionTimestamp().IsZero()
	})
	slices.SortFunc(out, func(a, b client.Object) int {
		return cmp.Or(a.GetCreationTimestamp().Compare(b.GetCreationTimestamp().Time), cmp.Compare(a.GetName(), b.GetName()))
	})

	return out, nil
}

// plans are those of the cluster that await approval.
func (r *Reconciler) plans(ctx context.Context, cp *v1alpha1.TalosControlPlane) ([]notification.Plan, error) {
	groups := &v1alpha1.TalosWorkerList{}
	if err := r.Client.List(ctx, groups, client.InNamespace(cp.Namespace), kube.Shared); err != nil {
		return nil, fmt.Errorf("listing the worker groups of %s: %w", cp.Name, err)
	}

	out := awaiting(nil, cp, cp.Status.Plan)

	for i := range groups.Items {
		if w := &groups.Items[i]; w.Spec.ControlPlaneRef.Name == cp.Name {
			out = awaiting(out, w, w.Status.Plan)
		}
	}

	return out, nil
}

func awaiting(to []notification.Plan, of client.Object, p *v1alpha1.PlanStatus) []notification.Plan {
	if p == nil || p.Phase != v1alpha1.PlanAwaitingApproval {
		return to
	}

	return append(to, notification.Plan{ID: p.ID, Message: of.GetName() + ": " + p.Message})
}
