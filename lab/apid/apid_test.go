package apid_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cosi-project/runtime/api/v1alpha1"
	"github.com/cosi-project/runtime/pkg/resource/meta"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/cosi-project/runtime/pkg/state/impl/inmem"
	"github.com/cosi-project/runtime/pkg/state/impl/namespaced"
	"github.com/cosi-project/runtime/pkg/state/protobuf/server"
	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/api/cluster"
	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"github.com/siderolabs/talos/pkg/machinery/api/inspect"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/api/storage"
	timeapi "github.com/siderolabs/talos/pkg/machinery/api/time"
	talosclient "github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/talos-operator/talos-operator/lab/apid"
	"github.com/talos-operator/talos-operator/test/loopback"
	"github.com/talos-operator/talos-operator/test/wait"
)

// patience ends a call that hangs where it must be answered. It says nothing about how long the answer may take.
const patience = 10 * time.Minute

// addresses returns n fresh loopback addresses.
func addresses(t testing.TB, n int) []netip.Addr {
	t.Helper()

	next := netip.MustParseAddr(loopback.Subnet(t) + ".0")
	out := make([]netip.Addr, 0, n)

	for range n {
		next = next.Next()
		out = append(out, next)
	}

	return out
}

// forever is longer than any test waits.
const forever = 24 * time.Hour

// machined stands for the handlers of a node.
type machined struct {
	machine.UnimplementedMachineServiceServer
	cluster.UnimplementedClusterServiceServer
	storage.UnimplementedStorageServiceServer
	timeapi.UnimplementedTimeServiceServer
	inspect.UnimplementedInspectServiceServer

	name   string
	server *apid.Server
	cosi   state.State

	received atomic.Int64  // bytes of the last EtcdRecover
	obeys    bool          // whether Shutdown shuts down
	down     chan struct{} // closed at the end of Shutdown

	mu       sync.Mutex
	identity *apid.Identity
	next     *apid.Identity // the identity after the next ApplyConfiguration
	roles    []string       // of the last caller of Version
	applied  int
}

func (m *machined) Identity() *apid.Identity {
	m.mu.Lock()
	defer m.mu.Unlock()

	return m.identity
}

func (m *machined) setIdentity(id *apid.Identity) {
	m.mu.Lock()
	defer m.mu.Unlock()

	m.identity = id
}

func (m *machined) Register(r grpc.ServiceRegistrar) {
	machine.RegisterMachineServiceServer(r, m)
	machine.RegisterImageServiceServer(r, imageService{})
	machine.RegisterLifecycleServiceServer(r, machine.UnimplementedLifecycleServiceServer{})
	machine.RegisterDebugServiceServer(r, machine.UnimplementedDebugServiceServer{})
	cluster.RegisterClusterServiceServer(r, m)
	storage.RegisterStorageServiceServer(r, m)
	timeapi.RegisterTimeServiceServer(r, m)
	inspect.RegisterInspectServiceServer(r, m)
	v1alpha1.RegisterStateServer(r, server.NewState(m.cosi))
}

// imageService is apart, because both services have a method named List.
type imageService struct {
	machine.UnimplementedImageServiceServer
}

func (m *machined) Version(ctx context.Context, _ *emptypb.Empty) (*machine.VersionResponse, error) {
	m.mu.Lock()
	m.roles = apid.Roles(ctx).Strings()
	m.mu.Unlock()

	return &machine.VersionResponse{Messages: []*machine.Version{{
		Version: &machine.VersionInfo{Tag: "v1.13.9 " + m.name},
	}}}, nil
}

func (m *machined) lastRoles() []string {
	m.mu.Lock()
	defer m.mu.Unlock()

	return m.roles
}

