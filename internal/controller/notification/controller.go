// Package notification tells webhooks of the runs of upgrades, which the records of a TalosControlPlane show. What is
// told is decided by internal/decide/notification; what was told is recorded in an annotation of each record, and what
// is known of the webhooks in one of the TalosControlPlane. It writes nothing else.
package notification

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/controller/frame"
	"github.com/talos-operator/talos-operator/internal/decide/notification"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/kube"
	"github.com/talos-operator/talos-operator/internal/pause"
	"github.com/talos-operator/talos-operator/internal/webhook"
)

// again is how soon the next record follows. One reconciliation sends those of one record, so that it ends in time
// although each receiver is slow.
const again = 100 * time.Millisecond

// sender sends to addresses that are secrets.
type sender interface {
	Check(address string) error
	Send(ctx context.Context, address, id string, body []byte) notification.Outcome
}

var _ sender = (*webhook.Sender)(nil)

// Reconciler reconciles the notifications of TalosControlPlanes. It keeps no state between calls.
type Reconciler struct {
	// Client reads from the cache and writes.
	Client client.Client
	// Reader reads Secrets live.
	Reader   client.Reader
	Sender   sender
	Recorder events.EventRecorder
	Clock    clock.PassiveClock
	// Resync is when to reconcile again if nothing happens.
	Resync time.Duration
}

// scope is one reconciliation of one control plane.
type scope struct {
	cp *v1alpha1.TalosControlPlane
	// book is what is recorded of the webhooks, and problems what was found out about their addresses now, by their keys:
	// empty where the address can be used.
	book     notification.Book
	targets  []notification.Target
	problems map[string]string
	// next is when the first attempt is due; zero if none is left to be made.
	next time.Time
}

// Reconcile sends what is due about the upgrades of one TalosControlPlane.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	cp := &v1alpha1.TalosControlPlane{}
	if err := r.Client.Get(ctx, req.NamespacedName, cp); err != nil {
		return ctrl.Result{}, failure.IgnoreGone(err)
	}

	if !cp.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil // its records are deleted with it
	}

	// While the cluster is paused or in a dry run nothing is written, so nothing can be sent.
	hold, err := pause.Find(ctx, r.Client, cp)
	if err != nil || hold.Any() {
		return failure.Result(ctrl.Result{}, err, r.Resync)
	}

	s := &scope{cp: cp, problems: map[string]string{}}

	res, err := frame.Run(ctx, s, frame.Always(r.follow), r.tell, frame.Always(r.noteProblems))
	if err == nil && res.IsZero() && !s.next.IsZero() {
		res.RequeueAfter = min(max(s.next.Sub(r.Clock.Now()), again), r.Resync)
	}

	return failure.Result(res, err, r.Resync)
}

// notifications are those of the spec.
func notifications(cp *v1alpha1.TalosControlPlane) []v1alpha1.UpgradeNotification {
	if cp.Spec.Upgrade == nil {
		return nil
	}

	return cp.Spec.Upgrade.Notifications
}

// follow records since when the spec has named each webhook, before anything is sent to it, and checks the addresses
// of new ones, and of those that could not be used.
func (r *Reconciler) follow(ctx context.Context, s *scope) error {
	spec, before := notifications(s.cp), decodeBook(s.cp)
	s.book = before.Follow(spec, r.Clock.Now())
	s.targets = s.book.Targets(spec)

	if err := r.writeBook(ctx, s, before); err != nil {
		return err
	}

	for _, t := range s.targets {
		if known, ok := before[t.Key()]; ok && known.Problem == "" {
			continue
		}

		if _, _, err := r.address(ctx, s, t); err != nil {
			return err
		}
	}

	return nil
}

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
		now, before := r.Clock.Now(), decodeLedger(o)
		_, status := partsOf(o)
		ledger := before.Observe(status, plans, now)

		due, next := ledger.Due(s.targets, now)
		if len(due) > 0 {
			if err := r.send(ctx, s, o, ledger, due); err != nil {
				return ctrl.Result{}, err
			}

			s.next = r.Clock.Now()

			return ctrl.Result{}, nil
		}

		if ledger.Worth(before) {
			if err := r.annotate(ctx, o, ledger, true); err != nil {
				return ctrl.Result{}, err
			}
		}

		if s.next.IsZero() || !next.IsZero() && next.Before(s.next) {
			s.next = next
		}
	}

	return ctrl.Result{}, nil
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
