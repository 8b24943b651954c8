package talos

import (
	"context"
	"errors"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/resources/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// Limits of single messages. In protobuf, an empty message in a list takes two bytes, and a hundred in memory: a
// response of 4 MiB takes up to 250 MiB before it can be checked.
const (
	// smallMessage is the limit of nearly all messages. On real nodes they have less than 4 KiB; those with the etcd
	// members and the addresses of a node grow with their number.
	smallMessage = 64 * kib
	// longMessage is the limit of responses that list what runs on a node. The containers of a full node take 200 KiB.
	longMessage = 512 * kib
	// appliedMessage is the limit of the response to a configuration, which quotes what is wrong with it.
	appliedMessage = 256 * kib
	// partMessage is the limit of a part of a file, which has 32 KiB.
	partMessage = 256 * kib
	// diffMessage is the limit of the diff of a dry run, in addition to twice the new configuration: the whole live
	// configuration may be replaced.
	diffMessage = 1280 * kib
)

// messageBounds are the limits of methods with larger messages than most.
var messageBounds = map[string]int{
	machineapi.MachineService_Containers_FullMethodName:   longMessage,
	machineapi.MachineService_ServiceList_FullMethodName:  longMessage,
	machineapi.MachineService_Read_FullMethodName:         partMessage,
	machineapi.MachineService_Copy_FullMethodName:         partMessage,
	machineapi.MachineService_EtcdSnapshot_FullMethodName: partMessage,
}

// typeBounds are the limits of resources that are larger than most, each in a message of its own.
var typeBounds = map[string]int{
	// Up to 1 MiB, because it has to fit into a Secret, and twice in its resource: in binary and in readable form.
	config.MachineConfigType: maxMessage,
	// The options and mounts of the configuration are added to the image.
	k8s.KubeletSpecType: longMessage,
	k8s.StaticPodType:   longMessage,
	// Each container has a state, the last one, and texts of the kubelet about both.
	k8s.StaticPodStatusType: longMessage,
}

// messageBound returns the maximum message that a call may receive.
func messageBound(method string, req any) int {
	switch r := req.(type) {
	case *machineapi.ApplyConfigurationRequest:
		if r.GetDryRun() {
			return diffMessage + 2*len(r.GetData())
		}

		return appliedMessage
	case interface{ GetType() string }: // one resource, or a list of one type
		if b, ok := typeBounds[r.GetType()]; ok {
			return b
		}
	default:
		if b, ok := messageBounds[method]; ok {
			return b
		}
	}

	return smallMessage
}

// boundMessage limits the response of a unary call, compares it to the request, and makes its text plain.
//
//nolint:revive // the arguments are those of an interceptor
func boundMessage(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
	invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	err := invoke(ctx, method, req, reply, cc, append(opts, grpc.MaxCallRecvMsgSize(messageBound(method, req)))...)
	if err != nil {
		return plainError(err)
	}

	if q, isState := requestedBy(req); isState {
		if err := q.check(reply); err != nil {
			return err
		}
	}

	plainMessage(reply)

	return nil
}

// errNothingAsked ends a stream that is read before a request was sent.
var errNothingAsked = errors.New("no request was sent yet")

// lateStream is started together with its request, which determines the limit of the messages.
type lateStream struct {
	grpc.ClientStream

	ctx   context.Context //nolint:containedctx // that of the stream
	begin func(req any) (grpc.ClientStream, error)
}

// SendMsg implements grpc.ClientStream.
func (s *lateStream) SendMsg(m any) error {
	if s.ClientStream == nil {
		next, err := s.begin(m)
		if err != nil {
			return err
		}

		s.ClientStream = next
	}

	return s.ClientStream.SendMsg(m)
}

// RecvMsg implements grpc.ClientStream.
func (s *lateStream) RecvMsg(m any) error {
	if s.ClientStream == nil {
		return errNothingAsked
	}

	return s.ClientStream.RecvMsg(m)
}

// Context implements grpc.ClientStream.
func (s *lateStream) Context() context.Context {
	if s.ClientStream == nil {
		return s.ctx
	}

	return s.ClientStream.Context()
}

// Header implements grpc.ClientStream.
func (s *lateStream) Header() (metadata.MD, error) {
	if s.ClientStream == nil {
		return nil, errNothingAsked
	}

	return s.ClientStream.Header()
}

// CloseSend implements grpc.ClientStream.
func (s *lateStream) CloseSend() error {
	if s.ClientStream == nil {
		return nil
	}

	return s.ClientStream.CloseSend()
}

// Trailer implements grpc.ClientStream.
func (s *lateStream) Trailer() metadata.MD {
	if s.ClientStream == nil {
		return nil
	}

	return s.ClientStream.Trailer()
}
