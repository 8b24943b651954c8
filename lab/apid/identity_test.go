package apid_test

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	talosclient "github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc/codes"

	"github.com/talos-operator/talos-operator/lab/apid"
	"github.com/talos-operator/talos-operator/test/wait"
)

func TestMaintenanceMode(t *testing.T) {
	addr := addresses(t, 1)[0]
	n := startNode(t, "m-1", addr, maintenance(t, "m-1", addr))
	c := insecure(t, n)
	ctx := within(t, patience)

	if _, err := c.Version(ctx); err != nil {
		t.Fatal(err)
	}

	if got := n.lastRoles(); !slices.Equal(got, []string{"os:reader"}) {
		t.Errorf("roles %v", got)
	}

	if _, err := c.ApplyConfiguration(ctx, &machine.ApplyConfigurationRequest{}); err != nil || n.appliedTimes() != 1 {
		t.Errorf("apply: %v, applied %d times", err, n.appliedTimes())
	}

	wantCode(t, c.Reboot(ctx), codes.PermissionDenied, "not authorized")

	// Forwarding is off, except that the node is itself by any of its names.
	_, err := c.Version(talosclient.WithNode(ctx, "127.0.0.9"))
	wantCode(t, err, codes.PermissionDenied, "no request forwarding")

	_, err = c.Version(talosclient.WithNodes(ctx, addr.String(), "127.0.0.9"))
	wantCode(t, err, codes.PermissionDenied, "no request forwarding")

	for _, name := range []string{addr.String(), "m-1"} {
		if _, err := c.Version(talosclient.WithNode(ctx, name)); err != nil {
			t.Errorf("node=%s: %v", name, err)
		}

		if _, err := c.Version(talosclient.WithNodes(ctx, name)); err != nil {
			t.Errorf("nodes=%s: %v", name, err)
		}
	}
}

func TestWrongSideOfTLS(t *testing.T) {
	cluster, other, addrs := newPKI(t), newPKI(t), addresses(t, 2)
	fresh := startNode(t, "m-1", addrs[0], maintenance(t, "m-1", addrs[0]))
	member := startNode(t, "cp-1", addrs[1], cluster.controlPlane(t, "cp-1", addrs[1]))
	ctx := within(t, patience)

	_, err := cluster.client(t, fresh, role.Admin).Version(ctx)
	wantCode(t, err, codes.Unavailable, "x509: certificate signed by unknown authority")

	_, err = insecure(t, member).Version(ctx)
	wantCode(t, err, codes.Unavailable, "")

	_, err = other.client(t, member, role.Admin).Version(ctx)
	wantCode(t, err, codes.Unavailable, "x509: certificate signed by unknown authority")

	// A foreign certificate does not pass even if the client does not mind the server's.
	blind := other.clientTLS(t, role.Admin)
	blind.InsecureSkipVerify = true
	_, err = dial(t, member, blind).Version(ctx)
	wantCode(t, err, codes.Unavailable, "")

	// A server certificate of the same cluster is no client certificate.
	stolen := cluster.clientTLS(t, role.Admin)
	stolen.Certificates = []tls.Certificate{cluster.worker(t, "w-1", addrs[1]).Certificate}
	_, err = dial(t, member, stolen).Version(ctx)
	wantCode(t, err, codes.Unavailable, "")

	if member.faults.Calls("") != 0 || fresh.faults.Calls("") != 0 {
		t.Error("a call came through")
	}
}

func TestServerCertificateNames(t *testing.T) {
	cluster, addr := newPKI(t), addresses(t, 1)[0]
	names := apid.Names{
		Hostname: "cp-1", Addresses: []netip.Addr{addr}, Extra: []string{"api.example.org", "192.0.2.7"},
	}

	id, err := apid.NewControlPlaneIdentity(names, cluster.ca, nil)
	if err != nil {
		t.Fatal(err)
	}

	startNode(t, "cp-1", addr, id)

	for name, good := range map[string]bool{
		addr.String(): true, "cp-1": true, "api.example.org": true, "192.0.2.7": true, "cp-2": false, "192.0.2.8": false,
	} {
		cfg := cluster.clientTLS(t, role.Admin)
		cfg.ServerName = name
		cfg.NextProtos = []string{"h2"}

		conn, err := tls.Dial("tcp", net.JoinHostPort(addr.String(), "50000"), cfg)
		if (err == nil) != good {
			t.Errorf("%s: %v", name, err)
		}

		if err == nil {
			_ = conn.Close()
		}
	}
}

func TestAcceptedCAs(t *testing.T) {
	current, previous, addr := newPKI(t), newPKI(t), addresses(t, 1)[0]

	id, err := apid.NewControlPlaneIdentity(
		current.names("cp-1", addr), current.ca, []*x509.PEMEncodedCertificate{{Crt: previous.ca.Crt}})
	if err != nil {
		t.Fatal(err)
	}

	n := startNode(t, "cp-1", addr, id)

	// The old client certificate still opens the door; the server shows a certificate of the new CA.
	cfg := previous.clientTLS(t, role.Operator)
	cfg.RootCAs = id.Authorities

	if _, err := dial(t, n, cfg).Version(within(t, patience)); err != nil {
		t.Fatal(err)
	}

	if got := n.lastRoles(); !slices.Equal(got, []string{"os:operator"}) {
		t.Errorf("roles %v", got)
	}
}

