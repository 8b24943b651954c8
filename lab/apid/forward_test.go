package apid_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	talosclient "github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/talos-operator/talos-operator/lab/apid"
	"github.com/talos-operator/talos-operator/test/wait"
)

// fleet is a cluster of two control-plane nodes and a worker.
func fleet(t *testing.T, change ...func(*apid.Options)) (cluster pki, cp1, cp2, worker *node) {
	t.Helper()

	cluster = newPKI(t)
	addrs := addresses(t, 3)

	return cluster,
		startNode(t, "cp-1", addrs[0], cluster.controlPlane(t, "cp-1", addrs[0]), change...),
		startNode(t, "cp-2", addrs[1], cluster.controlPlane(t, "cp-2", addrs[1]), change...),
		startNode(t, "w-1", addrs[2], cluster.worker(t, "w-1", addrs[2]), change...)
}

func TestForwardToOneNode(t *testing.T) {
	cluster, cp1, _, worker := fleet(t)
	c := cluster.client(t, cp1, role.Operator)
	ctx := talosclient.WithNode(within(t, patience), worker.addr.String())

	reply, err := c.Version(ctx)
	if err != nil {
		t.Fatal(err)
	}

	if got := reply.GetMessages()[0]; got.GetVersion().GetTag() != "v1.13.9 w-1" || got.GetMetadata() != nil {
		t.Errorf("got %v, want the worker's answer as it is", got)
	}

	if got := worker.lastRoles(); !slices.Equal(got, []string{"os:operator"}) {
		t.Errorf("the worker saw roles %v", got)
	}

	if cp1.faults.Calls("") != 0 || worker.faults.Calls("Version") != 1 {
		t.Errorf("counted %d and %d", cp1.faults.Calls(""), worker.faults.Calls("Version"))
	}

	// The worker judges the caller, not the node in between.
	_, err = c.MachineClient.Reset(ctx, &machine.ResetRequest{})
	wantCode(t, err, codes.PermissionDenied, "not authorized")

	host, err := c.COSI.Get(ctx, resource.NewMetadata(network.NamespaceName, network.HostnameStatusType,
		network.HostnameID, resource.VersionUndefined))
	if err != nil {
		t.Fatal(err)
	}

	if got := host.(*network.HostnameStatus).TypedSpec().Hostname; got != "w-1" {
		t.Errorf("COSI answered for %s", got)
	}
}

func TestForwardToManyNodes(t *testing.T) {
	cluster, cp1, cp2, worker := fleet(t)
	c := cluster.client(t, cp1, role.Reader)
	unused := addresses(t, 1)[0].String()
	ctx := talosclient.WithNodes(within(t, patience), cp1.addr.String(), cp2.addr.String(), worker.addr.String(), unused)

	// The generated client does not turn errors in the metadata into an error.
	reply, err := c.MachineClient.Version(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}

	got := map[string]string{}
	for _, m := range reply.GetMessages() {
		got[m.GetMetadata().GetHostname()] = m.GetVersion().GetTag() + m.GetMetadata().GetError()
	}

	for host, want := range map[string]string{
		cp1.addr.String(): "v1.13.9 cp-1", cp2.addr.String(): "v1.13.9 cp-2", worker.addr.String(): "v1.13.9 w-1",
		unused: `rpc error: code = Unavailable desc = connection error: desc = "transport: Error while dialing: dial tcp `,
	} {
		if !strings.HasPrefix(got[host], want) {
			t.Errorf("%s: got %q, want %q", host, got[host], want)
		}
	}

	// The wrapper of the official client does.
	_, err = c.Version(talosclient.WithNodes(ctx, unused))
	if talosclient.StatusCode(err) != codes.Unavailable || !strings.Contains(err.Error(), unused+": rpc error") {
		t.Errorf("got %v", err)
	}

	refusal, err := c.MachineClient.Reboot(ctx, &machine.RebootRequest{})
	if err != nil {
		t.Fatal(err)
	}

	for _, m := range refusal.GetMessages() {
		if md := m.GetMetadata(); md.GetHostname() != unused && codes.Code(md.GetStatus().GetCode()) !=
			codes.PermissionDenied {
			t.Errorf("%s: got %v", md.GetHostname(), md)
		}
	}
}

