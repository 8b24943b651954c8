package talos_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	configmachine "github.com/siderolabs/talos/pkg/machinery/config/machine"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/talos"
	"github.com/talos-operator/talos-operator/lab/node"
	"github.com/talos-operator/talos-operator/test/loopback"
	"github.com/talos-operator/talos-operator/test/wait"
)

// otherFingerprint belongs to no certificate.
const otherFingerprint = "pnduMqbUZ/sQyDW1o4kP6c1u1PoB2gRQu8KEV38guAM="

// TestFingerprint: a probe tells which certificate a machine in maintenance mode shows, and a machine that has to show
// another one gets no call at all, be it a question, a watch or a config.
func TestFingerprint(t *testing.T) {
	t.Parallel()

	n := boot(t, loopback.Address(t))
	pool, shown := talos.NewPool(), fingerprintOf(t, n)

	if console := n.Status().MaintenanceFingerprint; shown != console {
		t.Errorf("the probe tells %q, and the console of the machine %q", shown, console)
	}

	for _, expected := range []string{otherFingerprint, "no fingerprint", strings.TrimSuffix(shown, "=")} {
		before := n.Faults().Calls("")
		refused(t, pool, n, expected, shown)

		if got := n.Faults().Calls("") - before; got != 0 {
			t.Errorf("a machine that has to show %q got %d calls", expected, got)
		}
	}

	for _, expected := range []string{"", shown} {
		m, err := pool.Maintenance(t.Context(), n.Address(), expected)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()

		if facts, err := m.Facts(t.Context()); err != nil || facts.Stage != "maintenance" {
			t.Errorf("a machine that has to show %q: stage %q, error %v", expected, facts.Stage, err)
		}
	}
}

// TestMaintenanceDryRun: a machine in maintenance mode tells whether it accepts a config, and stays there.
func TestMaintenanceDryRun(t *testing.T) {
	t.Parallel()

	address := loopback.Address(t)
	c, n := newCluster(t, address), boot(t, address)

	m, err := talos.NewPool().Maintenance(t.Context(), address, fingerprintOf(t, n))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()

	if _, err := m.DryRun(t.Context(), c.config(configmachine.TypeControlPlane)); err != nil {
		t.Error(err)
	}

	if _, err := m.DryRun(t.Context(), []byte("version: v1alpha1\nmachine: {type: none}\n")); err == nil {
		t.Error("an invalid config is accepted")
	}

	if facts, err := m.Facts(t.Context()); err != nil || facts.Stage != "maintenance" || n.Faults().MutatingCalls() > 0 {
		t.Errorf("stage %s after %d mutating calls, %v", facts.Stage, n.Faults().MutatingCalls(), err)
	}
}

func fingerprintOf(t *testing.T, n *node.Node) string {
	t.Helper()

	p, err := talos.NewPool().Probe(t.Context(), n.Address(), nil)
	if err != nil || p.State != talos.StateMaintenance {
		t.Fatalf("state %d: %v", p.State, err)
	}

	for expected, ok := range map[string]bool{"": true, p.Fingerprint: true, otherFingerprint: false, "none": false} {
		if got := p.Check(expected); (got == nil) != ok {
			t.Errorf("%q is expected, and the check says %v", expected, got)
		}
	}

	return p.Fingerprint
}

// refused: every call to a machine fails because of the certificate that it shows.
func refused(t *testing.T, pool *talos.Pool, n *node.Node, expected, shown string) {
	t.Helper()

	m, err := pool.Maintenance(t.Context(), n.Address(), expected)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()

	_, asked := m.Facts(t.Context())
	_, listed := m.Disks(t.Context())
	_, applied := m.Apply(t.Context(), newCluster(t, n.Address()).config(configmachine.TypeControlPlane))
	watched := pool.StreamMaintenance(t.Context(), n.Address(), expected, func(talos.Watched) { t.Error("it was watched") })

	for what, err := range map[string]error{"facts": asked, "disks": listed, "config": applied, "watch": watched} {
		wrong := talos.Mismatch(err)
		if wrong == nil || *wrong != (talos.MismatchError{Expected: expected, Shown: shown}) ||
			failure.Reason(err) != v1alpha1.ReasonMaintenanceCertificateMismatch {
			t.Errorf("%s with %q expected: %v", what, expected, err)
		}
	}
}

// TestFingerprintOfOneBoot: each boot into maintenance mode makes another certificate, and a configured machine has no
// fingerprint: its certificate is held to its CA.
func TestFingerprintOfOneBoot(t *testing.T) {
	t.Parallel()

	address := loopback.Address(t)
	c, n := newCluster(t, address), boot(t, address)
	first := fingerprintOf(t, n)

	n.Kill()

	if err := n.PowerOn(t.Context()); err != nil {
		t.Fatal(err)
	}

	awaitState(t, n, nil, talos.StateMaintenance)

	if second := fingerprintOf(t, n); second == first {
		t.Errorf("both boots show %s", first)
	}

	c.configure(n)

	creds := c.creds()
	wait.For(t, "the member", func(ctx context.Context) error {
		p, err := talos.NewPool().Probe(ctx, address, &creds)
		if err != nil || p.State != talos.StateMember || p.Fingerprint != "" {
			return errors.Join(errors.New("it shows "+p.Fingerprint), err)
		}

		return nil
	})

	if got := n.Status().MaintenanceFingerprint; got != "" {
		t.Errorf("a configured machine shows %s", got)
	}
}
