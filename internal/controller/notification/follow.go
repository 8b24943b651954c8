package notification

import "context"

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
