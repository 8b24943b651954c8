package cosi_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"testing"

	"github.com/cosi-project/runtime/api/v1alpha1"
	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/resource/meta"
	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/cosi-project/runtime/pkg/state/protobuf/client"
	"github.com/cosi-project/runtime/pkg/state/protobuf/server"
	"github.com/google/go-cmp/cmp"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	talossecrets "github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	clusterres "github.com/siderolabs/talos/pkg/machinery/resources/cluster"
	configres "github.com/siderolabs/talos/pkg/machinery/resources/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	"github.com/siderolabs/talos/pkg/machinery/resources/kubespan"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
	runtimeres "github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"github.com/siderolabs/talos/pkg/machinery/resources/secrets"
	servicesres "github.com/siderolabs/talos/pkg/machinery/resources/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/talos-operator/talos-operator/lab/cosi"
	"github.com/talos-operator/talos-operator/test/wait"
)

func newStore(t testing.TB, n int) *cosi.Store {
	t.Helper()

	s, err := cosi.NewStore(cosi.Identity{
		Hostname: fmt.Sprintf("node-%d", n),
		Address:  netip.PrefixFrom(netip.AddrFrom4([4]byte{127, 10, byte(n >> 8), byte(n)}), 16),
	})
	if err != nil {
		t.Fatal(err)
	}

	return s
}

// remote serves a store as a node does, to callers of the given role, and returns the client's view.
func remote(t testing.TB, s *cosi.Store, roles ...role.Role) state.State {
	t.Helper()

	listener := bufconn.Listen(1 << 16)
	srv := grpc.NewServer()
	v1alpha1.RegisterStateServer(srv, server.NewState(cosi.Filter(s.State(), func(context.Context) role.Set {
		return role.MakeSet(roles...)
	})))

	served := make(chan error, 1)
	go func() { served <- srv.Serve(listener) }()

	conn, err := grpc.NewClient(
		"passthrough:///node",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
	)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		conn.Close()
		srv.Stop()
		<-served
	})

	return state.WrapCore(client.NewAdapter(v1alpha1.NewStateClient(conn)))
}

func TestEveryRecordedTypeIsRegisteredAsRecorded(t *testing.T) {
	recording, err := cosi.Recorded("running-controlplane")
	if err != nil {
		t.Fatal(err)
	}

	ctx := t.Context()

	definitions, err := safe.StateListAll[*meta.ResourceDefinition](ctx, remote(t, newStore(t, 1), role.Reader))
	if err != nil {
		t.Fatal(err)
	}

	if got, want := definitions.Len(), len(recording); got != want {
		t.Errorf("%d types registered, %d recorded", got, want)
	}

	for definition := range definitions.All() {
		spec := definition.TypedSpec()

		want, ok := recording[spec.Type]
		if !ok {
			t.Errorf("%s is not a type of a real node", spec.Type)

			continue
		}

		if spec.DefaultNamespace != want.DefaultNamespace || string(spec.Sensitivity) != want.Sensitivity {
			t.Errorf("%s: namespace %q sensitivity %q, recorded %q %q",
				spec.Type, spec.DefaultNamespace, spec.Sensitivity, want.DefaultNamespace, want.Sensitivity)
		}
	}

	namespaces, err := safe.StateListAll[*meta.Namespace](ctx, remote(t, newStore(t, 1), role.Reader))
	if err != nil {
		t.Fatal(err)
	}

	if got, want := namespaces.Len(), recording["Namespaces.meta.cosi.dev"].Count; got != want {
		t.Errorf("%d namespaces, %d recorded", got, want)
	}
}

