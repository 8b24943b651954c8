package node

import (
	"context"
	"sync"
)

// imageSource is where a machine gets the image of etcd from.
type imageSource struct {
	mu      sync.Mutex
	stalled chan struct{} // closed when it serves again; nil while it serves
}

// StallPulls has a pull of etcd's image get no further for as long as it is on. The registry supports no ranges: a pull
// that a config interrupts meanwhile gets no further afterwards either, until the machine boots again.
func (n *Node) StallPulls(on bool) {
	n.source.mu.Lock()
	defer n.source.mu.Unlock()

	switch {
	case on && n.source.stalled == nil:
		n.source.stalled = make(chan struct{})
	case !on && n.source.stalled != nil:
		close(n.source.stalled)
		n.source.stalled = nil
	}
}

// pullsStall returns what is closed when pulls go on; nil while they do.
func (n *Node) pullsStall() <-chan struct{} {
	n.source.mu.Lock()
	defer n.source.mu.Unlock()

	return n.source.stalled
}

// pullEtcd has the image of etcd present, as the first thing that its service does.
func (s *session) pullEtcd(ctx context.Context) error {
	s.pulling.Store(true)

	for serves := s.n.pullsStall(); serves != nil; serves = s.n.pullsStall() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-serves:
		}
	}

	if s.pullLost.Load() {
		<-ctx.Done()

		return ctx.Err()
	}

	s.pulling.Store(false)

	return nil
}

// interruptPull is what a new config does to a pull that is under way.
func (s *session) interruptPull() {
	if s.pulling.Load() && s.n.pullsStall() != nil {
		s.pullLost.Store(true)
	}
}
