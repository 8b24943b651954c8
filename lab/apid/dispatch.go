package apid

import (
	"context"
	"fmt"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	cosiv1alpha1 "github.com/cosi-project/runtime/api/v1alpha1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// services holds the handlers of a node. It takes the place of the second gRPC server that a real node has behind apid.
type services struct {
	byName map[string]service
}

type service struct {
	methods map[string]method
	impl    any
}

// method is either unary or a stream.
type method struct {
	unary  *grpc.MethodDesc
	stream *grpc.StreamDesc
}

// methodTables are shared by all nodes: descriptors are package variables of the generated code.
var methodTables sync.Map // *grpc.ServiceDesc to map[string]method

// RegisterService implements grpc.ServiceRegistrar.
func (s *services) RegisterService(desc *grpc.ServiceDesc, impl any) {
	table, ok := methodTables.Load(desc)
	if !ok {
		methods := make(map[string]method, len(desc.Methods)+len(desc.Streams))

		for i := range desc.Methods {
			methods[desc.Methods[i].MethodName] = method{unary: &desc.Methods[i]}
		}

		for i := range desc.Streams {
			methods[desc.Streams[i].StreamName] = method{stream: &desc.Streams[i]}
		}

		table, _ = methodTables.LoadOrStore(desc, methods)
	}

	if s.byName == nil {
		s.byName = map[string]service{}
	}

	s.byName[desc.ServiceName] = service{methods: table.(map[string]method), impl: impl}
}

// find returns the handler of a method, or the error that a gRPC server answers for an unknown one.
func (s *services) find(fullMethod string) (any, method, error) {
	name, methodName, ok := strings.Cut(strings.TrimPrefix(fullMethod, "/"), "/")
	if !ok {
		return nil, method{}, status.Errorf(codes.Unimplemented, "malformed method name: %q", fullMethod)
	}

	svc, ok := s.byName[name]
	if !ok {
		return nil, method{}, status.Errorf(codes.Unimplemented, "unknown service %s", name)
	}

	m, ok := svc.methods[methodName]
	if !ok {
		return nil, method{}, status.Errorf(codes.Unimplemented, "unknown method %s for service %s", methodName, name)
	}

	return svc.impl, m, nil
}

// serve runs a call on this node: authorization, then faults, then the handler.
func (r *router) serve(stream grpc.ServerStream, fullMethod string, who *caller) (err error) {
	impl, m, err := r.server.services.find(fullMethod)
	if err != nil {
		return err
	}

	call := r.server.faults.arrive(stream.Context(), fullMethod, who)

	defer func() {
		if p := recover(); p != nil {
			r.server.log.Error("handler panicked", "method", fullMethod, "panic", p, "stack", string(debug.Stack()))
			err = status.Errorf(codes.Internal, "%v", p)
		}

		call.end(err)
	}()

	if err = who.authorize(fullMethod); err != nil {
		return err
	}

	if m.unary != nil {
		return serveUnary(stream, impl, m.unary, call)
	}

	return r.serveStream(stream, impl, m.stream, call)
}

func serveUnary(stream grpc.ServerStream, impl any, m *grpc.MethodDesc, call *call) error {
	intercept := func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		return call.run(ctx, req, func() (any, error) { return handler(ctx, req) })
	}

	reply, err := m.Handler(impl, stream.Context(), stream.RecvMsg, intercept)
	if err != nil {
		return err
	}

	if err := stream.SendMsg(reply); err != nil {
		return fmt.Errorf("sending the reply: %w", err)
	}

	return nil
}

func (r *router) serveStream(stream grpc.ServerStream, impl any, m *grpc.StreamDesc, call *call) error {
	// A stream ends with the generation, a unary call does not: it may be the one that ends it.
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()

	stop := context.AfterFunc(r.generation.ctx, cancel)
	defer stop()

	_, err := call.run(ctx, nil, func() (any, error) {
		return nil, m.Handler(impl, &faultyStream{contextStream: contextStream{ServerStream: stream, ctx: ctx}, call: call})
	})

	if r.generation.ctx.Err() != nil && stream.Context().Err() == nil {
		return status.Error(codes.Unavailable, "transport is closing")
	}

	return err
}

// contextStream is a stream with another context.
type contextStream struct {
	grpc.ServerStream

	ctx context.Context //nolint:containedctx // what a gRPC stream has
}

// faultyStream is a stream under the faults of its call.
type faultyStream struct {
	contextStream

	call *call
}

// SendMsg implements grpc.ServerStream.
func (s *faultyStream) SendMsg(m any) error {
	if _, watch := m.(*cosiv1alpha1.WatchResponse); watch && s.call.faults.muted.Load() {
		return nil
	}

	for {
		if err := s.ServerStream.SendMsg(m); err != nil || s.ctx.Err() != nil {
			return err
		}

		switch {
		case s.call.flood:
		case s.call.flap > 0:
			next := flipped(m)
			if next == nil {
				return nil
			}

			select {
			case <-time.After(s.call.flap):
			case <-s.ctx.Done():
				return s.ctx.Err()
			}

			m = next
		default:
			return nil
		}
	}
}

// flipped is the first part of a watch with what it tells of gone, or back again; nil for other streams, and for what
// does not exist.
func flipped(m any) any {
	w, ok := m.(*cosiv1alpha1.WatchResponse)
	if !ok || len(w.GetEvent()) == 0 {
		return nil
	}

	next := proto.CloneOf(w)

	for _, e := range next.GetEvent() {
		switch e.GetEventType() { // the rest does not alternate
		case cosiv1alpha1.EventType_CREATED:
			e.EventType = cosiv1alpha1.EventType_DESTROYED
		case cosiv1alpha1.EventType_DESTROYED:
			if e.GetResource().GetSpec() == nil {
				return nil
			}

			e.EventType = cosiv1alpha1.EventType_CREATED
		default:
			return nil
		}
	}

	return next
}

// Context implements grpc.ServerStream.
func (s *contextStream) Context() context.Context { return s.ctx }
