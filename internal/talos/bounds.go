package talos

import (
	"context"
	"errors"
	"fmt"
	"strings"

	cosiv1alpha1 "github.com/cosi-project/runtime/api/v1alpha1"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"
	"github.com/siderolabs/talos/pkg/machinery/resources/cluster"
	"github.com/siderolabs/talos/pkg/machinery/resources/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/hardware"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	"github.com/siderolabs/talos/pkg/machinery/resources/kubespan"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// ErrTooMuch ends a call whose response is larger than that of any genuine node. Any machine may respond at an address
// of a machine list, so nothing may be read without a limit.
var ErrTooMuch = errors.New("the response is too large")

const (
	kib = 1 << 10
	mib = 1 << 20

	// maxMessage is the maximum response of a unary call, and the maximum part of a stream: a machine configuration. Most
	// have a smaller limit of their own.
	maxMessage = 4 * mib
	// maxHeaders limits headers and trailers, which contain the texts of errors. A rejected configuration quotes several
	// KiB of it.
	maxHeaders = 256 * kib
	// window is how much of a stream may be in transit before it is read. gRPC would increase it to 16 MiB for each
	// connection; with this one, a snapshot still reaches 20 MiB/s over a path of 50 ms.
	window = mib
	// maxDatabase is the maximum size of an etcd database, as a snapshot and as a copy: twice what etcd supports.
	maxDatabase = 16 << 30
	// maxErrorText is the maximum length of the text of an error.
	maxErrorText = 4 * kib
)

// bound is the maximum size of a stream.
type bound struct {
	items int
	bytes int64
}

// listBounds are the limits of the resources that are listed.
var listBounds = map[string]bound{
	// One per socket.
	hardware.ProcessorType: {items: 256, bytes: mib},
	// Disk shelves contain several hundred; each takes less than 1 KiB.
	block.DiskType: {items: 2048, bytes: 4 * mib},
	// Each disk has several partitions, and there may be logical volumes.
	block.DiscoveredVolumeType: {items: 4096, bytes: 8 * mib},
	// Each directory of Talos on a volume is one, and each disk may have several.
	block.VolumeStatusType: {items: 4096, bytes: 8 * mib},
	// Kubernetes supports 5,000 nodes; each takes less than 1 KiB.
	cluster.MemberType: {items: 10_000, bytes: 16 * mib},
	// Each pod has a link with an address and a route, and a node has up to a few hundred pods. Links have the peers of
	// WireGuard: those of KubeSpan are the machines of the cluster.
	network.LinkStatusType:    {items: 4096, bytes: 16 * mib},
	network.AddressStatusType: {items: 4096, bytes: 4 * mib},
	network.RouteStatusType:   {items: 8192, bytes: 8 * mib},
	kubespan.PeerStatusType:   {items: 10_000, bytes: 16 * mib},
	// The image factory has about a hundred.
	runtime.ExtensionStatusType: {items: 512, bytes: mib},
	// The live configuration, the one on the disk, and that of maintenance mode.
	config.MachineConfigType: {items: 8, bytes: 8 * mib},
	// One per file of a configuration, which has 1 MiB at most; extra manifests are downloaded.
	k8s.ManifestType: {items: 512, bytes: 16 * mib},
}

// otherList limits lists of other resources.
var otherList = bound{items: 256, bytes: mib}

// streamBounds are the limits of calls whose response is a stream, by method.
var streamBounds = map[string]bound{
	// Only /proc is read.
	machineapi.MachineService_Read_FullMethodName: {items: 256, bytes: mib},
	// The stream ends at the first entry of a directory.
	machineapi.MachineService_List_FullMethodName: {items: 64, bytes: mib},
	// A node stores the images of its own services here, some of them in several versions.
	machineapi.ImageService_List_FullMethodName: {items: 4096, bytes: 4 * mib},
	// Parts of up to 32 KiB. The readers limit the database itself, which Copy compresses.
	machineapi.MachineService_EtcdSnapshot_FullMethodName: {bytes: maxDatabase},
	machineapi.MachineService_Copy_FullMethodName:         {bytes: maxDatabase},
}

// otherStream limits streams of other methods, none of which is used.
var otherStream = bound{items: 256, bytes: mib}

// Limits of what a watch may receive at once, and per second after that. A booting node reports about ten changes per
// second of the five watched resources; a machine configuration has up to 1 MiB.
const (
	watchBurst, watchRate           = 1024, 50
	watchBytesBurst, watchBytesRate = 16 * mib, 256 * kib
)

// bounds returns the options of a connection that limit what is received over it.
func bounds() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
		grpc.WithMaxHeaderListSize(maxHeaders),
		grpc.WithStaticStreamWindowSize(window),
		grpc.WithStaticConnWindowSize(window),
		grpc.WithChainUnaryInterceptor(boundMessage),
		grpc.WithChainStreamInterceptor(boundStream),
	}
}

