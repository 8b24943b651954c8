package apid

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/siderolabs/grpc-proxy/proxy"
	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// Settings of connections between nodes.
const (
	forwardMaxBackoff     = 15 * time.Second
	forwardConnectTimeout = 20 * time.Second
	// forwardIdle is shorter than a real node's 15 minutes: an idle connection costs memory on both sides.
	forwardIdle = time.Minute
)

// aggregated are the services whose replies carry the metadata that one call to many nodes needs.
var aggregated = []string{
	"/machine.MachineService/", "/cluster.ClusterService/", "/inspect.InspectService/", "/storage.StorageService/",
	"/time.TimeService/",
}

// streamed are the methods that a real apid knows to answer with a stream when it aggregates. It is the real list,
// with its gaps.
var streamed = []string{
	"/machine.MachineService/Copy", "/machine.MachineService/DiskUsage", "/machine.MachineService/Dmesg",
	"/machine.MachineService/EtcdSnapshot", "/machine.MachineService/Events", "/machine.MachineService/ImageList",
	"/machine.MachineService/Kubeconfig", "/machine.MachineService/List", "/machine.MachineService/Logs",
	"/machine.MachineService/PacketCapture", "/machine.MachineService/Read", "/machine.LifecycleService/Install",
	"/machine.LifecycleService/Upgrade", "/cluster.ClusterService/HealthCheck",
}

func isStreamed(method string) bool {
	return slices.Contains(streamed, method) || strings.HasSuffix(method, "Stream")
}

// router decides where a call runs.
type router struct {
	server     *Server
	identity   *Identity
	generation *generation
}

// route is the outcome: here if it has no targets.
type route struct {
	targets []string
	mode    proxy.Mode
}

func (r *router) handle(srv any, stream grpc.ServerStream) error {
	// The next identity is served already. GracefulStop tells the client so in a moment, and lets calls begin until then.
	if r.generation.ctx.Err() != nil {
		return status.Error(codes.Unavailable, "the API restarts")
	}

	method, ok := grpc.MethodFromServerStream(stream)
	if !ok {
		return status.Error(codes.Internal, "no method in the stream")
	}

	who := identify(stream.Context(), r.identity.Maintenance)
	stream = &contextStream{ServerStream: stream, ctx: context.WithValue(stream.Context(), callerKey{}, who)}

	to, err := r.route(stream.Context(), method)
	if err != nil {
		return err
	}

	if len(to.targets) == 0 {
		return r.serve(stream, method, who)
	}

	upstreams := make([]proxy.Backend, 0, len(to.targets))

	for _, target := range to.targets {
		upstream, err := r.generation.backends.get(target)
		if err != nil {
			return status.Error(codes.Internal, err.Error())
		}

		upstreams = append(upstreams, upstream)
	}

	director := func(context.Context, string) (proxy.Mode, []proxy.Backend, error) { return to.mode, upstreams, nil }

	return proxy.TransparentHandler(director, proxy.WithStreamedDetector(isStreamed))(srv, stream)
}

// route reads the metadata of a call.
func (r *router) route(ctx context.Context, method string) (route, error) {
	md, _ := metadata.FromIncomingContext(ctx)

	// A call that another node forwarded goes no further.
	if _, ok := md[keyProxyFrom]; ok {
		return route{}, nil
	}

	node, nodes := md[keyNode], md[keyNodes]

	if len(node) > 1 {
		return route{}, status.Error(codes.InvalidArgument, "node metadata must be single-valued")
	}

	forwarding := r.identity.Forwarding != nil

	// A single target that is this very node needs no forwarding. With `nodes`, a node that can forward calls itself
	// through the network all the same, because that adds the metadata to the reply.
	if len(node) == 1 && r.isLocal(node[0]) {
		node = nil
	}

	if !forwarding && len(nodes) == 1 && r.isLocal(nodes[0]) {
		nodes = nil
	}

	switch {
	case len(nodes) > 0:
		if !slices.ContainsFunc(aggregated, func(prefix string) bool { return strings.HasPrefix(method, prefix) }) {
			return route{}, status.Errorf(codes.InvalidArgument,
				"one-2-many proxying is not supported for method %s", method)
		}
	case len(node) == 0:
		return route{}, nil
	}

	if !forwarding {
		return route{}, status.Error(codes.PermissionDenied, "no request forwarding")
	}

	if len(nodes) > 0 {
		return route{targets: nodes, mode: proxy.One2Many}, nil
	}

	return route{targets: node, mode: proxy.One2One}, nil
}

func (r *router) isLocal(target string) bool {
	return target != "" && (target == r.server.opts.Address.String() || target == r.identity.Hostname)
}

// backends are the other nodes that one generation has called.
type backends struct {
	server *Server
	tls    *tls.Config

	mu       sync.Mutex
	byTarget map[string]*upstream
	conns    map[*conn]struct{}
	closed   bool
}

func newBackends(s *Server, id *Identity) *backends {
	return &backends{server: s, tls: id.clientTLS()}
}

