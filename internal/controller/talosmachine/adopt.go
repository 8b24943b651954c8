package talosmachine

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/configstore"
	"github.com/talos-operator/talos-operator/internal/decide/change"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/machineconfig"
)

// takeOver keeps changes that were made outside of the operator, as patches that follow those of the spec. Earlier
// adopted changes are part of the live configuration too, so the patches are computed anew.
func (r *Reconciler) takeOver(ctx context.Context, s *scope) error {
	if s.paused {
		return nil
	}

	patches, taken, err := r.beyondSpec(s, s.machine.Status.InstallDisk)

	var unpatchable *machineconfig.UnpatchableError

	switch {
	case errors.As(err, &unpatchable):
		return failure.Terminal(v1alpha1.ReasonDrifted, fmt.Sprintf("what was changed manually on %s cannot be adopted "+
			"(%s): undo it, or set drift to Enforce", s.machine.Name, unpatchable), err)
	case err != nil:
		return err
	}

	// Whether the adopted configuration works is known only later: a machine is never reverted to an edit that made the
	// node unhealthy.
	s.stored.Adopted = patches

	if err := r.Configs.Save(ctx, s.machine, s.stored); err != nil {
		return err
	}

	st := &s.machine.Status
	st.ConfigHash, st.Drift = s.liveHash, nil
	st.AdoptedFields = limited(taken)

	r.Recorder.Eventf(s.machine, nil, corev1.EventTypeNormal, v1alpha1.ReasonDrifted, "Adopt",
		"Adopted the manual changes: %s", change.List(s.edited))

	return nil
}

// beyondSpec returns the patches that turn the configuration rendered from the spec alone into the live one, and the
// fields that they change.
func (r *Reconciler) beyondSpec(s *scope, disk string) (patches, fields []string, err error) {
	plain := *s
	plain.stored.Adopted = nil

	rendered, err := r.render(&plain, disk)
	if err != nil {
		return nil, nil, err
	}

	want, _, err := machineconfig.KeepImageTags(s.live, rendered.Bytes, machineconfig.Released{})
	if err != nil {
		return nil, nil, fmt.Errorf("keeping the versions of %s: %w", s.machine.Name, err)
	}

	if patches, err = machineconfig.DerivePatches(want, s.live); err != nil {
		return nil, nil, fmt.Errorf("taking over the config of %s: %w", s.machine.Name, err)
	}

	beyond, err := machineconfig.Diff(want, s.live)
	if err != nil {
		return nil, nil, fmt.Errorf("comparing the config of %s: %w", s.machine.Name, err)
	}

	if s.held.State.BundleConfig.KubePrism != "" && beyond.ChangesKubePrism() {
		return nil, nil, &machineconfig.UnpatchableError{Fields: []string{machineconfig.KubePrismField}}
	}

	return patches, beyond.Paths(), nil
}

// loadAdopted reads the adopted changes of a machine that lost its disk, so that they become part of its new
// configuration.
func (r *Reconciler) loadAdopted(ctx context.Context, s *scope) error {
	if len(s.machine.Status.AdoptedFields) == 0 {
		return nil
	}

	if err := r.loadStored(ctx, s); err != nil {
		return err
	}

	return lostAdopted(s)
}

// lostAdopted returns the error that stops the configuration of a machine whose adopted changes are lost.
func lostAdopted(s *scope) error {
	fields := s.machine.Status.AdoptedFields
	if len(fields) == 0 || len(s.stored.Adopted) > 0 {
		return nil
	}

	return failure.Terminal(v1alpha1.ReasonStateSecretInvalid, fmt.Sprintf("Secret %s does not hold what was taken over "+
		"from the machine (%s); restore it: without it these would be undone", configstore.SecretName(s.machine.Name),
		change.List(fields)), nil)
}
