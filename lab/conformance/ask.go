package conformance

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	_ "github.com/cosi-project/runtime/api/v1alpha1"          // registers the service
	_ "github.com/siderolabs/talos/pkg/machinery/api/cluster" // registers the service
	_ "github.com/siderolabs/talos/pkg/machinery/api/inspect" // registers the service
	_ "github.com/siderolabs/talos/pkg/machinery/api/machine" // registers the services
	_ "github.com/siderolabs/talos/pkg/machinery/api/storage" // registers the service
	_ "github.com/siderolabs/talos/pkg/machinery/api/time"    // registers the service
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"
)

// patience is how long a call may take. The recordings were made with it, and some responses depend on it: etcd calls
// on a node whose etcd does not run never end.
const patience = 4 * time.Second

// atOnce is how many calls wait for their responses at the same time.
const atOnce = 24

// anonymous is the role of a caller without a certificate.
const anonymous = "anonymous"

// apiPort is where nodes listen.
const apiPort = "50000"

// target is one node and the ways to call it.
type target struct {
	address string
	roles   map[string]*tls.Config // by name of the role, as the recordings call it
}

// connect opens one connection for each role.
func (t target) connect() (map[string]*grpc.ClientConn, func(), error) {
	conns := map[string]*grpc.ClientConn{}
	closeAll := func() {
		for _, conn := range conns {
			conn.Close() //nolint:errcheck // nothing depends on it any more
		}
	}

	for role, config := range t.roles {
		conn, err := grpc.NewClient("passthrough:///"+t.address+":"+apiPort,
			grpc.WithTransportCredentials(credentials.NewTLS(config)))
		if err != nil {
			closeAll()

			return nil, nil, fmt.Errorf("connecting to %s as %s: %w", t.address, role, err)
		}

		conns[role] = conn
	}

	return conns, closeAll, nil
}

// question is one call as one role.
type question struct {
	method, role string
}

// ask makes calls, many at a time, and returns their responses.
func ask(ctx context.Context, t target, questions []question) (map[question]answer, error) {
	conns, closeAll, err := t.connect()
	if err != nil {
		return nil, err
	}
	defer closeAll()

	var (
		mu      sync.Mutex
		answers = make(map[question]answer, len(questions))
		group   errgroup.Group
	)

	group.SetLimit(atOnce)

	for _, q := range questions {
		group.Go(func() error {
			m, err := method(q.method)
			if err != nil {
				return err
			}

			conn, ok := conns[q.role]
			if !ok {
				return fmt.Errorf("no credentials for the role %s", q.role)
			}

			a := call(ctx, conn, q.method, m)

			mu.Lock()
			defer mu.Unlock()

			answers[q] = a

			return nil
		})
	}

	if err := group.Wait(); err != nil {
		return nil, err
	}

	return answers, ctx.Err()
}

// questions lists what was asked in a recording, sorted.
func questions(recorded calls) []question {
	var all []question

	for method, roles := range recorded {
		for role := range roles {
			all = append(all, question{method: method, role: role})
		}
	}

	slices.SortFunc(all, func(a, b question) int {
		return strings.Compare(a.method+" "+a.role, b.method+" "+b.role)
	})

	return all
}

// method finds the description of a method in the registered services.
func method(name string) (protoreflect.MethodDescriptor, error) {
	service, short, ok := strings.Cut(strings.TrimPrefix(name, "/"), "/")
	if !ok {
		return nil, fmt.Errorf("%q is not the full name of a method", name)
	}

	d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service))
	if err != nil {
		return nil, fmt.Errorf("finding the service of %s: %w", name, err)
	}

	if s, ok := d.(protoreflect.ServiceDescriptor); ok {
		if m := s.Methods().ByName(protoreflect.Name(short)); m != nil {
			return m, nil
		}
	}

	return nil, fmt.Errorf("there is no method %s", name)
}

// call sends an empty request and waits for the first answer or the end of the stream.
func call(ctx context.Context, conn *grpc.ClientConn, name string, m protoreflect.MethodDescriptor) answer {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()

	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, name)
	if err == nil {
		err = exchange(stream, m)
	}

	if errors.Is(err, io.EOF) {
		return answer{Code: codes.OK.String(), Message: "empty stream"}
	}

	s := status.Convert(err)
	if s.Code() == codes.DeadlineExceeded && m.IsStreamingServer() {
		return answer{Code: codes.OK.String(), Message: "stream stays open"}
	}

	return answer{Code: s.Code().String(), Message: s.Message()}
}

func exchange(stream grpc.ClientStream, m protoreflect.MethodDescriptor) error {
	if err := stream.SendMsg(dynamicpb.NewMessage(m.Input())); err != nil && !errors.Is(err, io.EOF) {
		return err
	}

	if err := stream.CloseSend(); err != nil {
		return err
	}

	return stream.RecvMsg(dynamicpb.NewMessage(m.Output()))
}
