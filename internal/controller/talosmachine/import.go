package talosmachine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/configstore"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/machineconfig"
)

// isImported: the machine got its config elsewhere, and no object has been held against it yet. Objects that were
// deleted and applied again begin anew here: what the machine kept went with the old ones, and must not be undone by
// the new.
func (s *scope) isImported() bool {
	rt := &s.held.State.Runtime
	m := rt.Machines[s.machine.Name]

	return s.machine.Status.ConfigHash == "" && (m.Imported || m.ConfiguredAt == nil && rt.ImportedAt != nil)
}

// markImported notes that the machine's config comes from elsewhere, before it counts as configured by us.
func markImported(s *scope, state *clusterstate.State) {
	rt := &state.Runtime

	m := rt.Machines[s.machine.Name]
	if rt.ImportedAt == nil || m.ConfiguredAt != nil {
		return
	}

	if rt.Machines == nil {
		rt.Machines = map[string]clusterstate.Machine{}
	}

	m.Imported = true
	rt.Machines[s.machine.Name] = m
}

// keepImported takes over what an imported machine runs beyond the spec, as patches that follow those of the spec, so
// that the wanted config is the live one. Where patches cannot say it the machine stalls, and is left as it is.
func (r *Reconciler) keepImported(ctx context.Context, s *scope, disk string) error {
	patches, fields, err := r.beyondSpec(s, disk)

	var unpatchable *machineconfig.UnpatchableError

	switch {
	case errors.As(err, &unpatchable):
		return failure.Terminal(v1alpha1.ReasonImportRefused, fmt.Sprintf("machine %s was made elsewhere and cannot be "+
			"taken over as it runs: %s; nothing was sent: correct the spec, or change the machine manually", s.machine.Name,
			unpatchable), err)
	case err != nil:
		return err
	}

	if s.paused {
		s.heldImport, s.stored = true, configstore.Config{Adopted: patches}

		return nil
	}

	if s.stored, err = r.Configs.Load(ctx, s.machine); err != nil {
		return err
	}

	if !slices.Equal(s.stored.Adopted, patches) {
		s.stored.Adopted = patches

		if err := r.Configs.Save(ctx, s.machine, s.stored); err != nil {
			return err
		}
	}

	s.machine.Status.AdoptedFields = limited(fields)
	r.event(s, v1alpha1.ReasonImported, "Import", "Took the machine over as it runs%s", besides(fields))

	return nil
}

func besides(fields []string) string {
	if len(fields) == 0 {
		return ""
	}

	return fmt.Sprintf("; beyond the spec it keeps %d fields", len(fields))
}
