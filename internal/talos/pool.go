// Package talos accesses the machine API of Talos nodes. It is the only package that imports the Talos client, and is
// responsible for deadlines, error classes and connections. Each connection leads to one node: the client chooses a
// random endpoint if it is given several, and the configuration for one node must never be sent to another.
package talos

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"path"
	"slices"
	"sync"
	"time"

	"github.com/cosi-project/runtime/pkg/state"
	talosclient "github.com/siderolabs/talos/pkg/machinery/client"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Deadlines and intervals.
const (
	// callTimeout ends a call: etcd calls never return while etcd does not run.
	callTimeout = 5 * time.Second
	// factsTimeout ends the dozen calls that read the state for a status, most of them concurrently. A slower node would
	// delay others.
	factsTimeout = 8 * time.Second
	// slowTimeout ends calls that do work on the node before they respond.
	slowTimeout = 30 * time.Second
	// answerTimeout ends the check whether a node responds at all.
	answerTimeout = 2 * time.Second
	// defragmentTimeout ends a defragmentation; the largest database that etcd supports takes about a minute.
	defragmentTimeout = 3 * time.Minute
	// stallTimeout ends a snapshot stream without progress.
	stallTimeout = 15 * time.Second
	// silenceTimeout ends a connection whose peer acknowledges nothing: as long as keepalive takes.
	silenceTimeout = 4 * time.Second
	// retryPrecondition is how soon to query a node again that is not ready for a call.
	retryPrecondition = time.Second
)

// Credentials grant access to the machine API: PEM.
type Credentials struct {
	// CA certificates that must have issued a node's certificate.
	CA []byte
	// Cert is the client certificate, Key its private key.
	Cert, Key []byte
}

func (c Credentials) equal(o Credentials) bool {
	return slices.Equal(c.CA, o.CA) && slices.Equal(c.Cert, o.Cert)
}

// TLSConfig returns the mutual-TLS configuration for a configured node.
func (c Credentials) TLSConfig() (*tls.Config, error) {
	pair, err := tls.X509KeyPair(c.Cert, c.Key)
	if err != nil {
		return nil, fmt.Errorf("reading the client certificate: %w", err)
	}

	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(c.CA) {
		return nil, errors.New("reading the CA certificates: none found")
	}

	return &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: pool, Certificates: []tls.Certificate{pair}}, nil
}

// NodeRef identifies the connection to one node.
type NodeRef struct {
	// Key is the namespace and name of the TalosMachine.
	Key string
	// Address of the node.
	Address string
	// Credentials of its cluster.
	Credentials Credentials
}

func (r NodeRef) equal(o NodeRef) bool {
	return r.Key == o.Key && r.Address == o.Address && r.Credentials.equal(o.Credentials)
}

// Observer is told of each unary call to a node that has ended: its method without the service, the code of its result,
// and how long it took. It is called concurrently.
type Observer func(method string, code codes.Code, took time.Duration)

// Pool keeps one connection per node, for calls and for its stream.
type Pool struct {
	// Observe is told of the calls over all connections, those of maintenance mode included; nil tells nothing. It must be
	// set before the first connection is opened.
	Observe Observer

	mu    sync.Mutex
	nodes map[string]*Node
}

// NewPool returns an empty pool.
func NewPool() *Pool { return &Pool{nodes: map[string]*Node{}} }

// Node returns the connection to a node. A connection to another address or with other credentials is replaced.
func (p *Pool) Node(ctx context.Context, ref NodeRef) (*Node, error) {
	p.mu.Lock()
	defer p.mu.Unlock()

	if n := p.nodes[ref.Key]; n != nil {
		if n.ref.equal(ref) {
			return n, nil
		}

		p.retire(n)
	}

	n, err := p.open(ctx, ref)
	if err != nil {
		return nil, err
	}

	p.nodes[ref.Key] = n

	return n, nil
}

// hold returns the connection to a node for a stream. It stays open until it is released, even if the pool replaces it:
// renewed credentials must not make a node appear unreachable for a moment. A late stream, with an address or
// credentials that the pool has already replaced, gets a connection of its own and does not restore them in the pool.
func (p *Pool) hold(ctx context.Context, ref NodeRef) (*Node, error) {
	p.mu.Lock()
	defer p.mu.Unlock()

	n := p.nodes[ref.Key]
	if n == nil || !n.ref.equal(ref) {
		late := n != nil

		var err error
		if n, err = p.open(ctx, ref); err != nil {
			return nil, err
		}

		if n.retired = late; !late {
			p.nodes[ref.Key] = n
		}
	}

	n.streams++

	return n, nil
}

// release ends what hold began. A broken connection is not kept: it would reconnect to an unreachable node twice a
// second. Calls that wait for it continue until their deadlines; the next stream finds it broken again.
func (p *Pool) release(n *Node) {
	p.mu.Lock()
	defer p.mu.Unlock()

	n.streams--

	switch {
	case n.streams > 0:
	case n.retired:
		n.close()
	case !n.ready() && n.calls.Load() == 0 && p.nodes[n.ref.Key] == n:
		p.retire(n)
	}
}

