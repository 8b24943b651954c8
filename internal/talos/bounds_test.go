package talos_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math/big"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	cosiv1alpha1 "github.com/cosi-project/runtime/api/v1alpha1"
	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/resource/protobuf"
	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"
	"github.com/siderolabs/talos/pkg/machinery/resources/hardware"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/talos"
	"github.com/talos-operator/talos-operator/lab/apid"
	"github.com/talos-operator/talos-operator/test/loopback"
	"github.com/talos-operator/talos-operator/test/wait"
)

// hostile is a server at the address of a machine that answers as no Talos node does. Nothing proves who it is: a
// machine in maintenance mode has no certificate that could be known.
type hostile struct {
	cosiv1alpha1.UnimplementedStateServer

	// items are sent in answer to lists of their types, without an end, and one of them to a Get.
	items map[string]*cosiv1alpha1.Resource
	// memory is the answer to Memory.
	memory *machineapi.MemoryResponse
	// sent counts the bytes that were taken off the server's hands.
	sent atomic.Int64
	// hang holds the answers to all Gets but the first one.
	hang <-chan struct{}
	gets atomic.Int64
	// refusal is the answer to a Get, if set.
	refusal error
	// left is the longest time that a call left for its answer.
	left atomic.Int64
}

func (h *hostile) marshal(typ string) (*cosiv1alpha1.Resource, error) {
	r := h.items[typ]
	if r == nil {
		return nil, status.Error(codes.NotFound, "no such resource")
	}

	return r, nil
}

func (h *hostile) Get(ctx context.Context, r *cosiv1alpha1.GetRequest) (*cosiv1alpha1.GetResponse, error) {
	if at, ok := ctx.Deadline(); ok {
		h.left.Store(max(h.left.Load(), int64(at.Sub(wait.Now()))))
	} else {
		h.left.Store(int64(time.Hour))
	}

	if h.refusal != nil {
		return nil, h.refusal
	}

	if h.gets.Add(1) > 1 && h.hang != nil {
		select {
		case <-h.hang:
		case <-ctx.Done():
		}
	}

	m, err := h.marshal(r.GetType())

	return &cosiv1alpha1.GetResponse{Resource: m}, err
}

func (h *hostile) List(r *cosiv1alpha1.ListRequest, srv cosiv1alpha1.State_ListServer) error {
	m, err := h.marshal(r.GetType())
	if err != nil {
		return nil // an empty list
	}

	answer := &cosiv1alpha1.ListResponse{Resource: m}

	for srv.Context().Err() == nil {
		if err := srv.Send(answer); err != nil {
			return err
		}

		h.sent.Add(int64(len(m.GetSpec().GetProtoSpec())))
	}

	return srv.Context().Err()
}

func (h *hostile) Watch(r *cosiv1alpha1.WatchRequest, srv cosiv1alpha1.State_WatchServer) error {
	if err := srv.Send(&cosiv1alpha1.WatchResponse{}); err != nil { // it has begun
		return err
	}

	m, err := h.marshal(r.GetType())
	if err != nil {
		<-srv.Context().Done()

		return srv.Context().Err()
	}

	for srv.Context().Err() == nil {
		if err := srv.Send(&cosiv1alpha1.WatchResponse{Event: []*cosiv1alpha1.Event{{
			Resource: m, EventType: cosiv1alpha1.EventType_CREATED,
		}}}); err != nil {
			return err
		}

		h.sent.Add(int64(len(m.GetSpec().GetProtoSpec())))
	}

	return srv.Context().Err()
}

// hostileMachine is the part of it that is not COSI.
type hostileMachine struct {
	machineapi.UnimplementedMachineServiceServer

	memory *machineapi.MemoryResponse
}

func (h *hostileMachine) Memory(context.Context, *emptypb.Empty) (*machineapi.MemoryResponse, error) {
	return h.memory, nil
}

