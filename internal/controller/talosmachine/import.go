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

// isImported reports whether the machine was configured elsewhere and has not been compared to an object yet. Objects
// that were deleted and applied again start here as well: the adopted changes of the machine were lost with the old
// objects and must not be undone by the new ones.
func (s *scope) isImported() bool {
	rt := &s.held.State.Runtime
	m := rt.Machines[s.machine.Name]

	return s.machine.Status.ConfigHash == "" && (m.Imported || m.ConfiguredAt == nil && rt.ImportedAt != nil)
}

// markImported records that the machine's configuration comes from elsewhere, before it counts as configured by the
// operator.
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

// keepImported adopts the settings of an imported machine that are not in the spec, as patches that follow those of the
// spec, so that the desired configuration equals the live one. If patches cannot express them, the machine stalls and
// is not changed.
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
