package node_test

import (
	"context"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/resources/config"
)

// TestFirewallShutsOut: a firewall without a rule for the Talos API drops new connections and keeps the established
// ones; in mode try the node opens up again by itself.
func TestFirewallShutsOut(t *testing.T) {
	t.Parallel()

	b := newBench(t, "127.31.70.1")
	c := b.configure()

	const shut = "apiVersion: v1alpha1\nkind: NetworkDefaultActionConfig\ningress: block\n"

	applied, err := b.apply(c, b.patched(shut), machine.ApplyConfigurationRequest_TRY, false)
	if err != nil || applied.GetMode() != machine.ApplyConfigurationRequest_TRY {
		t.Fatalf("trying a firewall: %+v, %v", applied, err)
	}

	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()

	if _, err := b.secure().Version(ctx); err == nil {
		t.Error("a new connection gets through a firewall that blocks everything")
	}

	b.eventually("the node takes the firewall back", func(ctx context.Context) bool {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()

		fresh := b.secure()
		_, err := fresh.Version(ctx)

		return err == nil && !b.has(fresh, config.ActiveID, "NetworkDefaultActionConfig")
	})

	open := shut + "---\napiVersion: v1alpha1\nkind: NetworkRuleConfig\nname: apid\nportSelector:\n  ports: [50000]\n" +
		"  protocol: tcp\ningress: [{subnet: 0.0.0.0/0}]\n"

	if _, err := b.apply(b.secure(), b.patched(open), machine.ApplyConfigurationRequest_NO_REBOOT, false); err != nil {
		t.Fatal(err)
	}

	ctx, cancel = context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()

	if _, err := b.secure().Version(ctx); err != nil {
		t.Errorf("a rule lets the Talos API through: %v", err)
	}
}

// TestKubeletFlag: a kubelet with a flag that it does not know ends, and the machine is not ready until the config is
// corrected.
func TestKubeletFlag(t *testing.T) {
	t.Parallel()

	b := newBench(t, "127.31.71.1")
	c := b.configure()
	kubelet := func(running bool) func(context.Context) bool {
		return func(ctx context.Context) bool {
			found, err := c.ServiceInfo(ctx, "kubelet")

			return err == nil && len(found) == 1 && (found[0].Service.GetState() == "Running") == running
		}
	}

	b.eventually("the kubelet runs", kubelet(true))

	bad := b.patched("machine: {kubelet: {extraArgs: {container-runtime: remote}}}")
	if _, err := b.apply(c, bad, machine.ApplyConfigurationRequest_NO_REBOOT, false); err != nil {
		t.Fatal(err)
	}

	b.eventually("the kubelet ends", kubelet(false))

	c = b.secure()
	if _, err := b.apply(c, b.config, machine.ApplyConfigurationRequest_NO_REBOOT, false); err != nil {
		t.Fatal(err)
	}

	b.eventually("the kubelet runs again", kubelet(true))
}
