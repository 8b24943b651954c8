package taloscontrolplane

import (
	"context"
	"errors"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/controller/frame"
	"github.com/talos-operator/talos-operator/internal/controller/machineset"
	"github.com/talos-operator/talos-operator/internal/decide/hook"
	"github.com/talos-operator/talos-operator/internal/pause"
	"github.com/talos-operator/talos-operator/internal/talos"
)

// observeOnly keeps the status of a paused control plane up to date. It writes nothing, neither to a node nor to
// another object, and it creates no PKI.
func (r *Reconciler) observeOnly(ctx context.Context, s *scope) (ctrl.Result, error) {
	machines, err := machineset.List(ctx, r.Client, s.cp)
	if err != nil {
		return ctrl.Result{}, err
	}

	s.machines, s.would = machines, machineset.Would(deleting(s.cp), s.cp.Spec.Machines, machines)

	held, err := r.States.Load(ctx, s.key())

	switch {
	case errors.Is(err, clusterstate.ErrNotFound):
		return ctrl.Result{}, nil
	case clusterstate.IsUnusable(err):
		ctrl.LoggerFrom(ctx).Error(err, "The state of a paused control plane cannot be used")

		return ctrl.Result{}, nil
	case err != nil:
		return ctrl.Result{}, err
	}

	access, err := r.States.Access(s.key(), held.State.Bundle)
	if err != nil {
		return ctrl.Result{}, err
	}

	s.held = held
	s.creds = talos.Credentials{CA: access.Talos.CA, Cert: access.Talos.Cert, Key: access.Talos.Key}

	entries := r.group(s).Entries()
	s.extra, s.scaling = machineset.Extra(entries, s.machines), pause.Untouched
	s.would = machineset.Would(deleting(s.cp), entries, s.machines)

	run := held.State.Runtime.Upgrade
	s.would = append(s.would, hook.Would(guardOf(s.cp, entries, run, s.cp.Status.Upgrade, s.machines), run)...)

	// Reading continues during a pause: a state that is not observed must not be reported.
	return frame.Run(ctx, s, r.readCertificates, r.observe, r.judge, r.validate)
}

// askVersion queries the API servers of a cluster when the reconciliation does not depend on the response.
func (r *Reconciler) askVersion(ctx context.Context, s *scope) {
	version, err := r.Workloads.Version(ctx, s.held.State.Bundle, s.addresses())
	s.asked, s.version = true, version

	if err != nil {
		ctrl.LoggerFrom(ctx).V(1).Info("No API server of the cluster responds", "error", err.Error())
	}
}
