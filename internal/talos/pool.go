// Package talos talks to the machine API of Talos nodes. It is the only package that imports the Talos client: it owns
// deadlines, error classes and connections. Each connection goes to one node: the client picks a random endpoint when
// it is given several, and a config for one node must never land on another.
package talos

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	talosclient "github.com/siderolabs/talos/pkg/machinery/client"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
)

// Deadlines and intervals.
const (
	// callTimeout ends a call: etcd calls never answer where etcd does not run.
	callTimeout = 5 * time.Second
	// slowTimeout ends calls that do work on the node before they answer.
	slowTimeout = 30 * time.Second
	// answerTimeout ends the question whether a node answers at all.
	answerTimeout = 2 * time.Second
	// defragmentTimeout ends a defragmentation; the largest database that etcd allows takes about a minute.
	defragmentTimeout = 3 * time.Minute
	// stallTimeout ends a stream of a snapshot that stands still.
	stallTimeout = 15 * time.Second
	// connectionBuffer is the size of the read buffer of a connection.
	connectionBuffer = 8 << 10
	// retryPrecondition is how soon to ask a node again that is not ready for a call.
	retryPrecondition = time.Second
)

// Credentials open the machine API: PEM.
type Credentials struct {
	// CA certificates that a node's certificate must come from.
	CA []byte
	// Cert is the client certificate, Key its private key.
	Cert, Key []byte
}

func (c Credentials) equal(o Credentials) bool {
	return slices.Equal(c.CA, o.CA) && slices.Equal(c.Cert, o.Cert)
}

// TLSConfig is the mutual TLS of a configured node.
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

// insecureTLS is for nodes in maintenance mode, whose certificate nobody can know.
func insecureTLS() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true} //nolint:gosec // maintenance mode only
}

// NodeRef names one node.
type NodeRef struct {
	// Key is the namespace and name of the TalosMachine.
	Key string
	// Address of the node.
	Address string
	// Credentials of its cluster.
	Credentials Credentials
}

// Pool keeps one connection a node.
type Pool struct {
	mu    sync.Mutex
	nodes map[string]*Node
}

// NewPool returns an empty pool.
func NewPool() *Pool { return &Pool{nodes: map[string]*Node{}} }

// Node returns the connection to a node; one to another address or with other credentials is replaced.
func (p *Pool) Node(ctx context.Context, ref NodeRef) (*Node, error) {
	p.mu.Lock()
	defer p.mu.Unlock()

	if n := p.nodes[ref.Key]; n != nil {
		if n.ref.Address == ref.Address && n.ref.Credentials.equal(ref.Credentials) {
			return n, nil
		}

		n.close()
		delete(p.nodes, ref.Key)
	}

	cfg, err := ref.Credentials.TLSConfig()
	if err != nil {
		return nil, err
	}

	// The node has just answered a probe, so a connection that lags behind is worth waiting for, up to the deadline.
	c, err := Dial(ctx, ref.Address, cfg, grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		return nil, err
	}

	p.nodes[ref.Key] = &Node{ref: ref, c: c}

	return p.nodes[ref.Key], nil
}

// Meet finds out what a machine is. One that answers over the connection that there is, with the credentials of its
// cluster on both sides, is a member; only where there is none, or no answer, it takes a new connection to tell.
func (p *Pool) Meet(ctx context.Context, ref NodeRef) (Probe, error) {
	p.mu.Lock()
	n := p.nodes[ref.Key]
	p.mu.Unlock()

	if n != nil && n.ref.Address == ref.Address && n.ref.Credentials.equal(ref.Credentials) && n.answers(ctx) {
		return Probe{State: StateMember}, nil
	}

	return p.Probe(ctx, ref.Address, &ref.Credentials)
}

// Drop closes the connection to a node.
func (p *Pool) Drop(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()

	if n := p.nodes[key]; n != nil {
		n.close()
		delete(p.nodes, key)
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

// Dial opens a client to exactly one node. A peer that lost power is noticed by TCP keepalive within four seconds: one
// of silence and three probes.
func Dial(ctx context.Context, address string, cfg *tls.Config, opts ...grpc.DialOption) (*talosclient.Client, error) {
	dialer := &net.Dialer{
		Timeout: callTimeout,
		KeepAliveConfig: net.KeepAliveConfig{
			Enable: true, Idle: time.Second, Interval: time.Second, Count: 3,
		},
	}

	c, err := talosclient.New(ctx, //nolint:forbidigo // this is its home
		talosclient.WithTLSConfig(cfg),
		talosclient.WithEndpoints(address),
		talosclient.WithGRPCDialOptions(append(opts,
			grpc.WithContextDialer(func(ctx context.Context, target string) (net.Conn, error) {
				return dialer.DialContext(ctx, "tcp", target)
			}),
			// There are thousands of connections, nearly all of which are silent nearly all the time.
			grpc.WithReadBufferSize(connectionBuffer),
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

	return c, nil
}
