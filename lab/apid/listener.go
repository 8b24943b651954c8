package apid

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	backlog = 4096
	// acceptRetry is the pause after an error such as "too many open files".
	acceptRetry = 10 * time.Millisecond
	// fillTimeout is how long a connection to a full accept queue is tried before the queue counts as full. On loopback a
	// connection takes microseconds.
	fillTimeout = 50 * time.Millisecond
	// dropTimeout is longer than clients wait for the first byte.
	dropTimeout = time.Minute
	// holdTimeout only guards against waiting for ever.
	holdTimeout = time.Second
)

// listener accepts the node's connections and hands them to the generation that is current.
type listener struct {
	inner *net.TCPListener
	path  *path
	// firewall tells whom new connections are accepted from; those of others are dropped. Without one, everybody's are.
	firewall *atomic.Pointer[func(netip.Addr) bool]
	closed   chan struct{}
	once     sync.Once

	mu      sync.Mutex
	target  *feed
	conns   map[*conn]*feed
	hearing chan struct{} // not nil while deaf, closed when that ends
	holding chan struct{} // while deaf, closed when run holds a connection

	deafMu  sync.Mutex // serializes setDeaf and close
	fillers []net.Conn
}

func listen(address string, path *path, firewall *atomic.Pointer[func(netip.Addr) bool]) (*listener, error) {
	inner, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}

	tcp, ok := inner.(*net.TCPListener)
	if !ok {
		return nil, fmt.Errorf("listening at %s: it is no TCP listener", address)
	}

	return &listener{
		inner: tcp, path: path, firewall: firewall, closed: make(chan struct{}), conns: map[*conn]*feed{},
	}, nil
}

// setTarget sends new connections to another generation.
func (l *listener) setTarget(target *feed) {
	l.mu.Lock()
	defer l.mu.Unlock()

	l.target = target
}

// run accepts connections until the listener is closed.
func (l *listener) run() {
	for {
		raw, err := l.inner.AcceptTCP()

		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			if !l.pause() {
				return
			}

			continue
		case !l.awaitHearing():
			reset(raw)

			return
		case !l.accepts(addrOf(raw.RemoteAddr())):
			go l.drop(raw)

			continue
		}

		l.admit(raw)
	}
}

// accepts tells whether the firewall lets an address in.
func (l *listener) accepts(from netip.Addr) bool {
	accepts := l.firewall.Load()

	return accepts == nil || (*accepts)(from)
}

func (l *listener) pause() bool {
	timer := time.NewTimer(acceptRetry)
	defer timer.Stop()

	select {
	case <-timer.C:
		return true
	case <-l.closed:
		return false
	}
}

// awaitHearing holds a connection that came in while the listener went deaf.
func (l *listener) awaitHearing() bool {
	for {
		l.mu.Lock()
		hearing, holding := l.hearing, l.holding
		l.holding = nil
		l.mu.Unlock()

		if hearing == nil {
			return true
		}

		if holding != nil {
			close(holding)
		}

		select {
		case <-hearing:
		case <-l.closed:
			return false
		}
	}
}

// drop leaves a connection without an answer, as a packet filter does, until its client must have stopped waiting.
func (l *listener) drop(raw net.Conn) {
	timer := time.NewTimer(dropTimeout)
	defer timer.Stop()

	select {
	case <-timer.C:
	case <-l.closed:
	}

	_ = raw.Close()
}

func (l *listener) admit(raw *net.TCPConn) {
	l.mu.Lock()
	target := l.target
	c := newConn(raw, l.path, l.forget)
	l.conns[c] = target
	l.mu.Unlock()

	select {
	case <-l.closed: // close may have missed this connection
		c.abort()
	default:
		if !target.deliver(c) {
			c.abort()
		}
	}
}

func (l *listener) forget(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()

	delete(l.conns, c)
}

// abort resets the connections of one generation, or all for nil.
func (l *listener) abort(of *feed) {
	l.mu.Lock()

	var doomed []*conn

	for c, target := range l.conns {
		if of == nil || target == of {
			doomed = append(doomed, c)
		}
	}

	l.mu.Unlock()

	for _, c := range doomed {
		c.abort()
	}
}

// close stops listening and resets every connection. It may be called more than once.
func (l *listener) close() {
	l.deafMu.Lock()
	defer l.deafMu.Unlock()

	l.once.Do(func() {
		close(l.closed)

		_ = l.inner.Close()
		l.closeFillers()
	})

	l.abort(nil)
}

