package talos_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	siderox509 "github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/talos"
	"github.com/talos-operator/talos-operator/test/loopback"
	"github.com/talos-operator/talos-operator/test/wait"
)

// TestProbe: what a machine is shows in the TLS alone, in every state that a machine may be in.
func TestProbe(t *testing.T) {
	t.Parallel()

	address := loopback.Address(t)
	ours, theirs := newCluster(t, address), newCluster(t, address)
	creds, foreign := ours.creds(), theirs.creds()
	expired := ours.credsFor(wait.Now().Add(-2*time.Hour), time.Hour, role.Admin)
	n := boot(t, address)
	pool := talos.NewPool()

	check := func(name string, c *talos.Credentials, want talos.State, class failure.Class) {
		t.Helper()

		p, err := answered(t, name, class == failure.ClassTransient, func(ctx context.Context) (talos.Probe, error) {
			return pool.Probe(ctx, n.Address(), c)
		})

		switch {
		case p.State != want || (err == nil) != (want != talos.StateUnreachable):
			t.Errorf("%s: state %d, error %v; want state %d", name, p.State, err, want)
		case err != nil && failure.ClassOf(err) != class:
			t.Errorf("%s: class %d of %v; want %d", name, failure.ClassOf(err), err, class)
		}
	}

	check("maintenance, no credentials", nil, talos.StateMaintenance, 0)
	check("maintenance", &creds, talos.StateMaintenance, 0)

	ours.configure(n)
	check("member", &creds, talos.StateMember, 0)
	check("member of another cluster", &foreign, talos.StateForeign, 0)
	check("configured, no credentials", nil, talos.StateForeign, 0)
	// Ours, though it refuses us: a node that were called foreign would be left alone, or abandoned on deletion.
	check("our certificate has expired", &expired, talos.StateUnreachable, failure.ClassAuth)

	n.Freeze(true)
	check("frozen", &creds, talos.StateUnreachable, failure.ClassTransient)
	n.Freeze(false)
	check("thawed", &creds, talos.StateMember, 0)

	n.Partition(true)
	check("partitioned", &creds, talos.StateUnreachable, failure.ClassTransient)
	n.Partition(false)
	check("reunited", &creds, talos.StateMember, 0)

	n.Kill()
	check("off", &creds, talos.StateUnreachable, failure.ClassTransient)
	check("off, no credentials", nil, talos.StateUnreachable, failure.ClassTransient)

	if err := n.PowerOn(t.Context()); err != nil {
		t.Fatal(err)
	}

	awaitState(t, n, &creds, talos.StateMember)
	check("another cluster's after a boot", &foreign, talos.StateForeign, 0)
}

// answered is the outcome of a probe. Unless the machine is to be silent it is repeated until there is an answer: on a
// busy computer that may not come in the time of a probe.
func answered(t *testing.T, what string, silent bool, probe func(context.Context) (talos.Probe, error)) (
	p talos.Probe, err error,
) {
	t.Helper()

	wait.For(t, what, func(ctx context.Context) error {
		if p, err = probe(ctx); err != nil && !silent && failure.ClassOf(err) == failure.ClassTransient {
			return err
		}

		return nil
	})

	return p, err
}

// TestProbeOfOddCertificates: a node of our CA whose certificate is no good is neither ours to use nor foreign, and a
// server that hangs up without a word is nothing at all.
func TestProbeOfOddCertificates(t *testing.T) {
	t.Parallel()

	ours := newCluster(t, loopback.Address(t))
	creds := ours.creds()

	tests := []struct {
		name      string
		elsewhere bool
		from      time.Time
		hangUp    bool
		wantState talos.State
		wantClass failure.Class
	}{
		{
			name: "good", from: wait.Now(), wantState: talos.StateMember,
		},
		{
			name: "another address", elsewhere: true, from: wait.Now(), wantClass: failure.ClassAuth,
		},
		{
			name: "out of date", from: wait.Now().Add(-2 * time.Hour), wantClass: failure.ClassAuth,
		},
		{name: "hangs up", hangUp: true, wantClass: failure.ClassTransient},
	}

	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			subnet := loopback.Subnet(t)
			address, validFor := subnet+".1", subnet+".1"

			if tc.elsewhere {
				validFor = subnet + ".200"
			}

			if tc.hangUp {
				hangUp(t, address)
			} else {
				serve(t, ours, served{address, netip.MustParseAddr(validFor), tc.from})
			}

			p, err := answered(t, tc.name, tc.hangUp, func(ctx context.Context) (talos.Probe, error) {
				return talos.NewPool().Probe(ctx, address, &creds)
			})
			if p.State != tc.wantState || (err == nil) != (tc.wantState == talos.StateMember) {
				t.Fatalf("got state %d, %v", p.State, err)
			}

			if err != nil && failure.ClassOf(err) != tc.wantClass {
				t.Errorf("class %d of %v, want %d", failure.ClassOf(err), err, tc.wantClass)
			}
		})
	}
}

// served is where a server listens, and what its certificate is good for: one address, and one hour.
type served struct {
	address  string
	validFor netip.Addr
	from     time.Time
}

// serve runs a gRPC server under the cluster's CA.
func serve(t *testing.T, c *cluster, o served, register ...func(grpc.ServiceRegistrar)) {
	t.Helper()

	pem := c.input.Options.SecretsBundle.Certs.OS

	ca, err := siderox509.NewCertificateAuthorityFromCertificateAndKey(pem)
	if err != nil {
		t.Fatal(err)
	}

	pair, err := siderox509.NewKeyPair(ca, siderox509.IPAddresses([]net.IP{o.validFor.AsSlice()}),
		siderox509.NotBefore(o.from), siderox509.NotAfter(o.from.Add(time.Hour)),
		siderox509.ExtKeyUsage([]x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}))
	if err != nil {
		t.Fatal(err)
	}

	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{*pair.Certificate},
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: caPool(t, c.creds()),
	})))

	for _, r := range register {
		r(server)
	}

	l := listen(t, o.address)

	go func() { _ = server.Serve(l) }()

	t.Cleanup(server.Stop)
}

// hangUp accepts connections and closes them.
func hangUp(t *testing.T, address string) {
	t.Helper()

	l := listen(t, address)

	go func() {
		for {
			conn, err := l.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}

			if err == nil {
				_ = conn.Close()
			}
		}
	}()
}

func listen(t *testing.T, address string) net.Listener {
	t.Helper()

	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", net.JoinHostPort(address, "50000"))
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = l.Close() })

	return l
}
