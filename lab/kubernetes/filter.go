package kubernetes

import (
	"errors"
	"net"
	"net/netip"
	"sync"
)

// filter is a listener behind a firewall: connections that it does not let in are left without an answer, until it is
// closed.
type filter struct {
	net.Listener

	accepts func(netip.Addr) bool

	mu      sync.Mutex
	closed  bool
	dropped []net.Conn
}

// Accept implements net.Listener.
func (f *filter) Accept() (net.Conn, error) {
	for {
		conn, err := f.Listener.Accept()
		if err != nil || f.accepts == nil {
			return conn, err // must stay what it is
		}

		peer, ok := conn.RemoteAddr().(*net.TCPAddr)
		if !ok || f.accepts(peer.AddrPort().Addr().Unmap()) {
			return conn, nil
		}

		f.drop(conn)
	}
}

// drop keeps a connection open and silent. Of the many that clients give up in the meantime, only the last ones are
// kept.
func (f *filter) drop(conn net.Conn) {
	const most = 64

	f.mu.Lock()
	defer f.mu.Unlock()

	if f.closed {
		_ = conn.Close()

		return
	}

	if f.dropped = append(f.dropped, conn); len(f.dropped) > most {
		_ = f.dropped[0].Close()
		f.dropped = f.dropped[1:]
	}
}

// Close implements net.Listener.
func (f *filter) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()

	errs := []error{f.Listener.Close()}
	f.closed = true

	for _, conn := range f.dropped {
		_ = conn.Close() // its client has been without an answer all the time
	}

	f.dropped = nil

	return errors.Join(errs...)
}