// setDeaf makes new connections hang, as when no packet arrives. A process cannot keep its kernel from answering, but
// the kernel ignores connection attempts to a queue that is full: so the queue is made as short as possible and filled.
func (l *listener) setDeaf(deaf bool) {
	l.deafMu.Lock()
	defer l.deafMu.Unlock()

	l.mu.Lock()
	hearing, holding := l.hearing, make(chan struct{})

	switch {
	case deaf && hearing == nil:
		l.hearing, l.holding = make(chan struct{}), holding
	case !deaf && hearing != nil:
		l.hearing, l.holding = nil, nil
	default:
		l.mu.Unlock()

		return
	}

	l.mu.Unlock()

	if deaf {
		l.setBacklog(0)
		l.fill(holding)

		return
	}

	l.setBacklog(backlog)
	l.closeFillers()
	close(hearing)
}

// fill connects until no further connection is answered: run, which may be about to accept, holds one connection and
// the queue another. On a busy computer an answer may be late, so the queue counts as full only at the second time.
func (l *listener) fill(holding <-chan struct{}) {
	const enough, full = 8, 2

	for i, unanswered := 0, 0; i < enough && unanswered < full; i++ {
		c, err := net.DialTimeout("tcp", l.inner.Addr().String(), fillTimeout)

		var late net.Error

		switch {
		case err == nil:
			l.fillers = append(l.fillers, c)
		case errors.As(err, &late) && late.Timeout():
			unanswered++
		default:
			return
		}

		if i > 0 {
			continue
		}

		select {
		case <-holding:
		case <-time.After(holdTimeout):
		}
	}
}

func (l *listener) closeFillers() {
	for _, c := range l.fillers {
		_ = c.Close()
	}

	l.fillers = nil
}

func (l *listener) setBacklog(n int) {
	raw, err := l.inner.SyscallConn()
	if err != nil {
		return // closed
	}

	// Listening again on a listening socket changes its backlog. Where it should fail, connections are held by
	// awaitHearing instead: accepted but silent.
	_ = raw.Control(func(fd uintptr) { _ = unix.Listen(int(fd), n) })
}

// conn is a connection whose data passes only while the path is open.
type conn struct {
	net.Conn

	path    *path
	peer    netip.Addr
	done    chan struct{}
	once    sync.Once
	onClose func(*conn)
}

func newConn(raw net.Conn, path *path, onClose func(*conn)) *conn {
	return &conn{Conn: raw, path: path, peer: addrOf(raw.RemoteAddr()), done: make(chan struct{}), onClose: onClose}
}

// Read implements net.Conn. Data that arrives in silence is kept until it ends.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)

	if gone := c.path.await(c.peer, c.done); gone != nil {
		return 0, gone
	}

	return n, err // must stay what it is
}

// Write implements net.Conn.
func (c *conn) Write(b []byte) (int, error) {
	if err := c.path.await(c.peer, c.done); err != nil {
		return 0, err
	}

	return c.Conn.Write(b) // must stay what it is
}

// Close implements net.Conn.
func (c *conn) Close() error {
	err := net.ErrClosed

	c.once.Do(func() {
		close(c.done)

		err = c.Conn.Close()

		if c.onClose != nil {
			c.onClose(c)
		}
	})

	return err // must stay what it is
}

// abort closes the connection with a reset.
func (c *conn) abort() {
	c.once.Do(func() {
		close(c.done)
		reset(c.Conn)

		if c.onClose != nil {
			c.onClose(c)
		}
	})
}

func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}

	_ = c.Close()
}

// feed is the listener of one generation.
type feed struct {
	addr   net.Addr
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

var _ net.Listener = (*feed)(nil)

func newFeed(addr netip.Addr) *feed {
	return &feed{
		addr:   &net.TCPAddr{IP: addr.AsSlice()},
		conns:  make(chan net.Conn),
		closed: make(chan struct{}),
	}
}

func (f *feed) deliver(c net.Conn) bool {
	select {
	case f.conns <- c:
		return true
	case <-f.closed:
		return false
	}
}

// Accept implements net.Listener.
func (f *feed) Accept() (net.Conn, error) {
	select {
	case c := <-f.conns:
		return c, nil
	case <-f.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (f *feed) Close() error {
	f.once.Do(func() { close(f.closed) })

	return nil
}

// Addr implements net.Listener.
func (f *feed) Addr() net.Addr { return f.addr }
