package apid

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/siderolabs/grpc-proxy/proxy"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	_ "google.golang.org/grpc/encoding/gzip" // clients may compress, and real nodes understand it
)

const (
	// reloadGrace is how long calls that are under way may take after a reload: the answer of the ApplyConfiguration
	// that caused it must still reach its caller.
	reloadGrace = 10 * time.Second
	// connectionBuffer keeps a connection small; the largest messages are rare and arrive in pieces.
	connectionBuffer = 4 * 1024
)

// Backend is the machine behind the network face.
type Backend interface {
	// Identity returns the current identity. It is asked for at Start and at every Reload.
	Identity() *Identity
	// Register registers the handlers of all services that the node serves. It is called once.
	Register(grpc.ServiceRegistrar)
}

// Options describe a Server.
type Options struct {
	// Address is the node's address, without a port.
	Address netip.Addr
	Backend Backend
	// Faults of this node; nil for a Server that has none and counts nothing that could be read.
	Faults *Faults
	// Network between the nodes of a lab; nil if it is never partitioned.
	Network *Network
	// Resolve translates a forwarding target that is not an address, such as a hostname, to an address. May be nil.
	Resolve func(target string) (netip.Addr, bool)
	// Log takes panics of handlers and the like. May be nil.
	Log io.Writer
}

// Server serves the machine API of one node.
type Server struct {
	opts     Options
	faults   *Faults
	services *services
	path     path
	log      *slog.Logger

	firewall atomic.Pointer[func(netip.Addr) bool] // see SetFirewall

	mu       sync.Mutex
	listener *listener   // nil while stopped
	leaving  *listener   // that of a Shutdown or a Handover under way
	handover *handover   // under way
	current  *generation // nil while stopped

	retiring sync.WaitGroup // generations that still answer
}

// NewServer returns a Server that does not serve yet.
func NewServer(opts Options) *Server {
	s := &Server{opts: opts, faults: opts.Faults, services: &services{}}

	if s.faults == nil {
		s.faults = NewFaults()
	}

	if opts.Log == nil {
		opts.Log = io.Discard
	}

	s.path = path{self: opts.Address, faults: s.faults, network: opts.Network}
	s.log = slog.New(slog.NewTextHandler(opts.Log, nil)).With("service", "apid")
	opts.Backend.Register(s.services)
	s.faults.onChange(s.applyPartition)

	return s
}

// Start begins to listen and serve: the node has booted as far as its API.
func (s *Server) Start() error {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.start()
}

// start is Start for callers that hold the lock. A handover under way starts by itself.
func (s *Server) start() error {
	if s.listener != nil || s.handover != nil {
		return nil
	}

	s.cutLeaving()

	address := net.JoinHostPort(s.opts.Address.String(), strconv.Itoa(constants.ApidPort))

	l, err := listen(address, &s.path, &s.firewall)
	if err != nil {
		return fmt.Errorf("listening on %s: %w", address, err)
	}

	s.listener = l
	s.current = s.newGeneration(s.opts.Backend.Identity())
	l.setTarget(s.current.feed)

	go l.run()

	l.setDeaf(s.faults.Partitioned())

	return nil
}

// Stop cuts the power of the network face: it stops listening and resets all connections. Start serves again.
func (s *Server) Stop() {
	s.mu.Lock()
	l, g := s.listener, s.current
	s.listener, s.current = nil, nil

	if h := s.endHandover(); h != nil {
		l, g = h.listener, h.generation
	}

	s.cutLeaving()
	s.mu.Unlock()

	if l == nil {
		return
	}

	l.close()
	g.kill()
}

func (s *Server) cutLeaving() {
	if s.leaving != nil {
		s.leaving.close()
		s.leaving = nil
	}
}

// SetFirewall says from which addresses new connections are accepted. Packets of others are dropped, so that a client
// hears nothing. Connections that are established go on.
func (s *Server) SetFirewall(accepts func(netip.Addr) bool) { s.firewall.Store(&accepts) }

// Reload takes the backend's identity anew, as apid restarts when a node leaves maintenance mode or its CAs change. New
// connections meet the new identity at once. Streams on old connections end at once, unary calls may finish, then the
// old connections are dropped. Reload does not wait for that, so a handler may call it.
func (s *Server) Reload() {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.listener == nil {
		return
	}

	old, identity := s.current, s.opts.Backend.Identity()
	if identity == old.identity {
		return // it began with it
	}

	s.current = s.newGeneration(identity)
	s.listener.setTarget(s.current.feed)

	l, gone := s.listener, make(chan struct{})
	s.current.before = gone

	s.retiring.Go(func() {
		defer close(gone)

		old.retire(l, reloadGrace)
		old.awaitBefore()
	})
}

// Serving says whether the server is started, or about to be.
func (s *Server) Serving() bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.listener != nil || s.handover != nil
}

func (s *Server) applyPartition() {
	s.mu.Lock()
	l := cmp.Or(s.listener, s.leaving)
	s.mu.Unlock()

	if l != nil {
		l.setDeaf(s.faults.Partitioned())
	}
}

// generation serves the connections of one identity.
type generation struct {
	server   *grpc.Server
	feed     *feed
	backends *backends
	identity *Identity

	ctx    context.Context //nolint:containedctx // the life of the generation itself
	cancel context.CancelFunc
	// before is closed once the connections of all generations before are gone; nil for the first one.
	before chan struct{}
}

func (s *Server) newGeneration(id *Identity) *generation {
	g := &generation{feed: newFeed(s.opts.Address), identity: id}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	g.backends = newBackends(s, id)

	g.server = grpc.NewServer(
		grpc.Creds(credentials.NewTLS(id.serverTLS())),
		grpc.ForceServerCodecV2(proxy.Codec()),
		grpc.UnknownServiceHandler((&router{server: s, identity: id, generation: g}).handle),
		grpc.MaxRecvMsgSize(constants.GRPCMaxMessageSize),
		grpc.ReadBufferSize(connectionBuffer),
		grpc.WriteBufferSize(connectionBuffer),
	)

	go func() {
		// Serve ends with an error only when the feed is closed, which is how a generation ends.
		_ = g.server.Serve(g.feed)
	}()

	return g
}

// retire ends streams now, lets unary calls finish and drops the connections.
func (g *generation) retire(l *listener, grace time.Duration) {
	g.cancel()

	stop := time.AfterFunc(grace, func() {
		// Closing them first keeps Stop from waiting for a peer that does not read.
		l.abort(g.feed)
		g.server.Stop()
	})
	defer stop.Stop()

	g.server.GracefulStop()
	g.backends.close()
}

// kill ends everything; the connections are closed already.
func (g *generation) kill() {
	g.cancel()
	g.server.Stop()
	g.backends.close()
}
