package apid

import "time"

// handover is the time between the API of maintenance mode and the one with certificates.
type handover struct {
	listener   *listener
	generation *generation
	over       chan struct{} // closed when something else has taken the API over
}

// Handover ends the API of a machine that has got its first config and begins it anew with the backend's identity, as a
// real node does: the old one stops listening at once and waits for calls, and for streams that clients hold open,
// which go on to show what happens, for as long as the limit. A call under way, such as the one with the config, is
// given the grace beyond that, which is for processors and not for the times of a machine. Only then, after the pause,
// the new one listens; in between, connections are refused. Handover does not wait for that, so a handler may call it.
func (s *Server) Handover(limit, grace, pause time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.listener == nil {
		return
	}

	h := &handover{listener: s.listener, generation: s.current, over: make(chan struct{})}
	s.listener, s.current, s.leaving, s.handover = nil, nil, h.listener, h

	_ = h.listener.inner.Close()

	drained := make(chan struct{})

	s.retiring.Go(func() {
		defer close(drained)

		h.generation.drain(h.listener, limit, grace)
		// The call that has brought the config is on one before, where a new certificate was shown at once.
		h.generation.awaitBefore()
	})

	go func() {
		<-drained

		timer := time.NewTimer(pause)
		defer timer.Stop()

		select {
		case <-h.over:
		case <-timer.C:
			s.resume(h)
		}
	}()
}

// resume listens again after a handover, unless the machine has stopped its API meanwhile.
func (s *Server) resume(h *handover) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.handover != h {
		return
	}

	s.endHandover()

	if err := s.start(); err != nil {
		s.log.Error("starting apid again", "error", err)
	}
}

// endHandover forgets a handover and returns it; nil when there is none. The caller holds the lock.
func (s *Server) endHandover() *handover {
	h := s.handover
	if h != nil {
		s.handover = nil

		close(h.over)
	}

	return h
}

// drain lets streams end by themselves until the limit, and calls until the grace after that.
func (g *generation) drain(l *listener, limit, grace time.Duration) {
	streams := time.AfterFunc(limit, g.cancel)
	defer streams.Stop()

	calls := time.AfterFunc(limit+grace, func() {
		l.abort(g.feed)
		g.server.Stop()
	})
	defer calls.Stop()

	g.server.GracefulStop()
	g.cancel()
	g.backends.close()
}

// awaitBefore waits until the connections of all generations before are gone.
func (g *generation) awaitBefore() {
	if g.before != nil {
		<-g.before
	}
}