// retire removes a connection from the pool; the last stream closes it. The pool must be locked.
func (p *Pool) retire(n *Node) {
	delete(p.nodes, n.ref.Key)

	n.retired = true

	if n.streams == 0 {
		n.close()
	}
}

func (p *Pool) open(ctx context.Context, ref NodeRef) (*Node, error) {
	cfg, err := ref.Credentials.TLSConfig()
	if err != nil {
		return nil, err
	}

	n := &Node{ref: ref, pulse: &pulse{}}

	// The node has just responded to a probe, so a slow connection is worth waiting for, up to the deadline.
	n.c, err = dial(ctx, ref.Address, cfg, &n.line,
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)), grpc.WithChainUnaryInterceptor(n.count, p.measure))

	return n, err
}

// measure tells the observer of a call. Streams are not measured: how long one lasts says nothing about the node.
//
//nolint:revive // the arguments are those of an interceptor
func (p *Pool) measure(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
	invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	began := time.Now()
	err := invoke(ctx, method, req, reply, cc, opts...)

	if p.Observe != nil {
		p.Observe(path.Base(method), status.Code(err), time.Since(began))
	}

	return err
}

// Meet determines what a machine is. A machine that responds over the existing connection, which authenticates both
// sides with the credentials of its cluster, is a member; a new connection is needed only if there is none, or no
// response.
func (p *Pool) Meet(ctx context.Context, ref NodeRef) (Probe, error) {
	if n := p.existing(ref); n != nil && n.answers(ctx) {
		return Probe{State: StateMember}, nil
	}

	return p.Probe(ctx, ref.Address, &ref.Credentials)
}

// Connected returns the connection to a node if there is one that seems to work, else nil. A machine that responds over
// it is a member of the cluster; if none responds, Probe determines what the machine is.
func (p *Pool) Connected(ref NodeRef) *Node {
	if n := p.existing(ref); n != nil && n.ready() {
		return n
	}

	return nil
}

// existing returns the connection to a node with the given credentials; nil if there is none.
func (p *Pool) existing(ref NodeRef) *Node {
	p.mu.Lock()
	defer p.mu.Unlock()

	if n := p.nodes[ref.Key]; n != nil && n.ref.equal(ref) {
		return n
	}

	return nil
}

// Drop closes the connection to a node, after its stream has ended.
func (p *Pool) Drop(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()

	if n := p.nodes[key]; n != nil {
		p.retire(n)
	}
}

// Forget closes the connections to all nodes of a deleted cluster, by its CA, each after its stream has ended:
// including those that are not dropped by their key, because a late call has opened them again.
func (p *Pool) Forget(ca []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()

	for _, n := range p.nodes {
		if bytes.Equal(n.ref.Credentials.CA, ca) {
			p.retire(n)
		}
	}
}

// Close closes all connections.
func (p *Pool) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()

	for key, n := range p.nodes {
		n.close()
		delete(p.nodes, key)
	}
}

// dial opens a client to exactly one node; each TCP connection uses the line. A peer that lost power is noticed within
// four seconds: by TCP keepalive if nothing is in transit, after one second of silence and three probes, and by missing
// acknowledgements otherwise.
func dial(
	ctx context.Context, address string, cfg *tls.Config, l *line, opts ...grpc.DialOption,
) (*talosclient.Client, error) {
	dialer := newDialer()

	c, err := talosclient.New(ctx, //nolint:forbidigo // this is its home
		talosclient.WithTLSConfig(cfg),
		talosclient.WithEndpoints(address),
		talosclient.WithGRPCDialOptions(append(append(bounds(), opts...),
			grpc.WithContextDialer(func(ctx context.Context, target string) (net.Conn, error) {
				return l.connect(func() (net.Conn, error) { return dialer.DialContext(ctx, "tcp", target) })
			}),
			// There are thousands of connections, most of which are idle most of the time: a connection has no buffer of its
			// own. TLS hands out what it has decrypted piece by piece anyway, without a system call for each.
			grpc.WithReadBufferSize(0),
			grpc.WithConnectParams(grpc.ConnectParams{
				Backoff: backoff.Config{
					BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 500 * time.Millisecond,
				},
				MinConnectTimeout: callTimeout,
			}),
		)...))
	if err != nil {
		return nil, fmt.Errorf("opening a client to %s: %w", address, err)
	}

	c.COSI = state.WrapCore(decoding{c.COSI})

	return c, nil
}

func newDialer() *net.Dialer {
	return &net.Dialer{
		Timeout: callTimeout,
		KeepAliveConfig: net.KeepAliveConfig{
			Enable: true, Idle: time.Second, Interval: time.Second, Count: 3,
		},
		Control: limitSilence,
	}
}
