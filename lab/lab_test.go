package lab_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	talosclient "github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	machinetype "github.com/siderolabs/talos/pkg/machinery/config/machine"

	"github.com/talos-operator/talos-operator/lab"
	"github.com/talos-operator/talos-operator/lab/node"
	"github.com/talos-operator/talos-operator/test/loopback"
	"github.com/talos-operator/talos-operator/test/pki"
	"github.com/talos-operator/talos-operator/test/wait"
)

func open(t *testing.T, dir, subnet string) *lab.Lab {
	t.Helper()

	l, err := lab.New(lab.Options{Dir: dir, Subnet: subnet, Modelled: true})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { shut(t, l) })

	return l
}

func shut(t *testing.T, l *lab.Lab) {
	t.Helper()

	if err := l.Close(context.WithoutCancel(t.Context())); err != nil {
		t.Errorf("closing the lab: %v", err)
	}
}

func boot(t *testing.T, l *lab.Lab, name string, opts ...lab.NodeOption) *node.Node {
	t.Helper()

	n, err := l.Boot(t.Context(), name, opts...)
	if err != nil {
		t.Fatal(err)
	}

	return n
}

// host is an address of a network such as 127.201.0.0/16.
func host(network string, third, fourth byte) string {
	a := netip.MustParsePrefix(network).Addr().As4()
	a[2], a[3] = third, fourth

	return netip.AddrFrom4(a).String()
}

// shows makes a check of what a machine says about itself.
func shows(n *node.Node, ok func(node.Status) bool) func(context.Context) error {
	return func(context.Context) error {
		if st := n.Status(); !ok(st) {
			return fmt.Errorf("%+v", st)
		}

		return nil
	}
}

// view is what has to be the same after a restart.
func view(l *lab.Lab) map[string]string {
	v := map[string]string{}

	for _, name := range l.Names() {
		n := l.Node(name)
		v[name] = fmt.Sprintf("%s %s on=%t secure=%t", n.Address(), n.UUID(), n.Powered(), n.Status().SecureBoot)
	}

	return v
}

// TestCarriesOn opens a lab again after it was closed: the same machines at the same addresses with the same
// configs and firmwares, those on that were on.
func TestCarriesOn(t *testing.T) {
	dir, network := t.TempDir(), loopback.Network(t)
	first := open(t, dir, network)

	cp := boot(t, first, "default/cp-0")
	boot(t, first, "node-1", lab.WithSize(8, 16384))
	boot(t, first, "node-2", lab.WithDisks(node.Disk{Name: "nvme0n1", Size: 100 * node.GiB}), lab.WithSecureBoot(true))
	boot(t, first, "spare", lab.PoweredOff(), lab.WithAddress(host(network, 9, 9)))

	if got := []string{cp.Address(), first.Node("node-1").Address(), first.Node("node-2").Address()}; !cmp.Equal(got,
		[]string{host(network, 0, 1), host(network, 0, 2), host(network, 0, 3)}) {
		t.Errorf("addresses %v", got)
	}

	if err := first.Kill("node-1"); err != nil {
		t.Fatal(err)
	}

	configure(t, cp, "https://"+host(network, 255, 100)+":6443")

	for name, on := range map[string]bool{"node-1": true, "node-2": false} {
		if err := first.SetSecureBoot(name, on); err != nil {
			t.Fatal(err)
		}
	}

	before := view(first)
	bootID := cp.Status().BootID

	shut(t, first)

	second := open(t, dir, network)
	if diff := cmp.Diff(before, view(second)); diff != "" {
		t.Errorf("after the restart (-before +after):\n%s", diff)
	}

	cp = second.Node("default/cp-0")

	wait.For(t, "the configured machine boots from its disk", shows(cp, func(s node.Status) bool {
		return s.ClusterName == "test" && s.BootID != bootID && s.Stage != "maintenance"
	}))

	if err := second.PowerOn(t.Context(), "node-1"); err != nil {
		t.Fatal(err)
	}

	wait.For(t, "the killed machine is back in maintenance mode", shows(second.Node("node-1"),
		func(s node.Status) bool { return s.Stage == "maintenance" }))
}

func TestPlacesMachines(t *testing.T) {
	network := loopback.Network(t)
	l := open(t, t.TempDir(), network)

	boot(t, l, "a", lab.PoweredOff(), lab.WithAddress(host(network, 0, 1)))

	if n := boot(t, l, "b", lab.PoweredOff()); n.Address() != host(network, 0, 2) {
		t.Errorf("b is at %s", n.Address())
	}

	if err := l.Remove(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}

	if n := boot(t, l, "c", lab.PoweredOff()); n.Address() != host(network, 0, 1) {
		t.Errorf("c is at %s, not at the address that is free again", n.Address())
	}

	for name, opts := range map[string][]lab.NodeOption{
		"taken":      {lab.WithAddress(host(network, 0, 2))},
		"elsewhere":  {lab.WithAddress("192.168.1.1")},
		"../escape":  nil,
		"Capital":    nil,
		"a/b/c":      nil,
		"under_line": nil,
	} {
		if _, err := l.Boot(t.Context(), name, opts...); err == nil {
			t.Errorf("%s was booted", name)
		}
	}

	if err := l.Kill("nobody"); !errors.Is(err, lab.ErrNotFound) {
		t.Errorf("killing nobody: %v", err)
	}

	if err := l.Remove(t.Context(), "nobody"); err != nil {
		t.Errorf("removing nobody: %v", err)
	}
}

