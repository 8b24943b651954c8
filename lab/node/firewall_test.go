package node_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	configmachine "github.com/siderolabs/talos/pkg/machinery/config/machine"

	"github.com/talos-operator/talos-operator/lab/node"
	"github.com/talos-operator/talos-operator/test/loopback"
	"github.com/talos-operator/talos-operator/test/wait"
)

// answers tells whether a port of a machine responds to a client at an address.
func answers(ctx context.Context, from, address, port string) error {
	ctx, cancel := context.WithTimeout(ctx, silence)
	defer cancel()

	conn, err := (&tls.Dialer{
		NetDialer: &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}, Config: &tls.Config{InsecureSkipVerify: true},
	}).DialContext(ctx, "tcp", net.JoinHostPort(address, port))
	if err != nil {
		return err
	}

	return conn.Close()
}

// TestFirewallByAddress: a rule lets in the addresses that it names, and the machine itself; a machine that is wiped has no
// firewall any more.
func TestFirewallByAddress(t *testing.T) {
	t.Parallel()

	subnet := loopback.Subnet(t)
	own, friend := subnet+".1", subnet+".2"
	b := newBench(t, own)
	c := b.configure()

	const rule = "apiVersion: v1alpha1\nkind: NetworkDefaultActionConfig\ningress: block\n---\napiVersion: v1alpha1\n" +
		"kind: NetworkRuleConfig\nname: apid\nportSelector: {ports: [50000], protocol: tcp}\ningress: [{subnet: %s/32}]\n"

	if _, err := b.apply(c, b.patched(fmt.Sprintf(rule, friend)), machine.ApplyConfigurationRequest_NO_REBOOT, false); err != nil {
		t.Fatal(err)
	}

	for _, from := range []string{friend, own} {
		wait.For(t, from+" is let in", func(ctx context.Context) error { return answers(ctx, from, own, "50000") })
	}

	for _, from := range []string{"127.0.0.1", subnet + ".3"} {
		if err := answers(t.Context(), from, own, "50000"); err == nil {
			t.Errorf("%s is let in", from)
		}
	}

	// It is there after the next boot, too.
	b.n.Kill()

	if err := b.n.PowerOn(t.Context()); err != nil {
		t.Fatal(err)
	}

	wait.For(t, "it is back", func(ctx context.Context) error { return answers(ctx, friend, own, "50000") })

	if err := answers(t.Context(), "127.0.0.1", own, "50000"); err == nil {
		t.Error("a stranger is let in after a boot")
	}

	b.n.Kill()

	if err := b.n.WipeDisk(); err != nil {
		t.Fatal(err)
	}

	if err := b.n.PowerOn(t.Context()); err != nil {
		t.Fatal(err)
	}

	wait.For(t, "a wiped machine lets everybody in", func(ctx context.Context) error {
		return answers(ctx, "127.0.0.1", own, "50000")
	})
}

// TestFirewallBetweenMachines: control-plane machines that let in one of their neighbours issue no certificate to the other, have
// it join no etcd, and do not answer it with their API server. Once they let it in, all of that happens.
func TestFirewallBetweenMachines(t *testing.T) {
	t.Parallel()

	f := newFleet(t, true)
	first, shut, worker, friend := f.boot(1), f.boot(2), f.boot(3), f.boot(4)

	rule := func(nodes ...*node.Node) string {
		out := "apiVersion: v1alpha1\nkind: NetworkRuleConfig\nname: neighbours\n" +
			"portSelector: {ports: [50001, 6443, 2379-2380], protocol: tcp}\ningress:\n"
		for _, n := range nodes {
			out += "  - {subnet: " + n.Address() + "/32}\n"
		}

		return out
	}

	f.first(first, f.render(configmachine.TypeControlPlane, rule(friend)))
	c := f.preparing(first)

	if err := c.Bootstrap(t.Context(), &machine.BootstrapRequest{}); err != nil {
		t.Fatal(err)
	}

	f.ready(first)
	f.first(shut, f.render(configmachine.TypeControlPlane, rule(friend)))
	f.first(worker, f.render(configmachine.TypeWorker))
	f.preparing(shut)
	f.first(friend, f.render(configmachine.TypeControlPlane, rule(friend)))
	wait.For(t, "the neighbour joins", sees(c, first.Name(), friend.Name()))
	f.ready(friend)

	if err := answers(t.Context(), friend.Address(), first.Address(), "6443"); err != nil {
		t.Errorf("the API server does not answer a neighbour: %v", err)
	}

	if answers(t.Context(), shut.Address(), first.Address(), "6443") == nil || shut.Status().Ready {
		t.Errorf("a machine is let in that no rule names: %+v", shut.Status())
	}

	for _, n := range []*node.Node{first, shut, friend} {
		if _, err := f.client(n).ApplyConfiguration(t.Context(), &machine.ApplyConfigurationRequest{
			Data: f.render(configmachine.TypeControlPlane, rule(first, shut, worker, friend)),
			Mode: machine.ApplyConfigurationRequest_NO_REBOOT,
		}); err != nil {
			t.Fatal(err)
		}
	}

	wait.For(t, "the other one joins", sees(c, first.Name(), shut.Name(), friend.Name()))
	f.ready(shut, worker)
}
