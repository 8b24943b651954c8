package talosmachine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/machineconfig"
	"github.com/talos-operator/talos-operator/internal/patchsource"
)

// pollPatches is how soon the ConfigMaps and Secrets that patches come from are read again. No event reports their
// changes: a watch, also one of metadata alone, would need the permission to list all Secrets.
const pollPatches = time.Minute

// hasSources reports whether patches of the machine come from ConfigMaps or Secrets.
func (s *scope) hasSources() bool { return patchsource.Any(s.controlPlane, s.worker, s.machine) }

// hide removes the values that come from Secrets from the difference between the configurations.
func (r *Reconciler) hide(ctx context.Context, s *scope) error {
	if len(s.secretFields) == 0 && s.diff.Equal() && s.unsourced == nil {
		return nil // nothing is shown
	}

	if err := r.keepHidden(ctx, s); err != nil {
		return err
	}

	s.diff.Hide(s.hidden)

	return nil
}

// keepSent records the fields of a machine's first configuration that come from Secrets.
func (r *Reconciler) keepSent(ctx context.Context, s *scope, rendered *machineconfig.Rendered) error {
	if s.secretFields = rendered.Hidden; len(s.secretFields) == 0 {
		return nil
	}

	return r.keepHidden(ctx, s)
}

// keepHidden records the fields that come from Secrets before the node has them: a later comparison, to a desired
// configuration without them, must not show what they were. Fields that were recorded before stay.
func (r *Reconciler) keepHidden(ctx context.Context, s *scope) error {
	stored, err := r.Configs.Load(ctx, s.machine)
	if err != nil {
		return err
	}

	s.hidden = slices.Concat(stored.Hidden, s.secretFields)
	slices.Sort(s.hidden)
	s.hidden = slices.Compact(s.hidden)

	if s.paused || len(s.hidden) == len(stored.Hidden) {
		return nil
	}

	stored.Hidden, s.stored.Hidden = s.hidden, s.hidden

	return r.Configs.Save(ctx, s.machine, stored)
}

// unquoted is an error of a node that was sent a configuration with values from Secrets, without the text of the node,
// which may quote one, in the status and in the log alike.
func (s *scope) unquoted(err error) error {
	if err == nil || len(s.secretFields)+len(s.hidden) == 0 {
		return err
	}

	what := "did not take the machine config"
	if failure.Reason(err) == v1alpha1.ReasonConfigRefused {
		what = "refused the machine config"
	}

	out := &failure.Error{
		Class: failure.ClassOf(err), Reason: failure.Reason(err), Message: fmt.Sprintf("%s %s; the reason is not shown, "+
			"because it may quote a Secret that a patch comes from: compare with talosctl apply-config --dry-run",
			s.machine.Name, what),
	}

	if classified := (*failure.Error)(nil); errors.As(err, &classified) {
		out.After = classified.After
	}

	return out
}