func TestTellsOfPowerChanges(t *testing.T) {
	network := loopback.Network(t)
	l := open(t, t.TempDir(), network)
	changes := make(chan string, 10)
	l.Subscribe(func(name string) { changes <- name })

	n := boot(t, l, "one", lab.WithAddress(host(network, 20, 1)))

	for range 2 {
		if name := wait.Done(t, "somebody is told", changes); name != "one" {
			t.Errorf("told of %s", name)
		}

		n.Kill() // for whatever reason
	}
}

// TestBalancer reaches two control-plane nodes through their endpoint, then one, then none. Instead of API servers,
// something responds that says which node it is at.
func TestBalancer(t *testing.T) {
	network := loopback.Network(t)
	l := open(t, t.TempDir(), network)

	endpoint := host(network, 255, 40) + ":6443"

	nodes := []*node.Node{
		boot(t, l, "cp-0", lab.WithAddress(host(network, 40, 1))), boot(t, l, "cp-1", lab.WithAddress(host(network, 40, 2))),
	}

	input := newInput(t, "https://"+endpoint)

	for _, n := range nodes {
		apply(t, n, input, machinetype.TypeControlPlane)
		answer(t, n.Address())
	}

	wait.For(t, "both nodes answer in turn", func(context.Context) error {
		if first, second := reached(endpoint), reached(endpoint); first == "" || second == "" || first == second {
			return fmt.Errorf("%q and %q answer", first, second)
		}

		return nil
	})

	held, err := net.Dial("tcp", endpoint)
	for err == nil && line(held) != nodes[0].Address() {
		held, err = net.Dial("tcp", endpoint)
	}

	if err != nil {
		t.Fatal(err)
	}

	if err := held.SetDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}

	nodes[0].Freeze(true)

	ended := make(chan struct{})

	go func() {
		defer close(ended)

		_, _ = io.Copy(io.Discard, held)
	}()

	wait.Done(t, "the connection to the frozen node ends", ended)

	for range 4 {
		if got := reached(endpoint); got != nodes[1].Address() {
			t.Errorf("reached %q, want the node that is left", got)
		}
	}

	nodes[0].Freeze(false)
	wait.For(t, "the node is back", func(context.Context) error {
		if got := reached(endpoint); got != nodes[0].Address() {
			return fmt.Errorf("%q answers", got)
		}

		return nil
	})

	for _, name := range []string{"cp-0", "cp-1"} {
		if err := l.Wipe(name); err != nil {
			t.Fatal(err)
		}
	}

	wait.For(t, "nobody listens at the endpoint any more", func(context.Context) error {
		c, err := net.Dial("tcp", endpoint)
		if err == nil {
			_ = c.Close()
		}

		return wait.True(err != nil)
	})
}

// reached says which node responds at an address.
func reached(address string) string {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return ""
	}

	defer c.Close()

	return line(c)
}

func line(c net.Conn) string {
	_ = c.SetDeadline(wait.Now().Add(time.Minute))
	_, _ = c.Write([]byte("who\n"))
	s, _ := bufio.NewReader(c).ReadString('\n')

	return strings.TrimSpace(s)
}

// answer stands in for an API server.
func answer(t *testing.T, address string) {
	t.Helper()

	l, err := net.Listen("tcp", address+":6443")
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = l.Close() })

	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}

			go func() {
				defer c.Close()

				for in := bufio.NewScanner(c); in.Scan(); {
					_, _ = fmt.Fprintln(c, address)
				}
			}()
		}
	}()
}

func newInput(t *testing.T, endpoint string) *generate.Input {
	t.Helper()

	contract, err := config.ParseContractFromVersion("v1.13.9")
	if err != nil {
		t.Fatal(err)
	}

	bundle, err := pki.Machinery()
	if err != nil {
		t.Fatal(err)
	}

	input, err := generate.NewInput("test", endpoint, "1.36.2", generate.WithVersionContract(contract),
		generate.WithSecretsBundle(bundle),
		generate.WithInstallDisk("/dev/sda"))
	if err != nil {
		t.Fatal(err)
	}

	return input
}

func configure(t *testing.T, n *node.Node, endpoint string) {
	t.Helper()
	apply(t, n, newInput(t, endpoint), machinetype.TypeControlPlane)
}

// apply gives a machine in maintenance mode its config and waits until it has booted with it.
func apply(t *testing.T, n *node.Node, input *generate.Input, as machinetype.Type) {
	t.Helper()

	cfg, err := input.Config(as)
	if err != nil {
		t.Fatal(err)
	}

	data, err := cfg.Bytes()
	if err != nil {
		t.Fatal(err)
	}

	c, err := talosclient.New(t.Context(), talosclient.WithEndpoints(n.Address()),
		talosclient.WithTLSConfig(&tls.Config{InsecureSkipVerify: true}))
	if err != nil {
		t.Fatal(err)
	}

	defer c.Close()

	wait.For(t, "the machine takes its config", func(ctx context.Context) error {
		_, err := c.ApplyConfiguration(ctx, &machine.ApplyConfigurationRequest{Data: data})

		return err
	})

	wait.For(t, "the machine is installed and has booted", shows(n, func(s node.Status) bool {
		return s.Installed && s.MachineType == as.String() && s.Stage == "booting" || s.Stage == "running"
	}))
}