func TestFilter(t *testing.T) {
	s := newStore(t, 1)
	s.Set(secrets.NewOSRoot(secrets.OSRootID))

	sensitive := secrets.NewOSRoot(secrets.OSRootID).Metadata()
	version := runtimeres.NewVersion().Metadata()

	for _, test := range []struct {
		name    string
		roles   []role.Role
		pointer resource.Pointer
		code    codes.Code
		message string
	}{
		{"reader reads", []role.Role{role.Reader}, version, codes.OK, ""},
		{"reader wants secrets", []role.Role{role.Reader}, sensitive, codes.PermissionDenied, "not authorized"},
		{
			"operator wants secrets",
			[]role.Role{role.Operator, role.Reader},
			sensitive,
			codes.PermissionDenied, "not authorized",
		},
		{"admin reads secrets", []role.Role{role.Admin}, sensitive, codes.OK, ""},
		{
			"unknown type",
			[]role.Role{role.Admin},
			resource.NewMetadata("runtime", "Wishes.talos.dev", "x", resource.VersionUndefined),
			codes.PermissionDenied, `resource type "Wishes.talos.dev" is not supported`,
		},
		{
			"unknown namespace",
			[]role.Role{role.Admin},
			resource.NewMetadata("nowhere", runtimeres.VersionType, "x", resource.VersionUndefined),
			codes.PermissionDenied, `namespace "nowhere" is not supported`,
		},
		{
			"missing resource",
			[]role.Role{role.Admin},
			resource.NewMetadata("runtime", runtimeres.VersionType, "x", resource.VersionUndefined),
			codes.NotFound, "resource Versions.runtime.talos.dev(runtime/x@undefined) doesn't exist",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			st := cosi.Filter(s.State(), func(context.Context) role.Set { return role.MakeSet(test.roles...) })

			_, err := server.NewState(st).Get(t.Context(), &v1alpha1.GetRequest{
				Namespace: test.pointer.Namespace(), Type: test.pointer.Type(), Id: test.pointer.ID(),
			})

			if got := status.Convert(err); got.Code() != test.code || got.Message() != test.message {
				t.Errorf("got %s %q, want %s %q", got.Code(), got.Message(), test.code, test.message)
			}
		})
	}
}

func TestWritesAreRefused(t *testing.T) {
	ctx := t.Context()
	s := newStore(t, 1)
	st := remote(t, s, role.Admin)

	version := runtimeres.NewVersion()
	version.TypedSpec().Version = "v9.9.9"

	// The client shows a refusal as a conflict of owners.
	for verb, err := range map[string]error{
		"create":  st.Create(ctx, version),
		"destroy": st.Destroy(ctx, version.Metadata()),
	} {
		if !state.IsOwnerConflictError(err) || !strings.Contains(err.Error(), "write access is not allowed") {
			t.Errorf("%s: %v", verb, err)
		}
	}

	got, err := safe.StateGetByID[*runtimeres.Version](ctx, st, version.Metadata().ID())
	if err != nil || got.TypedSpec().Version != "v1.13.9" {
		t.Errorf("version %v, %v", got, err)
	}
}

func TestWatchStartsWithWhatIsThere(t *testing.T) {
	ctx := t.Context()
	s := newStore(t, 1)
	st := remote(t, s, role.Reader)

	s.SetService("apid", servicesres.ServiceSpec{Running: true, Healthy: true})

	events := make(chan safe.WrappedStateEvent[*servicesres.Service])

	err := safe.StateWatchKind(
		ctx, st, servicesres.NewService("").Metadata(), events, state.WithBootstrapContents(true))
	if err != nil {
		t.Fatal(err)
	}

	expect := func(typ state.EventType, id string, running bool) {
		t.Helper()

		e := wait.Done(t, fmt.Sprintf("a %v event", typ), events)
		if e.Type() != typ {
			t.Fatalf("got a %v event, want %v", e.Type(), typ)
		}

		if typ == state.Bootstrapped {
			return
		}

		r, err := e.Resource()
		if err != nil {
			t.Fatal(err)
		}

		if r.Metadata().ID() != id || r.TypedSpec().Running != running {
			t.Fatalf("got %s running %v, want %s running %v", r.Metadata().ID(), r.TypedSpec().Running, id, running)
		}
	}

	expect(state.Created, "apid", true)
	expect(state.Bootstrapped, "", false)

	s.SetService("etcd", servicesres.ServiceSpec{Running: false})
	expect(state.Created, "etcd", false)

	// Saying the same again is no event.
	s.SetService("etcd", servicesres.ServiceSpec{Running: false})
	s.SetService("etcd", servicesres.ServiceSpec{Running: true})
	expect(state.Updated, "etcd", true)

	s.Unset(servicesres.ServiceType, "etcd")
	expect(state.Destroyed, "etcd", true)
}

