package talosworker

import (
	"context"
	"slices"

	"github.com/talos-operator/talos-operator/internal/controller/machineset"
	"github.com/talos-operator/talos-operator/internal/safety"
)

// scaleDown removes machines that are no longer listed from the cluster, one after the other, the most broken one
// first.
func (r *Reconciler) scaleDown(ctx context.Context, s *scope) error {
	var candidates []safety.Candidate

	for i := range s.machines {
		m := &s.machines[i]

		switch {
		case !slices.Contains(s.extra, m.Name):
			continue
		case !m.DeletionTimestamp.IsZero():
			s.scaling = m.Name + " is being taken out" + machineset.DeletingMessage(m)

			return nil
		}

		candidates = append(candidates, machineset.Candidate(m.Name, m))
	}

	for _, name := range safety.Victims(candidates, 1) {
		for i := range s.machines {
			if s.machines[i].Name == name {
				s.scaling = name + " is being taken out"

				return machineset.Decommission(ctx, r.Client, &s.machines[i])
			}
		}
	}

	return nil
}
