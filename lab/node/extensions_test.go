package node_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	configmachine "github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"

	"github.com/talos-operator/talos-operator/lab/node"
	"github.com/talos-operator/talos-operator/test/wait"
)

// nutClient is a document that configures the service of an extension.
func nutClient(content string) string {
	return "apiVersion: v1alpha1\nkind: ExtensionServiceConfig\nname: nut-client\n" +
		"configFiles: [{mountPath: /etc/upsmon.conf, content: " + content + "}]\n"
}

// TestExtensionServices: the extensions of a schematic bring their services. One that needs a configuration holds up the
// boot until it has one, and starts anew when that changes; one that needs none runs at once.
func TestExtensionServices(t *testing.T) {
	t.Parallel()

	const id = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

	installer := "machine: {install: {image: 'factory.talos.dev/metal-installer/" + id + ":v1.13.9'}}"

	f := newFleet(t, true)
	n := f.boot(1, func(o *node.Options) {
		o.Schematics = map[string][]string{id: {"qemu-guest-agent", "nut-client", "gvisor"}}
	})

	f.first(n, f.render(configmachine.TypeControlPlane, installer))

	c := f.client(n)
	runs := func(s service) bool { return s.state == "Running" }
	apply := func(patches ...string) {
		t.Helper()

		if _, err := c.ApplyConfiguration(t.Context(), &machine.ApplyConfigurationRequest{
			Data: f.render(configmachine.TypeControlPlane, append(patches, installer)...),
			Mode: machine.ApplyConfigurationRequest_NO_REBOOT,
		}); err != nil {
			t.Fatal(err)
		}
	}

	f.serviceShows("it waits", c, "ext-nut-client", func(s service) bool {
		return s.state == "Waiting" && strings.HasSuffix(s.messages[len(s.messages)-1], "extension service config")
	})
	f.serviceShows("it needs nothing", c, "ext-qemu-guest-agent", runs)

	list, err := safe.StateListAll[*runtime.ExtensionStatus](t.Context(), c.COSI)
	if err != nil || list.Len() != 4 {
		t.Errorf("%d extensions with the schematic: %v", list.Len(), err)
	}

	apply(nutClient("one"))
	f.serviceShows("it has what it waits for", c, "ext-nut-client", runs)

	events := func() int {
		t.Helper()

		s, err := f.service(t.Context(), c, "ext-nut-client")
		if err != nil {
			t.Fatal(err)
		}

		return len(s.messages)
	}

	before := events()

	apply(nutClient("one"), "machine: {nodeLabels: {a: b}}")

	if after := events(); after != before {
		t.Errorf("it started anew for something else: %d events after %d", after, before)
	}

	apply(nutClient("two"))
	f.serviceShows("it starts anew", c, "ext-nut-client", func(s service) bool {
		return runs(s) && len(s.messages) > before && slices.Contains(s.messages[before:], "Service finished successfully")
	})
}

// TestVirtualIP: one of the control-plane nodes with a working etcd has the virtual IP, and another one gets it once that
// is gone, or no longer has it in its config.
func TestVirtualIP(t *testing.T) {
	t.Parallel()

	f := newFleet(t, true)
	vip := f.address(100)
	patch := "apiVersion: v1alpha1\nkind: LinkConfig\nname: eth0\n---\napiVersion: v1alpha1\nkind: Layer2VIPConfig\n" +
		"name: " + vip + "\nlink: eth0\n"

	nodes := []*node.Node{f.boot(1), f.boot(2), f.boot(3)}

	for _, n := range nodes {
		f.first(n, f.render(configmachine.TypeControlPlane, patch))
	}

	owns := func(n *node.Node) error {
		_, err := safe.StateGetByID[*network.AddressStatus](t.Context(), f.client(n).COSI, "eth0/"+vip+"/32")

		return err
	}

	if err := owns(nodes[0]); err == nil {
		t.Error("there is a virtual IP without etcd")
	}

	c := f.preparing(nodes[0])
	if err := c.Bootstrap(t.Context(), &machine.BootstrapRequest{}); err != nil {
		t.Fatal(err)
	}

	f.ready(nodes...)

	owner := func(what string, among ...*node.Node) (out *node.Node) {
		t.Helper()
		wait.For(t, what, func(context.Context) error {
			var all []string

			for _, n := range among {
				if owns(n) == nil {
					all, out = append(all, n.Name()), n
				}
			}

			if len(all) != 1 {
				return fmt.Errorf("%v have it", all)
			}

			return nil
		})

		return out
	}

	first := owner("one has it", nodes...)
	first.Kill()

	rest := slices.DeleteFunc(slices.Clone(nodes), func(n *node.Node) bool { return n == first })
	second := owner("another one has it", rest...)

	if _, err := f.client(second).ApplyConfiguration(t.Context(), &machine.ApplyConfigurationRequest{
		Data: f.render(configmachine.TypeControlPlane), Mode: machine.ApplyConfigurationRequest_NO_REBOOT,
	}); err != nil {
		t.Fatal(err)
	}

	if third := owner("the last one has it", rest...); third == second {
		t.Errorf("%s still has it", third.Name())
	}
}