// serve has it answer at an address.
func (h *hostile) serve(t *testing.T) string {
	t.Helper()

	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}

	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: wait.Now().Add(time.Hour)}

	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}

	address := loopback.Address(t)

	l, err := net.Listen("tcp", net.JoinHostPort(address, "50000"))
	if err != nil {
		t.Fatal(err)
	}

	s := grpc.NewServer(grpc.MaxSendMsgSize(64<<20), grpc.Creds(credentials.NewServerTLSFromCert(&tls.Certificate{
		Certificate: [][]byte{der}, PrivateKey: key,
	})))
	cosiv1alpha1.RegisterStateServer(s, h)
	machineapi.RegisterMachineServiceServer(s, &hostileMachine{memory: h.memory})

	go func() { _ = s.Serve(l) }()

	t.Cleanup(s.Stop)

	return address
}

// with has it send a resource. To encode a large one may take longer than a client waits, so that is done here.
func (h *hostile) with(r resource.Resource) *hostile {
	p, err := protobuf.FromResource(r)
	if err != nil {
		panic(err)
	}

	m, err := p.Marshal()
	if err != nil {
		panic(err)
	}

	h.items = map[string]*cosiv1alpha1.Resource{r.Metadata().Type(): m}

	return h
}

// withEmpties has it answer a Get with a resource that repeats an empty text: two bytes each, and sixteen in memory.
func (h *hostile) withEmpties(r resource.Resource, count int) *hostile {
	h.with(r).items[r.Metadata().Type()].Metadata.Finalizers = make([]string, count)

	return h
}

// empties is an answer that repeats an empty message: two bytes each, and a hundred in memory.
func empties(count int) *machineapi.MemoryResponse {
	out := &machineapi.MemoryResponse{}
	for range count {
		out.Messages = append(out.Messages, &machineapi.Memory{})
	}

	return out
}

func aDisk(model int) resource.Resource {
	d := block.NewDisk(block.NamespaceName, "sda")
	d.TypedSpec().Model = strings.Repeat("x", model)

	return d
}

// TestHostileAnswers: whatever a machine answers, it is read no further than any honest node would go, and the error
// says so.
func TestHostileAnswers(t *testing.T) {
	t.Parallel()

	disks := func(ctx context.Context, m *talos.Maintenance) error {
		_, err := m.Disks(ctx)

		return err
	}
	facts := func(ctx context.Context, m *talos.Maintenance) error {
		_, err := m.Facts(ctx)

		return err
	}

	large := &machineapi.MemoryResponse{Messages: []*machineapi.Memory{{
		Metadata: &common.Metadata{Hostname: strings.Repeat("h", 5<<20)},
	}}}

	hostname := network.NewHostnameStatus(network.NamespaceName, network.HostnameID)
	hostname.TypedSpec().Hostname = strings.Repeat("h", 300)

	for _, tc := range []struct {
		name string
		h    *hostile
		call func(context.Context, *talos.Maintenance) error
		// most is how many bytes may leave the server: the bound, and what is under way.
		most int64
	}{
		{"disks without an end", (&hostile{}).with(aDisk(16)), disks, 2 << 20},
		{"large disks without an end", (&hostile{}).with(aDisk(32 << 10)), disks, 8 << 20},
		{"a disk that is too large", (&hostile{}).with(aDisk(5 << 20)), disks, 16 << 20},
		{"processors without an end", (&hostile{}).with(hardware.NewProcessorInfo("cpu")), facts, 2 << 20},
		{"a hostname that is too long", (&hostile{}).with(hostname), facts, 0},
		{"an answer that is too large", &hostile{memory: large}, facts, 0},
		{"empty messages", &hostile{memory: empties(64 << 10)}, facts, 0},
		{"empty texts", (&hostile{}).withEmpties(runtime.NewMachineStatus(), 64<<10), facts, 0},
		{"empty texts of a disk", (&hostile{}).withEmpties(block.NewDisk(block.NamespaceName, "sda"), 64<<10), disks, 2 << 20},
	} {
		// One after the other: each is as much work as a machine can make, and a call has its deadline.
		t.Run(tc.name, func(t *testing.T) {
			pool := talos.NewPool()
			defer pool.Close()

			m, err := pool.Maintenance(t.Context(), tc.h.serve(t), "")
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()

			err = tc.call(t.Context(), m)
			if !errors.Is(err, talos.ErrTooMuch) || failure.Reason(err) != v1alpha1.ReasonAnswerTooLarge ||
				failure.ClassOf(err) != failure.ClassTransient {
				t.Errorf("it ended with %v", err)
			}

			if sent := tc.h.sent.Load(); sent > tc.most {
				t.Errorf("%d bytes were taken, more than %d", sent, tc.most)
			}
		})
	}
}

