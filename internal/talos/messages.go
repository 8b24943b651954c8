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

// Bounds of single messages. In protobuf an empty message in a list has two bytes, and a hundred in memory: an answer
// of 4 MiB takes up to 250 MiB, before anything of it can be judged.
const (
	// smallMessage is that of nearly all. On real nodes they have less than 4 KiB; the members of etcd and the addresses
	// of a node grow with their number.
	smallMessage = 64 * kib
	// longMessage is that of answers that list what runs on a node. The containers of a full one take 200 KiB.
	longMessage = 512 * kib
	// appliedMessage is that of the answer to a config. It quotes what is wrong with it.
	appliedMessage = 256 * kib
	// partMessage is that of a part of a file, which has 32 KiB.
	partMessage = 256 * kib
	// diffMessage is that of the diff of a dry run, besides twice the new config: the whole live config goes.
	diffMessage = 1280 * kib
)

// messageBounds are those of methods whose messages are larger than most.
var messageBounds = map[string]int{
	machineapi.MachineService_Containers_FullMethodName:   longMessage,
	machineapi.MachineService_ServiceList_FullMethodName:  longMessage,
	machineapi.MachineService_Read_FullMethodName:         partMessage,
	machineapi.MachineService_Copy_FullMethodName:         partMessage,
	machineapi.MachineService_EtcdSnapshot_FullMethodName: partMessage,
}

// typeBounds are those of resources that are larger than most, each in a message of its own.
var typeBounds = map[string]int{
	// Up to 1 MiB, since it has to fit into a Secret, and twice in its resource: for machines and for people.
	config.MachineConfigType: maxMessage,
	// The options and mounts of the config come on top of the image.
	k8s.KubeletSpecType: longMessage,
}

// messageBound is the largest message that a call may bring.
func messageBound(method string, req any) int {
	switch r := req.(type) {
	case *machineapi.ApplyConfigurationRequest:
		if r.GetDryRun() {
			return diffMessage + 2*len(r.GetData())
		}

		return appliedMessage
	case interface{ GetType() string }: // a resource, or more of one type
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

// boundMessage bounds the answer of a unary call.
//
//nolint:revive // the arguments are those of an interceptor
func boundMessage(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
	invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	return invoke(ctx, method, req, reply, cc, append(opts, grpc.MaxCallRecvMsgSize(messageBound(method, req)))...)
}

// errNothingAsked is what a stream ends with that is read before anything was sent.
var errNothingAsked = errors.New("no request was sent yet")

// lateStream is begun with its request: what that asks for bounds the messages.
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