func (m *machined) ApplyConfiguration(
	context.Context, *machine.ApplyConfigurationRequest,
) (*machine.ApplyConfigurationResponse, error) {
	m.mu.Lock()
	m.applied++
	next := m.next

	if next != nil {
		m.identity = next
	}
	m.mu.Unlock()

	if next != nil {
		m.server.Reload()
	}

	return &machine.ApplyConfigurationResponse{Messages: []*machine.ApplyConfiguration{{ModeDetails: "done"}}}, nil
}

func (m *machined) appliedTimes() int {
	m.mu.Lock()
	defer m.mu.Unlock()

	return m.applied
}

// Shutdown ends the network face, and answers only after that has begun; without the mercy of an end if it is forced.
func (m *machined) Shutdown(ctx context.Context, r *machine.ShutdownRequest) (*machine.ShutdownResponse, error) {
	if !m.obeys {
		return nil, status.Error(codes.FailedPrecondition, "not today")
	}

	go func() {
		m.server.Shutdown(forever)
		close(m.down)
	}()

	// The end of the network face may end the context, and it may have begun to serve again before this looks.
	err := wait.Until(context.WithoutCancel(ctx), "the network face ends", func(context.Context) error {
		return wait.True(!m.server.Serving() || ctx.Err() != nil)
	})
	if err != nil {
		return nil, err
	}

	if r.GetForce() {
		<-ctx.Done()

		return nil, status.FromContextError(ctx.Err()).Err()
	}

	return &machine.ShutdownResponse{Messages: []*machine.Shutdown{{ActorId: m.name}}}, nil
}

func (m *machined) Reboot(context.Context, *machine.RebootRequest) (*machine.RebootResponse, error) {
	return &machine.RebootResponse{Messages: []*machine.Reboot{{ActorId: m.name}}}, nil
}

func (m *machined) Hostname(context.Context, *emptypb.Empty) (*machine.HostnameResponse, error) {
	panic("lost it")
}

// Events says hello and then stays open.
func (m *machined) Events(_ *machine.EventsRequest, out grpc.ServerStreamingServer[machine.Event]) error {
	if err := out.Send(&machine.Event{Id: m.name}); err != nil {
		return err
	}

	<-out.Context().Done()

	return status.FromContextError(out.Context().Err()).Err()
}

// Logs sends two lines and ends.
func (m *machined) Logs(_ *machine.LogsRequest, out grpc.ServerStreamingServer[common.Data]) error {
	for i := range 2 {
		if err := out.Send(&common.Data{Bytes: fmt.Appendf(nil, "%s %d", m.name, i)}); err != nil {
			return err
		}
	}

	return nil
}

// EtcdRecover counts the bytes that it gets.
func (m *machined) EtcdRecover(in grpc.ClientStreamingServer[common.Data, machine.EtcdRecoverResponse]) error {
	total := 0

	for {
		data, err := in.Recv()
		if err == io.EOF { //nolint:errorlint // the generated code returns it bare
			m.received.Store(int64(total))

			return in.SendAndClose(&machine.EtcdRecoverResponse{Messages: []*machine.EtcdRecover{{}}})
		}

		if err != nil {
			return err
		}

		total += len(data.GetBytes())
	}
}

// pki is a cluster's machine CA.
type pki struct {
	ca *x509.PEMEncodedCertificateAndKey
}

func newPKI(t testing.TB) pki {
	t.Helper()

	ca, err := secrets.NewTalosCA(wait.Now())
	if err != nil {
		t.Fatal(err)
	}

	return pki{ca: x509.NewCertificateAndKeyFromCertificateAuthority(ca)}
}

func (p pki) names(name string, addr netip.Addr) apid.Names {
	return apid.Names{Hostname: name, Addresses: []netip.Addr{addr}}
}

func (p pki) controlPlane(t testing.TB, name string, addr netip.Addr) *apid.Identity {
	t.Helper()

	id, err := apid.NewControlPlaneIdentity(p.names(name, addr), p.ca, nil)
	if err != nil {
		t.Fatal(err)
	}

	return id
}

