package talconfig_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/talos-operator/talos-operator/internal/talos"
	"github.com/talos-operator/talos-operator/lab/node"
	"github.com/talos-operator/talos-operator/test/loopback"
	"github.com/talos-operator/talos-operator/test/metal"
	"github.com/talos-operator/talos-operator/test/wait"
)

// TestEmulatedNode: an emulated machine installs with a machine config that genconfig wrote.
func TestEmulatedNode(t *testing.T) {
	address := loopback.Address(t)
	f := newFolder(t)
	f.write("talconfig.yaml", strings.NewReplacer("10.0.0.10", address, "10.0.0.11,fd00::11", address).Replace(config)+
		"    networkInterfaces: [{interface: eth0, dhcp: true}]\n")
	f.mustRun(generate...)

	n, err := node.New(node.Options{Name: "cp-1", Address: address, Dir: t.TempDir(), Modelled: true})
	if err != nil {
		t.Fatal(err)
	}

	if err := n.PowerOn(t.Context()); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(n.Kill)

	pool := talos.NewPool()
	t.Cleanup(pool.Close)

	wait.For(t, "maintenance mode", func(ctx context.Context) error {
		if probe, err := pool.Probe(ctx, address, nil); probe.State != talos.StateMaintenance {
			return fmt.Errorf("state %d: %w", probe.State, err)
		}

		return nil
	})

	m, err := pool.Maintenance(t.Context(), address, "")
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()

	first := n.Status().BootID

	if _, err := m.Apply(t.Context(), []byte(f.read("clusterconfig/prod-cp-1.yaml"))); err != nil {
		t.Fatal(err)
	}

	metal.Installed(t, n, first)
}