func TestStagesShowWhatTheNodeIs(t *testing.T) {
	ctx := t.Context()
	s := newStore(t, 7)

	host, err := safe.StateGetByID[*network.HostnameStatus](ctx, s.State(), network.HostnameID)
	if err != nil || host.TypedSpec().Hostname != "node-7" {
		t.Errorf("hostname %v, %v", host, err)
	}

	addresses, err := safe.StateListAll[*network.AddressStatus](ctx, s.State())
	if err != nil {
		t.Fatal(err)
	}

	var ids []string
	for a := range addresses.All() {
		ids = append(ids, a.Metadata().ID())
	}

	want := []string{"eth0/127.10.0.7/16", "eth0/fe80::7fff:fe0a:7/64", "lo/127.0.0.1/8", "lo/::1/128"}
	if diff := cmp.Diff(want, ids); diff != "" {
		t.Errorf("addresses (-want +got):\n%s", diff)
	}

	if err := s.SetStage(cosi.ControlPlaneRunning); err != nil {
		t.Fatal(err)
	}

	pods := count(ctx, t, s, "StaticPods.kubernetes.talos.dev", "k8s")
	if pods != 3 {
		t.Errorf("%d static pods on a running control-plane node", pods)
	}

	s.SetHostname("renamed")

	if err := s.SetStage(cosi.Maintenance); err != nil {
		t.Fatal(err)
	}

	if pods := count(ctx, t, s, "StaticPods.kubernetes.talos.dev", "k8s"); pods != 0 {
		t.Errorf("%d static pods in maintenance", pods)
	}

	host, err = safe.StateGetByID[*network.HostnameStatus](ctx, s.State(), network.HostnameID)
	if err != nil || host.TypedSpec().Hostname != "renamed" {
		t.Errorf("a live resource did not survive the change of stage: %v, %v", host, err)
	}
}

func count(ctx context.Context, t testing.TB, s *cosi.Store, typ resource.Type, ns resource.Namespace) int {
	t.Helper()

	list, err := s.State().List(ctx, resource.NewMetadata(ns, typ, "", resource.VersionUndefined))
	if err != nil {
		t.Fatal(err)
	}

	return len(list.Items)
}

