package talos

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"

	cosiv1alpha1 "github.com/cosi-project/runtime/api/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"github.com/siderolabs/talos/pkg/machinery/resources/config"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/talos-operator/talos-operator/internal/text"
)

// speaker is what a node responds with, below everything that the package does with responses. No connection is made.
type speaker struct {
	// spec is that of each resource, and message each message of the machine API.
	spec, message []byte
	// lie changes what the node says that a resource is; nil for the truth.
	lie func(*cosiv1alpha1.Metadata)
	// frames are the parts of a stream of content, and end is how it ends.
	frames []*common.Data
	end    error
	// err is what each call fails with; nil for none.
	err error
}

func (s *speaker) unary(_ context.Context, _ string, req, reply any, _ *grpc.ClientConn, _ grpc.UnaryInvoker,
	_ ...grpc.CallOption,
) error {
	if s.err != nil {
		return s.err
	}

	if get, ok := req.(*cosiv1alpha1.GetRequest); ok {
		reply.(*cosiv1alpha1.GetResponse).Resource = s.resource(get.GetNamespace(), get.GetType(), get.GetId())

		return nil
	}

	return decoded(s.message, reply)
}

func (s *speaker) stream(ctx context.Context, _ *grpc.StreamDesc, _ *grpc.ClientConn, _ string, _ grpc.Streamer,
	_ ...grpc.CallOption,
) (grpc.ClientStream, error) {
	return &spoken{s: s, ctx: ctx}, nil
}

func (s *speaker) resource(namespace, typ, id string) *cosiv1alpha1.Resource {
	out := &cosiv1alpha1.Resource{
		Metadata: &cosiv1alpha1.Metadata{Namespace: namespace, Type: typ, Id: id, Version: "1", Phase: "running"},
		Spec:     &cosiv1alpha1.Spec{ProtoSpec: s.spec, YamlSpec: strings.ToValidUTF8(string(s.spec), "")},
	}

	if s.lie != nil {
		s.lie(out.Metadata)
	}

	return out
}

// decoded is what gRPC makes of a message.
func decoded(message []byte, reply any) error {
	if err := proto.Unmarshal(message, reply.(proto.Message)); err != nil {
		return status.Error(codes.Internal, "the message cannot be decoded")
	}

	return nil
}

// spoken is one stream: of two resources, of one message, or of the frames.
type spoken struct {
	grpc.ClientStream

	s    *speaker
	ctx  context.Context //nolint:containedctx // that of the stream
	req  any
	sent int
}

func (s *spoken) Context() context.Context { return s.ctx }
func (s *spoken) CloseSend() error         { return nil }

func (s *spoken) SendMsg(m any) error {
	s.req = m

	return nil
}

func (s *spoken) RecvMsg(m any) error {
	s.sent++

	switch into := m.(type) {
	case *cosiv1alpha1.ListResponse:
		if list := s.req.(*cosiv1alpha1.ListRequest); s.s.err == nil && s.sent <= 2 {
			id := fmt.Sprint("id", s.sent)
			if list.GetType() == config.MachineConfigType {
				id = []string{config.ActiveID, config.PersistentID}[s.sent-1]
			}

			into.Resource = s.s.resource(list.GetNamespace(), list.GetType(), id)

			return nil
		}
	case *cosiv1alpha1.WatchResponse:
		// The first message is empty: the watch has begun.
		if watch := s.req.(*cosiv1alpha1.WatchRequest); s.sent == 2 {
			into.Event = []*cosiv1alpha1.Event{{
				EventType: cosiv1alpha1.EventType_CREATED,
				Resource:  s.s.resource(watch.GetNamespace(), watch.GetType(), watch.GetId()),
			}}
		}

		if s.sent <= 2 {
			return nil
		}
	case *common.Data:
		if s.sent <= len(s.s.frames) {
			proto.Merge(into, s.s.frames[s.sent-1])

			return nil
		}
	default:
		if s.s.err == nil && s.sent == 1 {
			return decoded(s.s.message, m)
		}
	}

	switch {
	case s.s.err != nil:
		return s.s.err
	case s.s.end != nil:
		return s.s.end
	}

	return io.EOF
}

// talkTo returns a connection to what a node responds with.
func talkTo(tb testing.TB, s *speaker) *Node {
	tb.Helper()

	n := &Node{ref: NodeRef{Address: "192.0.2.1"}, pulse: &pulse{}}

	c, err := dial(tb.Context(), n.ref.Address, &tls.Config{MinVersion: tls.VersionTLS13}, &n.line,
		grpc.WithChainUnaryInterceptor(n.count, s.unary), grpc.WithChainStreamInterceptor(s.stream))
	if err != nil {
		tb.Fatal(err)
	}

	n.c = c
	tb.Cleanup(n.close)

	return n
}

