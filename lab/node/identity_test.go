package node_test

import (
	"bytes"
	"crypto/tls"
	"net"
	"strings"
	"testing"

	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"

	"github.com/talos-operator/talos-operator/lab/node"
	"github.com/talos-operator/talos-operator/test/loopback"
	"github.com/talos-operator/talos-operator/test/wait"
)

// shown is the certificate that the machine API shows now.
func (b *bench) shown() []byte {
	b.t.Helper()

	// Which certificate it is is the question; nothing is sent.
	conn, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}).DialContext(b.t.Context(), "tcp",
		net.JoinHostPort(b.n.Address(), "50000"))
	if err != nil {
		b.t.Fatal(err)
	}
	defer conn.Close()

	secure, ok := conn.(*tls.Conn)
	if !ok {
		b.t.Fatalf("%T", conn)
	}

	return secure.ConnectionState().PeerCertificates[0].Raw
}

// TestConfigsKeepTheAPI: apid makes a new certificate, and restarts for it, when what is in it has changed, and for no
// other change of the config.
func TestConfigsKeepTheAPI(t *testing.T) {
	t.Parallel()

	b := newBench(t, loopback.Address(t))
	c := b.configure()
	first := b.shown()

	send := func(c *client.Client, patch string) {
		t.Helper()

		if _, err := b.apply(c, b.patched(patch), machine.ApplyConfigurationRequest_NO_REBOOT, false); err != nil {
			t.Fatal(err)
		}
	}

	send(c, "machine: {sysctls: {net.core.somaxconn: '4321'}}")

	if !bytes.Equal(b.shown(), first) {
		t.Error("another sysctl made apid show another certificate")
	}

	send(b.secure(), "machine: {certSANs: [elsewhere.example.org]}")

	if bytes.Equal(b.shown(), first) {
		t.Error("another name made apid show the same certificate")
	}
}

// TestConsoleFingerprint: a machine in maintenance mode prints the fingerprint of the certificate that it shows, as the
// status of the lab does.
func TestConsoleFingerprint(t *testing.T) {
	t.Parallel()

	b := newBench(t, loopback.Address(t))
	wait.For(t, "maintenance mode", shows(b.n, func(s node.Status) bool { return s.Stage == "maintenance" }))

	shown, err := x509.SPKIFingerprintFromDER(b.shown())
	if err != nil {
		t.Fatal(err)
	}

	if got := b.n.Status().MaintenanceFingerprint; got != shown.String() {
		t.Errorf("the status has %q; the certificate %q", got, shown)
	}

	stream, err := b.insecure().Dmesg(t.Context(), false, false)
	if err != nil {
		t.Fatal(err)
	}

	var console strings.Builder

	for {
		line, err := stream.Recv()
		if err != nil {
			break
		}

		console.Write(line.GetBytes())
	}

	if !strings.Contains(console.String(), shown.String()) {
		t.Errorf("the console does not show %q: %s", shown, console.String())
	}
}