// TestWhatFollowsFromTheConfig shows a control-plane node what it is and who its peers are, and holds the resources
// that real nodes derive from that.
func TestWhatFollowsFromTheConfig(t *testing.T) {
	ctx := t.Context()
	s := newStore(t, 1)
	st := remote(t, s, role.Admin)

	bundle, err := talossecrets.NewBundle(talossecrets.NewClock(), config.TalosVersionCurrent)
	if err != nil {
		t.Fatal(err)
	}

	input, err := generate.NewInput("house", "https://house.example.org:6443", "1.35.2", generate.WithSecretsBundle(bundle))
	if err != nil {
		t.Fatal(err)
	}

	cfg, err := input.Config(machine.TypeControlPlane)
	if err != nil {
		t.Fatal(err)
	}

	s.SetLiveConfig(cfg)
	s.SetPersistentConfig(cfg)
	s.SetMembers(
		cosi.Member{
			Nodename: "a", NodeID: "A", MachineType: machine.TypeControlPlane, APIServerPort: 6443,
			Addresses: []netip.Addr{netip.MustParseAddr("127.10.0.1")},
		},
		cosi.Member{
			Nodename: "b", NodeID: "B", MachineType: machine.TypeWorker,
			Addresses: []netip.Addr{netip.MustParseAddr("127.10.0.2")},
		},
	)

	if err := s.SetStage(cosi.ControlPlaneRunning); err != nil {
		t.Fatal(err)
	}

	typ, err := safe.StateGetByID[*configres.MachineType](ctx, st, configres.MachineTypeID)
	if err != nil || typ.MachineType() != machine.TypeControlPlane {
		t.Errorf("machine type %v, %v", typ, err)
	}

	info, err := safe.StateGetByID[*clusterres.Info](ctx, st, clusterres.InfoID)
	if err != nil || info.TypedSpec().ClusterName != "house" || info.TypedSpec().ClusterID != bundle.Cluster.ID {
		t.Errorf("cluster %v, %v", info, err)
	}

	root, err := safe.StateGetByID[*secrets.OSRoot](ctx, st, secrets.OSRootID)
	if err != nil || !bytes.Equal(root.TypedSpec().IssuingCA.Crt, bundle.Certs.OS.Crt) {
		t.Errorf("OS root: %v", err)
	}

	persistent, err := safe.StateGetByID[*configres.MachineConfig](ctx, st, configres.PersistentID)
	if err != nil || persistent.Provider().Cluster().Name() != "house" {
		t.Errorf("persistent config: %v", err)
	}

	prism, err := safe.StateGetByID[*k8s.KubePrismEndpoints](ctx, st, k8s.KubePrismEndpointsID)
	if err != nil {
		t.Fatal(err)
	}

	want := []k8s.KubePrismEndpoint{
		{Host: "house.example.org", Port: 6443}, {Host: "localhost", Port: 6443}, {Host: "127.10.0.1", Port: 6443},
	}
	if diff := cmp.Diff(want, prism.TypedSpec().Endpoints); diff != "" {
		t.Errorf("API servers (-want +got):\n%s", diff)
	}

	pod, err := safe.StateGetByID[*k8s.StaticPod](ctx, st, "kube-scheduler")
	if err != nil || !strings.Contains(fmt.Sprint(pod.TypedSpec().Pod), "kube-scheduler:v1.35.2") {
		t.Errorf("scheduler %v, %v", pod, err)
	}

	s.SetPeers()
	s.SetPeers(cosi.Peer{ID: "B", Nodename: "b", Address: netip.MustParseAddr("127.10.0.2"), Up: true})

	peer, err := safe.StateGetByID[*kubespan.PeerStatus](ctx, st, "B")
	if err != nil || peer.TypedSpec().State != kubespan.PeerStateUp || peer.TypedSpec().Endpoint.String() != "127.10.0.2:51820" {
		t.Errorf("peer %v, %v", peer, err)
	}

	endpoints := map[string]bool{}

	for range 2 {
		s.SetPeers(cosi.Peer{
			ID: "B", Address: netip.MustParseAddr("127.10.0.2"), Others: []netip.Addr{netip.MustParseAddr("192.0.2.1")},
		})

		peer, err := safe.StateGetByID[*kubespan.PeerStatus](ctx, st, "B")
		if err != nil || peer.TypedSpec().State != kubespan.PeerStateUnknown {
			t.Errorf("peer without a tunnel %v, %v", peer, err)
		}

		endpoints[peer.TypedSpec().Endpoint.String()] = true
	}

	if len(endpoints) != 2 {
		t.Errorf("it tries %v", endpoints)
	}

	s.SetPeers()

	if n := count(ctx, t, s, kubespan.PeerStatusType, kubespan.NamespaceName); n != 0 {
		t.Errorf("%d peers left", n)
	}

	s.SetMembers()
	s.SetLiveConfig(nil)
	s.SetPersistentConfig(nil)

	if n := count(ctx, t, s, clusterres.AffiliateType, clusterres.NamespaceName); n != 0 {
		t.Errorf("%d affiliates left", n)
	}

	if n := count(ctx, t, s, k8s.KubePrismEndpointsType, k8s.NamespaceName); n != 0 {
		t.Error("API servers known without a config")
	}
}

// TestMemory holds the promise that thousands of nodes fit into one process.
func TestMemory(t *testing.T) {
	const (
		nodes = 200
		limit = 400 << 10
	)

	recording, err := cosi.Recorded("maintenance")
	if err != nil {
		t.Fatal(err)
	}

	stores := make([]*cosi.Store, 0, nodes)
	newStore(t, 0) // the shared part

	before := heap()

	for i := range nodes {
		s := newStore(t, i)
		if err := s.SetStage(cosi.ControlPlaneRunning); err != nil {
			t.Fatal(err)
		}

		s.SetMachineStatus(runtimeres.MachineStageRunning, true)

		for _, id := range []string{"apid", "containerd", "cri", "etcd", "kubelet", "machined", "trustd"} {
			s.SetService(id, servicesres.ServiceSpec{Running: true, Healthy: true})
		}

		// A client that reads everything leaves an empty collection behind for every type.
		for typ, recorded := range recording {
			count(t.Context(), t, s, typ, recorded.DefaultNamespace)
		}

		stores = append(stores, s)
	}

	each := (heap() - before) / nodes
	t.Logf("%d KiB a node", each>>10)

	if each > limit {
		t.Errorf("a node's resources take %d KiB, more than %d", each>>10, limit>>10)
	}

	runtime.KeepAlive(stores)
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()

	var m runtime.MemStats
	runtime.ReadMemStats(&m)

	return m.HeapAlloc
}
