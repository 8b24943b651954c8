package talosmachine

import (
	"context"
	"fmt"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/talos"
	"github.com/talos-operator/talos-operator/internal/talos/nodewatch"
)

// firstAnswerShare determines the share of the time limit in which a machine that was never queried may respond.
// Afterwards the reconciliation ends without a result, and the watch triggers another one once the state of the machine
// is known. After a restart, all machines are queried for the first time, and unreachable ones must not delay the
// others.
const firstAnswerShare = 20

// observe queries the live identity and state of the node. An unreachable node is no error of the reconciliation: the
// status reports it, and the watch triggers a reconciliation when the node is back.
func (r *Reconciler) observe(ctx context.Context, s *scope) (ctrl.Result, error) {
	r.known.since(s.key().String(), r.Clock.Now())

	if s.address == "" {
		return ctrl.Result{}, nil
	}

	if r.Pass > 0 && !r.Watcher.Tried(ctx, s.key().String(), r.Pass/firstAnswerShare) {
		return ctrl.Result{RequeueAfter: r.Pass}, nil
	}

	// The stream has queried the node and continues to: another query here would only block a worker.
	if r.Watcher.Silent(s.key().String()) {
		s.probed, s.answer = true, talos.StateUnreachable
		r.missPatience(s)

		return ctrl.Result{}, unreachable(s, nil)
	}

	probe, err := r.Nodes.Probe(ctx, s.address, &s.creds)
	s.probed, s.answer = true, probe.State

	switch probe.State {
	case talos.StateMember:
		return ctrl.Result{}, r.readFacts(ctx, s)
	case talos.StateMaintenance:
		r.missPatience(s)

		s.fingerprint = probe.Fingerprint
		if wrong := probe.Check(s.machine.Spec.MaintenanceFingerprint); wrong != nil {
			return ctrl.Result{}, s.refuseCertificate(wrong)
		}

		if s.everConfigured() {
			// A configured node that is back in maintenance mode has lost its disk; only the insecure API provides more
			// information.
			r.setTarget(s, nodewatch.Maintenance)
		}

		return ctrl.Result{}, nil
	case talos.StateForeign:
		r.missPatience(s)

		if configured := s.configuredAt(); configured != nil {
			return ctrl.Result{}, r.awaitCertificate(s, *configured)
		}

		return ctrl.Result{}, failure.Terminal(v1alpha1.ReasonForeignNode, fmt.Sprintf("the machine at %s runs under "+
			"another CA: it belongs to another cluster, and nothing was sent to it; correct the address, or reset the "+
			"machine manually", s.address), err)
	case talos.StateUnreachable:
	}

	r.missPatience(s)

	return ctrl.Result{}, unreachable(s, err)
}

// awaitCertificate handles a configured machine that presents a certificate of another CA. A worker does so
// temporarily, until a control-plane node has signed its certificate.
func (r *Reconciler) awaitCertificate(s *scope, configured time.Time) error {
	if r.Clock.Since(configured) < certificateGrace {
		return failure.Waiting(v1alpha1.ReasonBooting, fmt.Sprintf("waiting for machine %s at %s to show the certificate "+
			"of its cluster", s.machine.Name, s.address), pollCertificate)
	}

	return failure.Waiting(v1alpha1.ReasonForeignNode, fmt.Sprintf("the machine at %s was configured by this cluster "+
		"and runs under another CA now; nothing is sent to it: correct the address, or reset the machine manually",
		s.address),
		retryDisk)
}