func (b *backends) get(target string) (*upstream, error) {
	if target == "" || hasPort(target) {
		return nil, fmt.Errorf("invalid target %q", target)
	}

	b.mu.Lock()
	defer b.mu.Unlock()

	if b.closed {
		return nil, errors.New("the node is going down")
	}

	if up, ok := b.byTarget[target]; ok {
		return up, nil
	}

	backoffConfig := backoff.DefaultConfig
	backoffConfig.MaxDelay = forwardMaxBackoff

	conn, err := grpc.NewClient(
		"passthrough:///"+net.JoinHostPort(target, strconv.Itoa(constants.ApidPort)),
		grpc.WithContextDialer(b.dial),
		grpc.WithNoProxy(),
		grpc.WithTransportCredentials(credentials.NewTLS(b.tls)),
		grpc.WithIdleTimeout(forwardIdle),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoffConfig, MinConnectTimeout: forwardConnectTimeout}),
		grpc.WithReadBufferSize(connectionBuffer),
		grpc.WithWriteBufferSize(connectionBuffer),
		grpc.WithDefaultCallOptions(
			grpc.MaxCallRecvMsgSize(constants.GRPCMaxMessageSize), grpc.ForceCodecV2(proxy.Codec()),
		),
	)
	if err != nil {
		return nil, fmt.Errorf("preparing a connection to %s: %w", target, err)
	}

	if b.byTarget == nil {
		b.byTarget = map[string]*upstream{}
	}

	up := &upstream{target: target, conn: conn}
	b.byTarget[target] = up

	return up, nil
}

// dial connects to another node for the gRPC client.
func (b *backends) dial(ctx context.Context, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("dialing %q: %w", address, err)
	}

	addr, err := netip.ParseAddr(host)
	if err != nil {
		var ok bool
		if resolve := b.server.opts.Resolve; resolve != nil {
			addr, ok = resolve(host)
		}

		if !ok {
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{
				Err: "no such host", Name: host, IsNotFound: true,
			}}
		}
	}

	c, err := b.server.path.dial(ctx, "tcp", net.JoinHostPort(addr.String(), port), b.forget)
	if err != nil {
		return nil, err
	}

	if !b.remember(c) {
		c.abort()

		return nil, net.ErrClosed
	}

	return c, nil
}

func (b *backends) remember(c *conn) bool {
	b.mu.Lock()
	defer b.mu.Unlock()

	if b.conns == nil {
		b.conns = map[*conn]struct{}{}
	}

	b.conns[c] = struct{}{}

	return !b.closed
}

func (b *backends) forget(c *conn) {
	b.mu.Lock()
	defer b.mu.Unlock()

	delete(b.conns, c)
}

// close drops all connections to other nodes. The sockets go first: to say goodbye on a silent one would take until the
// silence ends.
func (b *backends) close() {
	b.mu.Lock()
	b.closed = true
	conns, upstreams := slices.Collect(maps.Keys(b.conns)), b.byTarget
	b.byTarget = nil
	b.mu.Unlock()

	for _, c := range conns {
		c.abort()
	}

	for _, up := range upstreams {
		_ = up.conn.Close()
	}
}

func hasPort(target string) bool {
	if _, err := netip.ParseAddr(target); err == nil {
		return false
	}

	_, _, err := net.SplitHostPort(target)

	return err == nil
}

// upstream is another node, from the view of a node that forwards to it.
type upstream struct {
	target string
	conn   *grpc.ClientConn
}

var _ proxy.Backend = (*upstream)(nil)

// String implements proxy.Backend.
func (u *upstream) String() string { return u.target }

// GetConnection implements proxy.Backend. Of the caller's metadata only what is harmless travels on; the roles are
// those that this node has established.
func (u *upstream) GetConnection(ctx context.Context, _ string) (context.Context, *grpc.ClientConn, error) {
	incoming, _ := metadata.FromIncomingContext(ctx)
	md := metadata.MD{keyRole: Roles(ctx).Strings(), keyProxyFrom: []string{"unknown"}}

	for _, key := range []string{keyContext, keyRuntime} {
		if values := incoming[key]; len(values) > 0 {
			md[key] = values
		}
	}

	if authority := incoming[keyAuthority]; len(authority) > 0 {
		md[keyProxyFrom] = authority
	}

	return metadata.NewOutgoingContext(ctx, md), u.conn, nil
}

// AppendInfo implements proxy.Backend: it writes the node's name into the reply. Replies to calls that may be
// aggregated look alike: field 1 repeats one message for each node, whose field 1 is the metadata. Protobuf allows to
// concatenate encoded messages, so one reply is extended by another message that has nothing but the metadata.
func (u *upstream) AppendInfo(streaming bool, reply []byte) ([]byte, error) {
	info, err := proto.Marshal(&common.Empty{Metadata: &common.Metadata{Hostname: u.target}})
	if err != nil {
		return nil, fmt.Errorf("encoding the metadata of %s: %w", u.target, err)
	}

	if streaming {
		return append(reply, info...), nil
	}

	number, kind, n := protowire.ConsumeTag(reply)
	if n < 0 {
		return nil, protowire.ParseError(n)
	}

	if number != 1 || kind != protowire.BytesType {
		return nil, fmt.Errorf("unexpected message format: field %d of type %d", number, kind)
	}

	_, length := protowire.ConsumeVarint(reply[n:])
	if length < 0 {
		return nil, protowire.ParseError(length)
	}

	// A reply from one node has exactly one message, so its content is the rest of the reply.
	content := append(slices.Clone(reply[n+length:]), info...)

	return protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), content), nil
}

// BuildError implements proxy.Backend: the error of one of many nodes becomes a message of the reply.
func (u *upstream) BuildError(streaming bool, cause error) ([]byte, error) {
	failed := &common.Empty{Metadata: &common.Metadata{
		Hostname: u.target,
		Error:    cause.Error(),
		Status:   status.Convert(cause).Proto(),
	}}

	var reply proto.Message = &common.EmptyResponse{Messages: []*common.Empty{failed}}
	if streaming {
		reply = failed
	}

	out, err := proto.Marshal(reply)
	if err != nil {
		return nil, fmt.Errorf("encoding the error of %s: %w", u.target, err)
	}

	return out, nil
}
