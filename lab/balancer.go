package lab

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/talos-operator/talos-operator/lab/node"
)

const (
	// apiServerPort is where the API server of a node listens, whatever the port of the endpoint is.
	apiServerPort = 6443
	// dialTimeout bounds the attempt to reach one node.
	dialTimeout = time.Second
)

// balancer runs the load balancers of a lab.
type balancer struct {
	logf func(string, ...any)

	mu      sync.Mutex
	fronts  map[netip.AddrPort]*front
	refused map[netip.AddrPort]bool // could not be listened at, said once
	closed  bool
}

func newBalancer(logf func(string, ...any)) *balancer {
	return &balancer{logf: logf, fronts: map[netip.AddrPort]*front{}, refused: map[netip.AddrPort]bool{}}
}

// update starts and ends load balancers, and tells each which nodes are behind it.
func (b *balancer) update(served map[netip.AddrPort][]*node.Node) {
	b.mu.Lock()
	defer b.mu.Unlock()

	if b.closed {
		return
	}

	for addr, f := range b.fronts {
		if len(served[addr]) == 0 {
			f.close()
			delete(b.fronts, addr)
		}
	}

	for addr, nodes := range served {
		f := b.fronts[addr]
		if f == nil {
			f = b.open(addr)
		}

		if f != nil {
			f.update(nodes)
		}
	}
}

// open starts a load balancer.
func (b *balancer) open(addr netip.AddrPort) *front {
	var lc net.ListenConfig

	l, err := lc.Listen(context.Background(), "tcp", addr.String())
	if err != nil {
		if !b.refused[addr] {
			b.logf("no load balancer for the endpoint: %v", err)
		}

		b.refused[addr] = true

		return nil
	}

	delete(b.refused, addr)

	f := &front{listener: l, conns: map[net.Conn]*node.Node{}}
	b.fronts[addr] = f

	go f.run()

	return f
}

func (b *balancer) close() {
	b.mu.Lock()
	defer b.mu.Unlock()

	b.closed = true

	for _, f := range b.fronts {
		f.close()
	}
}

// front is one load balancer: it forwards connections to the API servers of one cluster in turn.
type front struct {
	listener net.Listener
	next     atomic.Uint32

	mu    sync.Mutex
	nodes []*node.Node
	conns map[net.Conn]*node.Node // of clients, by the node they talk to
}

// update sets the nodes behind the load balancer and drops connections to those that are gone.
func (f *front) update(nodes []*node.Node) {
	f.mu.Lock()
	defer f.mu.Unlock()

	f.nodes = nodes

	alive := make(map[*node.Node]bool, len(nodes))
	for _, n := range nodes {
		alive[n] = n.Reachable()
	}

	for conn, n := range f.conns {
		if !alive[n] {
			_ = conn.Close()
		}
	}
}

func (f *front) run() {
	for {
		conn, err := f.listener.Accept()
		if err != nil {
			return
		}

		go f.serve(conn)
	}
}

// serve connects a client with the first node that responds.
func (f *front) serve(client net.Conn) {
	defer client.Close()

	server, n := f.dial()
	if server == nil {
		return
	}

	defer server.Close()

	f.mu.Lock()
	f.conns[client] = n
	f.mu.Unlock()

	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()

		delete(f.conns, client)
	}()

	var work sync.WaitGroup

	work.Go(func() { pipe(server, client) })
	pipe(client, server)
	work.Wait()
}

// dial reaches a node, beginning with another one each time.
func (f *front) dial() (net.Conn, *node.Node) {
	f.mu.Lock()
	nodes := f.nodes
	f.mu.Unlock()

	start := int(f.next.Add(1))

	for i := range nodes {
		n := nodes[(start+i)%len(nodes)]
		if !n.Reachable() {
			continue
		}

		dialer := net.Dialer{Timeout: dialTimeout}

		address := net.JoinHostPort(n.Address(), strconv.Itoa(apiServerPort))
		if conn, err := dialer.DialContext(context.Background(), "tcp", address); err == nil {
			return conn, n
		}
	}

	return nil, nil
}

// pipe copies one direction and passes its end on. When the destination is gone, the source has to notice.
func pipe(dst, src net.Conn) {
	if _, err := io.Copy(dst, src); err != nil {
		_ = src.Close()
		_ = dst.Close()

		return
	}

	if tcp, ok := dst.(*net.TCPConn); ok {
		_ = tcp.CloseWrite()
	}
}

func (f *front) close() {
	_ = f.listener.Close()

	f.mu.Lock()
	defer f.mu.Unlock()

	for conn := range f.conns {
		_ = conn.Close()
	}
}

// Balance runs a load balancer in front of the API servers of some machines, which are those of one cluster, until it
// is ended. A lab runs its own.
func Balance(address netip.AddrPort, nodes ...*node.Node) (end func(), err error) {
	b := newBalancer(func(format string, args ...any) { err = fmt.Errorf(format, args...) })
	served := map[netip.AddrPort][]*node.Node{address: nodes}

	if b.update(served); err != nil {
		return nil, err
	}

	ctx, cancel := context.WithCancel(context.Background())

	go func() {
		tick := time.NewTicker(watchInterval)
		defer tick.Stop()

		for {
			select {
			case <-ctx.Done():
				b.close()

				return
			case <-tick.C:
				b.update(served)
			}
		}
	}()

	return cancel, nil
}
