package talosworker

import "context"

// loadReplaced reads which spares replace which machines. A group that never had a spare has no replaced machines.
func (r *Reconciler) loadReplaced(ctx context.Context, s *scope) error {
	if len(s.worker.Spec.Spares) == 0 && len(s.worker.Status.Replacements) == 0 {
		return nil
	}

	held, err := r.States.Require(ctx, s.controlPlaneKey())
	if err != nil {
		return err
	}

	s.replaced = held.State.Runtime.ReplacedWorkers[s.worker.Name]

	return nil
}
