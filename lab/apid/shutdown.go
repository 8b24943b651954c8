package apid

import "time"

// Shutdown ends the network face of a machine that shuts down or reboots by its own will: streams end at once, calls
// under way get their answer as long as that takes no longer than the grace (the Reboot that caused it, for one), then
// everything is as after Stop. It waits for that, so a handler must not call it; Stop and Start cut it short.
func (s *Server) Shutdown(grace time.Duration) {
	s.mu.Lock()
	l, g := s.listener, s.current
	s.listener, s.current = nil, nil

	if h := s.endHandover(); h != nil {
		l, g = h.listener, h.generation
	}

	if l != nil {
		s.leaving = l
	}
	s.mu.Unlock()

	if l == nil {
		return
	}

	g.retire(l, grace)
	// A first config changes the identity and may reboot at once: its answer travels on a connection of the old one.
	s.retiring.Wait()
	l.close()

	s.mu.Lock()
	defer s.mu.Unlock()

	if s.leaving == l {
		s.leaving = nil
	}
}
