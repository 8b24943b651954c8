package talos_test

import (
	"context"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/talos-operator/talos-operator/internal/talos"
	"github.com/talos-operator/talos-operator/test/loopback"
	"github.com/talos-operator/talos-operator/test/wait"
)

// impostor counts the calls that reach it.
type impostor struct {
	machineapi.UnimplementedMachineServiceServer

	calls atomic.Int64
}

func (i *impostor) Read(*machineapi.ReadRequest, grpc.ServerStreamingServer[common.Data]) error {
	i.calls.Add(1)

	return nil
}

func (i *impostor) Version(context.Context, *emptypb.Empty) (*machineapi.VersionResponse, error) {
	i.calls.Add(1)

	return &machineapi.VersionResponse{}, nil
}

func (i *impostor) register(s grpc.ServiceRegistrar) { machineapi.RegisterMachineServiceServer(s, i) }

// TestImpostors: a server that does not prove to be the node at its address gets no call, and no connection
// without TLS is tried.
func TestImpostors(t *testing.T) {
	t.Parallel()

	ours, theirs := newCluster(t, loopback.Address(t)), newCluster(t, loopback.Address(t))

	for name, begin := range map[string]func(t *testing.T, address string, i *impostor){
		"under another CA": func(t *testing.T, address string, i *impostor) {
			t.Helper()
			serve(t, theirs, served{address, netip.MustParseAddr(address), wait.Now()}, i.register)
		},
		"with an expired certificate": func(t *testing.T, address string, i *impostor) {
			t.Helper()
			serve(t, ours, served{address, netip.MustParseAddr(address), wait.Now().Add(-2 * time.Hour)}, i.register)
		},
		"with the certificate of another node": func(t *testing.T, address string, i *impostor) {
			t.Helper()
			serve(t, ours, served{address, netip.MustParseAddr("192.0.2.1"), wait.Now()}, i.register)
		},
		"without TLS": func(t *testing.T, address string, i *impostor) {
			t.Helper()

			l, err := net.Listen("tcp", net.JoinHostPort(address, "50000"))
			if err != nil {
				t.Fatal(err)
			}

			s := grpc.NewServer()
			i.register(s)

			go func() { _ = s.Serve(l) }()

			t.Cleanup(s.Stop)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			address, i := loopback.Address(t), &impostor{}
			begin(t, address, i)

			pool := talos.NewPool()
			t.Cleanup(pool.Close)

			n, err := pool.Node(t.Context(), talos.NodeRef{Key: "ns/n", Address: address, Credentials: ours.creds()})
			if err != nil {
				t.Fatal(err)
			}

			if id, err := n.BootID(t.Context()); err == nil {
				t.Errorf("it has the boot ID %q", id)
			}

			if calls := i.calls.Load(); calls > 0 {
				t.Errorf("%d calls were sent to it", calls)
			}
		})
	}

	// A node that proves what it is gets the call: otherwise the test would prove nothing.
	address, i := loopback.Address(t), &impostor{}
	serve(t, ours, served{address, netip.MustParseAddr(address), wait.Now()}, i.register)

	pool := talos.NewPool()
	t.Cleanup(pool.Close)

	n, err := pool.Node(t.Context(), talos.NodeRef{Key: "ns/n", Address: address, Credentials: ours.creds()})
	if err != nil {
		t.Fatal(err)
	}

	if _, _ = n.BootID(t.Context()); i.calls.Load() == 0 {
		t.Error("a node under the CA got no call")
	}
}
