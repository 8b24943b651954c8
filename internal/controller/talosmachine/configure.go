package talosmachine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/machineconfig"
	"github.com/talos-operator/talos-operator/internal/machineconfig/desired"
	"github.com/talos-operator/talos-operator/internal/talos"
	"github.com/talos-operator/talos-operator/internal/talos/nodewatch"
)

// discovery is how long a machine that reports no disks at all may still be discovering them.
const discovery = 15 * time.Second

// configure sends the initial configuration to a machine in maintenance mode. This is recorded in the state Secret
// first, so that after a crash the machine counts as one that may be configured.
func (r *Reconciler) configure(ctx context.Context, s *scope) (ctrl.Result, error) {
	if s.answer != talos.StateMaintenance {
		return ctrl.Result{}, nil
	}

	node, err := r.Nodes.Maintenance(ctx, s.address, s.machine.Spec.MaintenanceFingerprint)
	if err != nil {
		return ctrl.Result{}, err
	}
	defer node.Close()

	if err := r.meet(ctx, s, node); err != nil {
		return ctrl.Result{}, err
	}

	disk, err := r.chooseDisk(ctx, node, s)
	if err != nil {
		return ctrl.Result{}, err
	}

	if err := r.loadAdopted(ctx, s); err != nil {
		return ctrl.Result{}, err
	}

	version, err := r.joinsWith(ctx, s)
	if err != nil {
		return ctrl.Result{}, err
	}

	rendered, err := r.renderFirst(s, disk, version)
	if err != nil {
		return ctrl.Result{}, err
	}

	if err := s.checkImage(rendered.Bytes, r.retryReport(s)); err != nil {
		return ctrl.Result{}, err
	}

	r.unreported.forget(s.key().String())

	if err := r.keepSent(ctx, s, rendered); err != nil {
		return ctrl.Result{}, err
	}

	if err := r.recordConfigured(ctx, s, rendered); err != nil {
		return ctrl.Result{}, err
	}

	if _, err := node.Apply(ctx, rendered.Bytes); err != nil {
		return ctrl.Result{}, fmt.Errorf("sending the first config to %s: %w", s.machine.Name, s.unquoted(err))
	}

	if s.intends(v1alpha1.StepReset) {
		s.machine.Status.Intent = nil // the machine was abandoned before, and wiped to be configured anew
	}

	s.machine.Status.ConfigHash = rendered.Hash
	s.machine.Status.InstallDisk = disk
	r.event(s, v1alpha1.ReasonConfigured, "Configure", "Sent the machine config to %s", s.address)
	r.setTarget(s, nodewatch.Secure)

	return ctrl.Result{}, nil
}

// meet reads what a machine in maintenance mode is, and refuses one that must not be configured.
func (r *Reconciler) meet(ctx context.Context, s *scope, node *talos.Maintenance) error {
	facts, err := node.Facts(ctx)
	if wrong := talos.Mismatch(err); wrong != nil {
		return s.refuseCertificate(wrong)
	}

	if err != nil {
		return fmt.Errorf("reading the state of %s in maintenance mode: %w", s.machine.Name, err)
	}

	if err := s.checkHardware(facts.UUID); err != nil {
		return err
	}

	s.facts = &facts

	if err := s.checkMedium(); err != nil {
		return err
	}

	image, err := node.Image(ctx)
	if err != nil {
		return fmt.Errorf("reading what %s has booted: %w", s.machine.Name, err)
	}

	s.booted = &image

	return nil
}

// checkMedium rejects a machine whose Talos version cannot read the configurations of its cluster.
func (s *scope) checkMedium() error {
	contract := s.held.State.BundleConfig.Contract
	if machineconfig.Reads(s.facts.TalosVersion, contract) {
		return nil
	}

	return failure.Terminal(v1alpha1.ReasonUnsupportedVersion, fmt.Sprintf("machine %s runs Talos %s from its boot "+
		"medium, which cannot read machine configs of %s; nothing was sent: boot it from %s or later", s.machine.Name,
		s.facts.TalosVersion, contract, contract), nil)
}

func (r *Reconciler) chooseDisk(ctx context.Context, node *talos.Maintenance, s *scope) (string, error) {
	found, err := node.Disks(ctx)
	if err != nil {
		return "", fmt.Errorf("listing the disks of %s: %w", s.machine.Name, err)
	}

	wish := desired.DiskWish(s.sources(), s.facts.SystemDisk)

	if len(found) == 0 && wish.SystemDisk == "" && wish.Path != "" {
		return r.unseenDisk(s, wish.Path)
	}

	r.bare.forget(s.key().String())

	disk, err := machineconfig.ChooseDisk(talos.Candidates(found), wish)

	var diskErr *machineconfig.DiskError
	if errors.As(err, &diskErr) {
		return "", failure.Waiting(v1alpha1.ReasonInstallDisk, diskMessage(diskErr), retryDisk)
	}

	return disk, err
}

// unseenDisk returns the disk that the spec names although the machine reports none: a node in a container has no
// disks, and the machine itself rejects a disk that does not exist. This is delayed, because the machine may still be
// discovering its disks, and their contents must not be overwritten unchecked.
func (r *Reconciler) unseenDisk(s *scope, path string) (string, error) {
	now := r.Clock.Now()

	left := discovery - now.Sub(r.bare.since(s.key().String(), now))
	if left <= 0 {
		return path, nil
	}

	return "", failure.Waiting(v1alpha1.ReasonInstallDisk, fmt.Sprintf("the machine shows no disks; install.disk %s is "+
		"used as it is unless it shows some soon", path), left)
}

func diskMessage(e *machineconfig.DiskError) string {
	found := "no disks"
	if len(e.Found) > 0 {
		found = strings.Join(e.Found, ", ")
	}

	return e.Problem + "; " + e.Remedy + ". Found: " + found
}

func (r *Reconciler) recordConfigured(ctx context.Context, s *scope, rendered *machineconfig.Rendered) error {
	err := r.States.Record(ctx, s.controlPlaneKey(), func(state *clusterstate.State) {
		r.markConfigured(s, state)

		state.Runtime.DecommissionedAt = nil
		delete(state.Runtime.GivenUp, s.facts.UUID)

		if s.machine.Spec.Role == v1alpha1.RoleControlPlane {
			state.Config = rendered.Bytes
		}
	})
	if err != nil {
		return fmt.Errorf("recording that %s is about to be configured: %w", s.machine.Name, err)
	}

	return nil
}