func TestIdentityNeedsCAs(t *testing.T) {
	cluster := newPKI(t)

	if _, err := apid.NewControlPlaneIdentity(apid.Names{},
		&x509.PEMEncodedCertificateAndKey{Crt: cluster.ca.Crt}, nil); err == nil {
		t.Error("a control plane without a CA key")
	}

	if _, err := apid.NewWorkerIdentity(apid.Names{}, tls.Certificate{}, nil); err == nil {
		t.Error("a worker without a CA")
	}

	if _, err := apid.NewWorkerIdentity(apid.Names{}, tls.Certificate{},
		[]*x509.PEMEncodedCertificate{{Crt: []byte("nonsense")}}); err == nil {
		t.Error("a worker with a broken CA")
	}
}

// TestReload applies a config as the first one: the answer arrives, the connection goes, and from then on only mutual
// TLS counts.
func TestReload(t *testing.T) {
	cluster, addr := newPKI(t), addresses(t, 1)[0]
	n := startNode(t, "cp-1", addr, maintenance(t, "cp-1", addr))
	n.next = cluster.controlPlane(t, "cp-1", addr)
	c := insecure(t, n)
	ctx := within(t, patience)

	events, err := c.MachineClient.Events(ctx, &machine.EventsRequest{})
	if err != nil {
		t.Fatal(err)
	}

	if _, err := events.Recv(); err != nil {
		t.Fatal(err)
	}

	reply, err := c.ApplyConfiguration(ctx, &machine.ApplyConfigurationRequest{})
	if err != nil || reply.GetMessages()[0].GetModeDetails() != "done" {
		t.Fatalf("the answer to the apply got lost: %v %v", reply, err)
	}

	// Nothing else than the new identity ends the old stream.
	_, err = events.Recv()
	wantCode(t, err, codes.Unavailable, "")

	_, err = c.Version(ctx)
	wantCode(t, err, codes.Unavailable, "")

	if _, err := cluster.client(t, n, role.Admin).Version(ctx); err != nil {
		t.Errorf("with the new identity: %v", err)
	}
}

// TestStop cuts the power: connections are reset at once, and the next boot serves again.
func TestStop(t *testing.T) {
	cluster, addr := newPKI(t), addresses(t, 1)[0]
	n := startNode(t, "cp-1", addr, cluster.controlPlane(t, "cp-1", addr))
	c := cluster.client(t, n, role.Admin)
	ctx := within(t, patience)

	raw, err := net.Dial("tcp", net.JoinHostPort(addr.String(), "50000"))
	if err != nil {
		t.Fatal(err)
	}

	events, err := c.MachineClient.Events(ctx, &machine.EventsRequest{})
	if err != nil {
		t.Fatal(err)
	}

	if _, err := events.Recv(); err != nil {
		t.Fatal(err)
	}

	n.server.Stop()

	_, err = events.Recv()
	wantCode(t, err, codes.Unavailable, "")

	if _, err := io.ReadAll(raw); err == nil || !strings.Contains(err.Error(), "reset by peer") {
		t.Errorf("plain connection: %v, want a reset", err)
	}

	_, err = c.Version(ctx)
	wantCode(t, err, codes.Unavailable, "connection refused")

	if n.server.Serving() {
		t.Error("still serving")
	}

	if err := n.server.Start(); err != nil {
		t.Fatal(err)
	}

	if _, err := cluster.client(t, n, role.Admin).Version(ctx); err != nil {
		t.Errorf("after the next boot: %v", err)
	}
}

// TestShutdown: a machine that goes by its own will answers the call that told it to.
func TestShutdown(t *testing.T) {
	cluster, addr := newPKI(t), addresses(t, 1)[0]
	n := startNode(t, "cp-1", addr, cluster.controlPlane(t, "cp-1", addr))
	n.obeys = true
	c := cluster.client(t, n, role.Admin)
	ctx := within(t, patience)

	events, err := c.MachineClient.Events(ctx, &machine.EventsRequest{})
	if err != nil {
		t.Fatal(err)
	}

	if _, err := events.Recv(); err != nil {
		t.Fatal(err)
	}

	if err := c.Shutdown(ctx); err != nil {
		t.Errorf("the answer got lost: %v", err)
	}

	_, err = events.Recv()
	wantCode(t, err, codes.Unavailable, "")

	wait.Done(t, "the end", n.down)

	_, err = c.Version(ctx)
	wantCode(t, err, codes.Unavailable, "connection refused")

	if err := n.server.Start(); err != nil {
		t.Fatal(err)
	}

	if _, err := cluster.client(t, n, role.Admin).Version(ctx); err != nil {
		t.Errorf("after the next boot: %v", err)
	}
}

// TestStopCutsShutdownShort: the power goes while the machine waits for a call to end.
func TestStopCutsShutdownShort(t *testing.T) {
	for name, cut := range map[string]func(*node) error{
		"stop":  func(n *node) error { n.server.Stop(); return nil },
		"start": func(n *node) error { return n.server.Start() },
	} {
		t.Run(name, func(t *testing.T) {
			cluster, addr := newPKI(t), addresses(t, 1)[0]
			n := startNode(t, "cp-1", addr, cluster.controlPlane(t, "cp-1", addr))
			n.obeys = true
			c := cluster.client(t, n, role.Admin)
			answer := make(chan error, 1)

			go func() { answer <- c.Shutdown(within(t, patience), talosclient.WithShutdownForce(true)) }()

			wait.For(t, "the machine goes", func(context.Context) error { return wait.True(!n.server.Serving()) })

			if err := cut(n); err != nil {
				t.Fatal(err)
			}

			// The mercy of a shutdown is longer than anything waits here.
			wantCode(t, wait.Done(t, "the answer", answer), codes.Unavailable, "")
			wait.Done(t, "the end", n.down)
		})
	}
}