// boundStream ends a stream that exceeds the limit of its kind with ErrTooMuch. It has the arguments of an
// interceptor.
func boundStream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string,
	streamer grpc.Streamer, opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	begin := func(req any) (grpc.ClientStream, error) {
		s, err := streamer(ctx, desc, cc, method, append(opts, grpc.MaxCallRecvMsgSize(messageBound(method, req)))...)
		if err != nil {
			return nil, plainError(err)
		}

		return bounded(plainStream{checked(s, req)}, method, req), nil
	}

	if desc.ClientStreams {
		return begin(nil) // it may end without a request, and its requests do not determine the response
	}

	return &lateStream{ctx: ctx, begin: begin}, nil
}

func bounded(s grpc.ClientStream, method string, req any) grpc.ClientStream {
	if method == cosiv1alpha1.State_Watch_FullMethodName {
		return &pacedStream{
			ClientStream: s, events: rate.NewLimiter(watchRate, watchBurst),
			bytes: rate.NewLimiter(watchBytesRate, watchBytesBurst),
		}
	}

	bounds, other, kind := streamBounds, otherStream, method

	// The limit depends on the listed resource.
	if r, ok := req.(*cosiv1alpha1.ListRequest); ok {
		bounds, other, kind = listBounds, otherList, r.GetType()
	}

	b, known := bounds[kind]
	if !known {
		b = other
	}

	return &boundedStream{ClientStream: s, bound: b}
}

// boundedStream counts what is received.
type boundedStream struct {
	grpc.ClientStream

	bound bound
	items int
	bytes int64
}

// RecvMsg implements grpc.ClientStream.
func (s *boundedStream) RecvMsg(m any) error {
	if err := s.ClientStream.RecvMsg(m); err != nil {
		return err
	}

	s.items++
	s.bytes += size(m)

	switch {
	case s.bound.items > 0 && s.items > s.bound.items:
		return fmt.Errorf("%w: more than %d items", ErrTooMuch, s.bound.items)
	case s.bytes > s.bound.bytes:
		return fmt.Errorf("%w: more than %d bytes", ErrTooMuch, s.bound.bytes)
	}

	return nil
}

// pacedStream limits the rate of a stream that has no end.
type pacedStream struct {
	grpc.ClientStream

	events, bytes *rate.Limiter
}

// RecvMsg implements grpc.ClientStream.
func (s *pacedStream) RecvMsg(m any) error {
	if err := s.ClientStream.RecvMsg(m); err != nil {
		return err
	}

	now, events := monotonic(), 1
	if r, ok := m.(*cosiv1alpha1.WatchResponse); ok {
		events = max(len(r.GetEvent()), 1)
	}

	if !s.events.AllowN(now, events) || !s.bytes.AllowN(now, int(size(m))) {
		return fmt.Errorf("%w: a watch brings more than %d changes or %d bytes a second", ErrTooMuch, watchRate,
			watchBytesRate)
	}

	return nil
}

func size(m any) int64 {
	if p, ok := m.(proto.Message); ok {
		return int64(proto.Size(p))
	}

	return 0
}

// isTooMuch reports whether a response was cut off because of its size: by a bounded stream, or by gRPC itself.
func isTooMuch(err error) bool {
	return errors.Is(err, ErrTooMuch) ||
		status.Code(err) == codes.ResourceExhausted && strings.Contains(err.Error(), "larger than max")
}