func (p pki) worker(t testing.TB, name string, addr netip.Addr) *apid.Identity {
	t.Helper()

	cert, err := apid.NewServerCertificate(p.ca, p.names(name, addr))
	if err != nil {
		t.Fatal(err)
	}

	id, err := apid.NewWorkerIdentity(p.names(name, addr), cert, []*x509.PEMEncodedCertificate{{Crt: p.ca.Crt}})
	if err != nil {
		t.Fatal(err)
	}

	return id
}

func maintenance(t testing.TB, name string, addr netip.Addr) *apid.Identity {
	t.Helper()

	id, err := apid.NewMaintenanceIdentity(apid.Names{Hostname: name, Addresses: []netip.Addr{addr}})
	if err != nil {
		t.Fatal(err)
	}

	return id
}

// node is a started node of a test.
type node struct {
	*machined

	addr   netip.Addr
	faults *apid.Faults
}

func startNode(t testing.TB, name string, addr netip.Addr, id *apid.Identity, change ...func(*apid.Options)) *node {
	t.Helper()

	st := state.WrapCore(namespaced.NewState(inmem.Build))
	host := network.NewHostnameStatus(network.NamespaceName, network.HostnameID)
	host.TypedSpec().Hostname = name

	rd, err := meta.NewResourceDefinition(host.ResourceDefinition())
	if err != nil {
		t.Fatal(err)
	}

	for _, create := range []error{st.Create(t.Context(), rd), st.Create(t.Context(), host)} {
		if create != nil {
			t.Fatal(create)
		}
	}

	n := &node{
		machined: &machined{name: name, identity: id, cosi: st, down: make(chan struct{})},
		addr:     addr,
		faults:   apid.NewFaults(),
	}
	opts := apid.Options{Address: addr, Backend: n.machined, Faults: n.faults, Log: t.Output()}

	for _, fn := range change {
		fn(&opts)
	}

	n.server = apid.NewServer(opts)
	if err := n.server.Start(); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(n.server.Stop)

	return n
}

// clientTLS makes the client side of mutual TLS with a cluster.
func (p pki) clientTLS(t testing.TB, roles ...role.Role) *tls.Config {
	t.Helper()

	bundle := &secrets.Bundle{Clock: secrets.NewClock(), Certs: &secrets.Certs{OS: p.ca}}

	pair, err := bundle.GenerateTalosAPIClientCertificate(role.MakeSet(roles...))
	if err != nil {
		t.Fatal(err)
	}

	cert, err := tls.X509KeyPair(pair.Crt, pair.Key)
	if err != nil {
		t.Fatal(err)
	}

	id, err := apid.NewWorkerIdentity(apid.Names{}, cert, []*x509.PEMEncodedCertificate{{Crt: p.ca.Crt}})
	if err != nil {
		t.Fatal(err)
	}

	return &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: id.Authorities, Certificates: []tls.Certificate{cert}}
}

func (p pki) client(t testing.TB, endpoint *node, roles ...role.Role) *talosclient.Client {
	t.Helper()

	return dial(t, endpoint, p.clientTLS(t, roles...))
}

func insecure(t testing.TB, endpoint *node) *talosclient.Client {
	t.Helper()

	return dial(t, endpoint, &tls.Config{InsecureSkipVerify: true})
}

func dial(t testing.TB, endpoint *node, cfg *tls.Config) *talosclient.Client {
	t.Helper()

	c, err := talosclient.New(t.Context(), talosclient.WithTLSConfig(cfg), talosclient.WithEndpoints(endpoint.addr.String()))
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = c.Close() })

	return c
}

func within(t testing.TB, d time.Duration) context.Context {
	t.Helper()

	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)

	return ctx
}

func wantCode(t testing.TB, err error, code codes.Code, message string) {
	t.Helper()

	if status.Code(err) != code || !bytes.Contains([]byte(status.Convert(err).Message()), []byte(message)) {
		t.Errorf("got %v, want %s %q", err, code, message)
	}
}