// unplain returns a text within a value that would control a terminal, or forge a line of a log.
func unplain(v reflect.Value) string {
	switch v.Kind() {
	case reflect.String:
		if text.Plain(v.String()) != v.String() {
			return v.String()
		}
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			return unplain(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if found := unplain(v.Field(i)); found != "" {
				return found
			}
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			if found := unplain(v.Index(i)); found != "" {
				return found
			}
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			if found := unplain(key) + unplain(v.MapIndex(key)); found != "" {
				return found
			}
		}
	}

	return ""
}

// answer is the result of a call.
type answer struct {
	value any
	err   error
}

func answerOf[T any](value T, err error) answer { return answer{value, err} }

// readings are the calls whose responses the operator reads.
func readings(ctx context.Context, n *Node) map[string]func() answer {
	m := &Maintenance{address: n.ref.Address, c: n.c}

	return map[string]func() answer{
		"facts":             func() answer { return answerOf(n.Facts(ctx)) },
		"facts of no node":  func() answer { return answerOf(m.Facts(ctx)) },
		"disks":             func() answer { return answerOf(m.Disks(ctx)) },
		"network":           func() answer { return answerOf(n.Network(ctx)) },
		"volumes":           func() answer { return answerOf(n.Volumes(ctx)) },
		"partitions":        func() answer { return answerOf(n.Partitions(ctx)) },
		"image":             func() answer { return answerOf(n.Image(ctx)) },
		"static pods":       func() answer { return answerOf(n.StaticPods(ctx)) },
		"cluster members":   func() answer { return answerOf(n.ClusterMembers(ctx)) },
		"config state":      func() answer { return answerOf(n.ConfigState(ctx)) },
		"config version":    func() answer { return answerOf(n.ConfigVersion(ctx)) },
		"kubelet":           func() answer { return answerOf(n.KubeletStandsAlone(ctx)) },
		"etcd image":        func() answer { return answerOf(n.MissingEtcdImage(ctx)) },
		"time":              func() answer { return answerOf(n.TimeStatus(ctx)) },
		"UUID":              func() answer { return answerOf(n.UUID(ctx)) },
		"etcd members":      func() answer { return answerOf(n.EtcdMembers(ctx)) },
		"etcd status":       func() answer { return answerOf(n.EtcdStatus(ctx)) },
		"etcd alarms":       func() answer { return answerOf(n.EtcdMemberAlarms(ctx)) },
		"etcd data":         func() answer { return answerOf(n.EtcdDataPresent(ctx)) },
		"services":          func() answer { return answerOf(n.Services(ctx)) },
		"etcd service":      func() answer { return answerOf(n.Service(ctx, serviceEtcd)) },
		"containers":        func() answer { return answerOf(n.Containers(ctx)) },
		"free space":        func() answer { return answerOf(n.FreeSpace(ctx)) },
		"boot ID":           func() answer { return answerOf(n.BootID(ctx)) },
		"dry run":           func() answer { return answerOf(n.Apply(ctx, nil, ApplyOptions{DryRun: true})) },
		"listed images":     func() answer { return answerOf(n.lists(ctx, WantedImage{Name: "a/b:c"}, "a/b@c")) },
		"a pulled image":    func() answer { return answer{nil, n.Pull(ctx, "a/b:c")} },
		"an installer":      func() answer { return answer{nil, n.Install(ctx, "a/b:c", nil)} },
		"Kubernetes' flags": func() answer { _, err := n.KubernetesFlags(ctx, true); return answer{nil, err} },
		"the manifests":     func() answer { _, err := n.Manifests(ctx); return answer{nil, err} },
		"a watch":           func() answer { return answerOf(watched(ctx, n)) },
	}
}

// watched is what the first event of each watch of a node brings together.
func watched(ctx context.Context, n *Node) (Watched, error) {
	var seen Watched

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	w := newWatches(n.c, cancel)
	defer w.patience.Stop()

	for _, open := range []func(context.Context) error{w.openStatus, w.openServices, w.openConfig, w.openMember} {
		if err := open(ctx); err != nil {
			return seen, err
		}

		var err error
		if seen, err = observe(seen, <-w.events); err != nil {
			return seen, classify("a watch", n.name(), err)
		}

		<-w.events // its end
	}

	return seen, nil
}

// read makes all calls, and checks what is shown of their results.
func read(t *testing.T, n *Node) {
	t.Helper()

	for name, call := range readings(t.Context(), n) {
		got := call()
		if got.err != nil {
			if found := unplain(reflect.ValueOf(got.err.Error())); found != "" {
				t.Errorf("the error of %s is not plain: %q", name, found)
			}

			continue
		}

		if found := unplain(reflect.ValueOf(got.value)); got.value != nil && found != "" {
			t.Errorf("%s: not plain: %q", name, found)
		}
	}
}
