package node_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/resources/config"

	"github.com/talos-operator/talos-operator/test/loopback"
	"github.com/talos-operator/talos-operator/test/wait"
)

// TestFirewallShutsOut: a firewall without a rule for the Talos API drops new connections and keeps the established
// ones; in mode try the node opens up again by itself.
func TestFirewallShutsOut(t *testing.T) {
	t.Parallel()

	b := newBench(t, loopback.Address(t))
	c := b.configure()

	const shut = "apiVersion: v1alpha1\nkind: NetworkDefaultActionConfig\ningress: block\n"

	applied, err := b.apply(c, b.patched(shut), machine.ApplyConfigurationRequest_TRY, false)
	if err != nil || applied.GetMode() != machine.ApplyConfigurationRequest_TRY {
		t.Fatalf("trying a firewall: %+v, %v", applied, err)
	}

	ctx, cancel := context.WithTimeout(t.Context(), silence)
	defer cancel()

	// The established connection tells whether the firewall was there all the time.
	if _, err := b.secure().Version(ctx); err == nil && b.has(c, config.ActiveID, "NetworkDefaultActionConfig") {
		t.Error("a new connection gets through a firewall that blocks everything")
	}

	wait.For(t, "the node takes the firewall back", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, attempt)
		defer cancel()

		fresh := b.secure()
		if _, err := fresh.Version(ctx); err != nil {
			return err
		}

		return wait.True(!b.has(fresh, config.ActiveID, "NetworkDefaultActionConfig"))
	})

	open := shut + "---\napiVersion: v1alpha1\nkind: NetworkRuleConfig\nname: apid\nportSelector:\n  ports: [50000]\n" +
		"  protocol: tcp\ningress: [{subnet: 0.0.0.0/0}]\n"

	if _, err := b.apply(b.secure(), b.patched(open), machine.ApplyConfigurationRequest_NO_REBOOT, false); err != nil {
		t.Fatal(err)
	}

	if _, err := b.secure().Version(t.Context()); err != nil {
		t.Errorf("a rule lets the Talos API through: %v", err)
	}
}

// TestKubeletFlag: a kubelet with a flag that it does not know ends, and the machine is not ready until the config is
// corrected.
func TestKubeletFlag(t *testing.T) {
	t.Parallel()

	b := newBench(t, loopback.Address(t))
	c := b.configure()
	kubelet := func(running bool) func(context.Context) error {
		return func(ctx context.Context) error {
			found, err := c.ServiceInfo(ctx, "kubelet")
			if err == nil && (len(found) != 1 || (found[0].Service.GetState() == "Running") != running) {
				err = fmt.Errorf("%v", found)
			}

			return err
		}
	}

	wait.For(t, "the kubelet runs", kubelet(true))

	bad := b.patched("machine: {kubelet: {extraArgs: {container-runtime: remote}}}")
	if _, err := b.apply(c, bad, machine.ApplyConfigurationRequest_NO_REBOOT, false); err != nil {
		t.Fatal(err)
	}

	wait.For(t, "the kubelet ends", kubelet(false))

	c = b.secure()
	if _, err := b.apply(c, b.config, machine.ApplyConfigurationRequest_NO_REBOOT, false); err != nil {
		t.Fatal(err)
	}

	wait.For(t, "the kubelet runs again", kubelet(true))
}
