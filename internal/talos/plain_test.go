package talos_test

import (
	"context"
	"net/netip"
	"strings"
	"testing"
	"unicode"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/talos"
	"github.com/talos-operator/talos-operator/test/loopback"
	"github.com/talos-operator/talos-operator/test/wait"
)

// sequence clears a screen, writes to a clipboard, reverses what follows, and begins a line.
const sequence = "\x1b[2J\x1b]52;c;cm0=\x07\u009b2J\u202e\r"

// isPlain fails for text that is more than text.
func isPlain(t *testing.T, what, got, want string) {
	t.Helper()

	if !strings.Contains(got, want) || strings.ContainsFunc(got, func(r rune) bool {
		return r != '\n' && r != '\t' && unicode.Is(unicode.C, r)
	}) {
		t.Errorf("%s is %q", what, got)
	}
}

// talker is a node under the CA of the cluster whose words are hostile.
type talker struct {
	machineapi.UnimplementedMachineServiceServer
}

func (*talker) EtcdMemberList(context.Context, *machineapi.EtcdMemberListRequest) (*machineapi.EtcdMemberListResponse, error) {
	return &machineapi.EtcdMemberListResponse{Messages: []*machineapi.EtcdMembers{{
		Members: []*machineapi.EtcdMember{{Id: 1, Hostname: "cp-0" + sequence, PeerUrls: []string{"https://10.0.0.1:2380"}}},
	}}}, nil
}

func (*talker) ApplyConfiguration(
	context.Context, *machineapi.ApplyConfigurationRequest,
) (*machineapi.ApplyConfigurationResponse, error) {
	return nil, status.Error(codes.InvalidArgument, "no such disk"+sequence+strings.Repeat("x", 5000))
}

func (*talker) List(_ *machineapi.ListRequest, s grpc.ServerStreamingServer[machineapi.FileInfo]) error {
	if err := s.Send(&machineapi.FileInfo{Metadata: &common.Metadata{}, Error: "broken" + sequence}); err != nil {
		return err
	}

	return status.Error(codes.Internal, "gone"+sequence)
}

// TestWordsOfANode: what a node of the cluster says is text and nothing else, wherever it says it.
func TestWordsOfANode(t *testing.T) {
	t.Parallel()

	c := newCluster(t, loopback.Address(t))
	address := loopback.Address(t)

	serve(t, c, served{address, netip.MustParseAddr(address), wait.Now()}, func(s grpc.ServiceRegistrar) {
		machineapi.RegisterMachineServiceServer(s, &talker{})
	})

	pool := talos.NewPool()
	t.Cleanup(pool.Close)

	n, err := pool.Node(t.Context(), talos.NodeRef{Key: "ns/n", Address: address, Credentials: c.creds()})
	if err != nil {
		t.Fatal(err)
	}

	members, err := n.EtcdMembers(t.Context())
	if err != nil || len(members) != 1 || members[0].PeerHosts[0] != "10.0.0.1" {
		t.Fatalf("%v, %v", members, err)
	}

	isPlain(t, "the name of a member", members[0].Name, "cp-0\ufffd[2J")

	_, err = n.EtcdDataPresent(t.Context())
	isPlain(t, "the error in a stream", err.Error(), "broken\ufffd[2J")

	_, err = n.Apply(t.Context(), []byte("x"), talos.ApplyOptions{Mode: talos.ApplyNoReboot})
	isPlain(t, "an error", err.Error(), "no such disk\ufffd[2J")
	isPlain(t, "the message about it", failure.Message(err), "no such disk\ufffd[2J")

	if len(err.Error()) > 6000 || len(failure.Message(err)) > 1000 {
		t.Errorf("the error has %d bytes, its message %d", len(err.Error()), len(failure.Message(err)))
	}
}

// TestWordsOfAMachine: so is what a machine in maintenance mode says of itself, of which nothing proves what it is.
func TestWordsOfAMachine(t *testing.T) {
	t.Parallel()

	hostname := network.NewHostnameStatus(network.NamespaceName, network.HostnameID)
	hostname.TypedSpec().Hostname = "cp-0\n" + sequence

	pool := talos.NewPool()
	t.Cleanup(pool.Close)

	m, err := pool.Maintenance(t.Context(), (&hostile{memory: &machineapi.MemoryResponse{}}).with(hostname).serve(t), "")
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()

	facts, err := m.Facts(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	isPlain(t, "the hostname", facts.Hostname, "cp-0\ufffd\ufffd[2J")

	refusing, err := pool.Maintenance(t.Context(), (&hostile{
		refusal: status.Error(codes.Internal, "no"+sequence),
	}).with(block.NewDisk(block.NamespaceName, "sda")).serve(t), "")
	if err != nil {
		t.Fatal(err)
	}
	defer refusing.Close()

	_, err = refusing.Facts(t.Context())
	if err == nil {
		t.Fatal("it refuses nothing")
	}

	isPlain(t, "its refusal", err.Error(), "no\ufffd[2J")
}