// TestHostileWatch: a stream that brings changes faster than any node has them ends.
func TestHostileWatch(t *testing.T) {
	t.Parallel()

	h := (&hostile{}).with(runtime.NewMachineStatus())
	pool := talos.NewPool()

	err := pool.StreamMaintenance(t.Context(), h.serve(t), "", func(talos.Watched) {})
	if !errors.Is(err, talos.ErrTooMuch) || failure.Reason(err) != v1alpha1.ReasonAnswerTooLarge {
		t.Errorf("it ended with %v", err)
	}
}

// TestHangingNode: what a node is asked to show its state takes seconds, all calls together.
func TestHangingNode(t *testing.T) {
	t.Parallel()

	hang := make(chan struct{})
	defer close(hang)

	h := &hostile{memory: &machineapi.MemoryResponse{}, hang: hang}
	pool := talos.NewPool()

	m, err := pool.Maintenance(t.Context(), h.serve(t), "")
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()

	// Its first answer comes, and no other one.
	_, err = m.Facts(t.Context())
	if failure.Reason(err) != v1alpha1.ReasonNodeUnreachable {
		t.Errorf("it ended with %v", err)
	}

	if left := time.Duration(h.left.Load()); left == 0 || left > 10*time.Second {
		t.Errorf("a node that hangs is waited for up to %s", left)
	}
}

// TestSlowIsNotSilent: a node that has shaken hands and does not respond in time, or says so itself, is told from one
// from which nothing comes.
func TestSlowIsNotSilent(t *testing.T) {
	t.Parallel()

	hang := make(chan struct{})
	defer close(hang)

	hanging := &hostile{hang: hang}
	hanging.gets.Store(1)

	for name, h := range map[string]*hostile{
		"it hangs":       hanging,
		"it is too late": {refusal: status.Error(codes.DeadlineExceeded, "context deadline exceeded")},
	} {
		err := talos.NewPool().StreamMaintenance(t.Context(), h.serve(t), "", func(talos.Watched) {})
		if err == nil || errors.Is(err, talos.ErrSilent) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestHangingDryRun: a dry run is a question, so that a node that hangs holds no worker beyond the time of a
// reconciliation.
func TestHangingDryRun(t *testing.T) {
	t.Parallel()

	address := loopback.Address(t)
	c := newCluster(t, address)
	n := boot(t, address)

	awaitState(t, n, nil, talos.StateMaintenance)
	c.configure(n)

	node := c.open(n, c.creds())

	wait.For(t, "the node answers", func(ctx context.Context) error {
		_, err := node.BootID(ctx)

		return err
	})
	n.Faults().Slow("ApplyConfiguration", time.Hour)

	pass, cancel := talos.Pass(t.Context(), time.Hour)
	defer cancel()

	defer n.Faults().Subscribe(func(call apid.Call) { // the call has arrived, and hangs
		if strings.HasSuffix(call.Method, "/ApplyConfiguration") {
			cancel()
		}
	})()

	config, ended := c.config(machine.TypeControlPlane), make(chan error, 1)

	go func() {
		_, err := node.Apply(pass, config, talos.ApplyOptions{DryRun: true})
		ended <- err
	}()

	// Its own time is half a minute: it ends with the reconciliation, and not by that.
	if err := wait.Done(t, "the dry run ends with the pass", ended); status.Code(err) != codes.Canceled {
		t.Errorf("it ended with %v", err)
	}
}
