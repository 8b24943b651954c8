package conformance

import (
	"bytes"
	"context"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/cosi-project/runtime/api/v1alpha1"
	"github.com/cosi-project/runtime/pkg/state/protobuf/server"
	"github.com/google/go-cmp/cmp"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/talos-operator/talos-operator/lab/cosi"
)

func TestEveryRecordedCallIsKnown(t *testing.T) {
	for _, state := range []string{
		stateMaintenance, stateConfigured, stateRunning, stateWorker, stateRebooted, stateRebootedWorker,
	} {
		recorded, err := recordedCalls(state)
		if err != nil {
			t.Fatal(err)
		}

		if len(recorded) != 74 {
			t.Errorf("%s: %d calls", state, len(recorded))
		}

		for _, q := range questions(recorded) {
			if _, err := method(q.method); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestEveryDifferenceHasItsReason(t *testing.T) {
	d, err := loadDifferences()
	if err != nil {
		t.Fatal(err)
	}

	for _, c := range d.Calls {
		if c.Reason == "" || len(c.Recorded) == 0 || len(c.Here) == 0 {
			t.Errorf("incomplete entry about %s", c.Method)
		}
	}

	for _, r := range d.Resources {
		if r.Reason == "" || len(r.Types) == 0 || len(r.More)+len(r.Fewer) == 0 {
			t.Errorf("incomplete entry about %v", r.Types)
		}
	}
}

func TestADifferenceThatNothingNeedsIsReported(t *testing.T) {
	d := &differences{Calls: []*callDifference{
		{Method: "/a/A", Recorded: []string{"Unknown"}, Here: []string{"OK"}},
		{Method: "/b/B", Recorded: []string{"Unknown"}, Here: []string{"OK"}},
	}}

	if !d.allowsCall(stateWorker, "/a/A", "Unknown", "OK") {
		t.Error("a listed difference is not allowed")
	}

	if d.allowsCall(stateWorker, "/b/B", "Unknown", "NotFound") || d.allowsCall(stateWorker, "/b/B", "NotFound", "OK") {
		t.Error("another code than the listed one is allowed")
	}

	if diff := cmp.Diff([]string{"call /b/B"}, d.unused()); diff != "" {
		t.Errorf("stale entries (-want +got):\n%s", diff)
	}
}

func TestIdentifiersOfDifferentNodesCompare(t *testing.T) {
	recorded := recordedPlace(stateWorker).normalize([]string{
		"eth0/10.231.0.14/24", "local/inet4//10.231.0.255/32/0", "eth0/fe80::141a:8dff:fe44:fc9d/64", "inet4/10.231.0.1//0",
		"eth0/inet6//fe80::/64/256", "nFnJf5OPzpP0qo9M1I5BXslOQ3bJrsxA0afz2M2t83g", "n4",
	})
	here := placeOf("127.35.1.44").normalize([]string{
		"eth0/127.35.1.44/16", "local/inet4//127.35.255.255/32/0", "eth0/fe80::7fff:fe23:2c/64", "inet4/127.35.0.1//0",
		"eth0/inet6//fe80::/64/256", "mFnJf5OPzpP0qo9M1I5BXslOQ3bJrsxA0afz2M2t83g", "n4",
	})

	if diff := cmp.Diff(recorded, here); diff != "" {
		t.Errorf("(-recorded +here):\n%s", diff)
	}
}

// TestResourcesOfAStore holds the resource state of lab/cosi on its own against the recordings, and shows that the
// comparison sees what is wrong with it: the store was not told what its node is.
func TestResourcesOfAStore(t *testing.T) {
	for _, test := range []struct {
		kind cosi.Kind
		name string
		role role.Role
		want []string
	}{
		{cosi.Maintenance, stateMaintenance, role.Reader, []string{
			"MachineStatuses.runtime.talos.dev", "ServicePIDs.runtime.talos.dev", "Services.v1alpha1.talos.dev",
		}},
		{cosi.ControlPlaneRunning, stateRunning, role.Admin, []string{
			"Affiliates.cluster.talos.dev", "Endpoints.kubernetes.talos.dev", "EtcdMembers.etcd.talos.dev",
			"Infos.cluster.talos.dev", "KubePrismConfigs.kubernetes.talos.dev", "KubePrismEndpoints.kubernetes.talos.dev",
			"MachineConfigs.config.talos.dev", "MachineStatuses.runtime.talos.dev", "ManifestStatuses.kubernetes.talos.dev",
			"Members.cluster.talos.dev", "ServicePIDs.runtime.talos.dev", "Services.v1alpha1.talos.dev",
		}},
		{cosi.Worker, stateWorker, role.Admin, []string{
			"Affiliates.cluster.talos.dev", "Endpoints.kubernetes.talos.dev",
			"Infos.cluster.talos.dev", "KubePrismConfigs.kubernetes.talos.dev", "KubePrismEndpoints.kubernetes.talos.dev",
			"MachineConfigs.config.talos.dev", "MachineStatuses.runtime.talos.dev", "Members.cluster.talos.dev",
			"ServicePIDs.runtime.talos.dev", "Services.v1alpha1.talos.dev",
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			place := placeOf("127.35.1.11")

			store, err := cosi.NewStore(cosi.Identity{
				Hostname: "n1", Address: netip.MustParsePrefix(place.address + place.prefix),
			})
			if err != nil {
				t.Fatal(err)
			}

			if err := store.SetStage(test.kind); err != nil {
				t.Fatal(err)
			}

			var out bytes.Buffer

			r := &report{w: &out}
			c := &comparison{report: r, known: &differences{}, state: test.name}

			if err := c.resources(t.Context(), serve(t, store, test.role), place); err != nil {
				t.Fatal(err)
			}

			var failed []string

			for line := range strings.Lines(out.String()) {
				failed = append(failed, strings.TrimSuffix(strings.Fields(line)[2], ":"))
			}

			if diff := cmp.Diff(test.want, failed); diff != "" {
				t.Errorf("failures (-want +got):\n%s\n%s", diff, out.String())
			}

			if r.result.Failed != len(test.want) || r.result.Passed != 2*167-len(test.want) {
				t.Errorf("%+v", r.result)
			}
		})
	}
}

func serve(t *testing.T, store *cosi.Store, caller role.Role) *grpc.ClientConn {
	t.Helper()

	listener := bufconn.Listen(1 << 16)
	srv := grpc.NewServer()
	v1alpha1.RegisterStateServer(srv, server.NewState(cosi.Filter(store.State(), func(context.Context) role.Set {
		return role.MakeSet(caller)
	})))

	done := make(chan error, 1)
	go func() { done <- srv.Serve(listener) }()

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
		<-done
	})

	return conn
}