func TestForwardStreamsToManyNodes(t *testing.T) {
	cluster, cp1, cp2, worker := fleet(t)
	c := cluster.client(t, cp1, role.Reader)
	unused := addresses(t, 1)[0].String()
	ctx := talosclient.WithNodes(within(t, patience), cp2.addr.String(), worker.addr.String(), unused)

	logs, err := c.MachineClient.Logs(ctx, &machine.LogsRequest{})
	if err != nil {
		t.Fatal(err)
	}

	var got []string

	for {
		data, err := logs.Recv()
		if errors.Is(err, io.EOF) {
			break
		}

		if err != nil {
			t.Fatal(err)
		}

		if data.GetMetadata().GetHostname() == unused {
			got = append(got, codes.Code(data.GetMetadata().GetStatus().GetCode()).String())
		} else {
			got = append(got, string(data.GetBytes()))
		}
	}

	sort.Strings(got)

	if want := []string{"Unavailable", "cp-2 0", "cp-2 1", "w-1 0", "w-1 1"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestForwardClientStream(t *testing.T) {
	cluster, cp1, cp2, _ := fleet(t)
	c := cluster.client(t, cp1, role.Admin)

	// More than any buffer or window on the way.
	_, err := c.EtcdRecover(talosclient.WithNode(within(t, patience), cp2.addr.String()), io.LimitReader(zeroes{}, 5<<20))
	if err != nil {
		t.Fatal(err)
	}

	if got := cp2.received.Load(); got != 5<<20 {
		t.Errorf("%d bytes arrived", got)
	}
}

type zeroes struct{}

func (zeroes) Read(b []byte) (int, error) { return len(b), nil }

func TestForwardRefusals(t *testing.T) {
	cluster, cp1, cp2, worker := fleet(t)
	ctx := within(t, patience)
	c := cluster.client(t, cp1, role.Admin)

	_, err := c.COSI.List(talosclient.WithNodes(ctx, cp1.addr.String(), cp2.addr.String()),
		resource.NewMetadata(network.NamespaceName, network.HostnameStatusType, "", resource.VersionUndefined))
	wantCode(t, err, codes.InvalidArgument,
		"one-2-many proxying is not supported for method /cosi.resource.State/List")

	upgrade, err := c.LifecycleClient.Upgrade(talosclient.WithNodes(ctx, cp2.addr.String()),
		&machine.LifecycleServiceUpgradeRequest{})
	if err != nil {
		t.Fatal(err)
	}

	_, err = upgrade.Recv()
	wantCode(t, err, codes.InvalidArgument,
		"one-2-many proxying is not supported for method /machine.LifecycleService/Upgrade")

	_, err = c.Version(talosclient.WithNode(ctx, cp2.addr.String()+":50000"))
	wantCode(t, err, codes.Internal, `invalid target "`+cp2.addr.String()+`:50000"`)

	_, err = c.Version(metadata.NewOutgoingContext(ctx, metadata.MD{"node": {"a", "b"}}))
	wantCode(t, err, codes.InvalidArgument, "node metadata must be single-valued")

	w := cluster.client(t, worker, role.Admin)

	_, err = w.Version(talosclient.WithNode(ctx, cp1.addr.String()))
	wantCode(t, err, codes.PermissionDenied, "no request forwarding")

	if _, err = w.Version(talosclient.WithNode(ctx, worker.addr.String())); err != nil {
		t.Errorf("a worker forwards to itself: %v", err)
	}

	if cp1.faults.Calls("") != 0 || cp2.faults.Calls("") != 0 {
		t.Errorf("calls came through: %d, %d", cp1.faults.Calls(""), cp2.faults.Calls(""))
	}
}

// TestRolesCannotBeForged: the role metadata counts only from those who may impersonate.
func TestRolesCannotBeForged(t *testing.T) {
	cluster, cp1, cp2, _ := fleet(t)
	forged := metadata.MD{"talos-role": {"os:admin"}}

	for _, target := range []string{"", cp2.addr.String()} {
		md := forged.Copy()
		if target != "" {
			md.Set("node", target)
		}

		ctx := metadata.NewOutgoingContext(within(t, patience), md)

		_, err := cluster.client(t, cp1, role.Reader).MachineClient.Reboot(ctx, &machine.RebootRequest{})
		wantCode(t, err, codes.PermissionDenied, "not authorized")

		node := cluster.client(t, cp1, role.Impersonator)
		if _, err := node.MachineClient.Reboot(ctx, &machine.RebootRequest{}); err != nil {
			t.Errorf("an impersonator: %v", err)
		}
	}
}

func TestForwardByHostname(t *testing.T) {
	var known netip.Addr

	cluster, cp1, cp2, _ := fleet(t, func(o *apid.Options) {
		o.Resolve = func(target string) (netip.Addr, bool) { return known, target == "cp-2" }
	})
	known = cp2.addr

	c := cluster.client(t, cp1, role.Reader)
	ctx := within(t, patience)

	reply, err := c.Version(talosclient.WithNodes(ctx, "cp-2"))
	if err != nil {
		t.Fatal(err)
	}

	if got := reply.GetMessages()[0].GetMetadata().GetHostname(); got != "cp-2" {
		t.Errorf("answered by %q", got)
	}

	_, err = c.Version(talosclient.WithNode(ctx, "cp-9"))
	wantCode(t, err, codes.Unavailable, "no such host")
}

// TestForwardAfterTargetRestarts: the connection to a node that was reset since is not used for ever.
func TestForwardAfterTargetRestarts(t *testing.T) {
	cluster, cp1, cp2, _ := fleet(t)
	c := cluster.client(t, cp1, role.Reader)
	ctx := talosclient.WithNode(within(t, patience), cp2.addr.String())

	if _, err := c.Version(ctx); err != nil {
		t.Fatal(err)
	}

	cp2.server.Stop()

	_, err := c.Version(ctx)
	wantCode(t, err, codes.Unavailable, "")

	cp2.setIdentity(maintenance(t, "cp-2", cp2.addr))

	if err := cp2.server.Start(); err != nil {
		t.Fatal(err)
	}

	wait.For(t, "the other certificate is noticed", func(context.Context) error {
		if _, err := c.Version(ctx); err == nil || !strings.Contains(err.Error(), "unknown authority") {
			return fmt.Errorf("got %w", err)
		}

		return nil
	})
}
