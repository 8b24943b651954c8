package node_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	machineryconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	configmachine "github.com/siderolabs/talos/pkg/machinery/config/machine"

	"github.com/talos-operator/talos-operator/lab/node"
	"github.com/talos-operator/talos-operator/lab/process"
	"github.com/talos-operator/talos-operator/test/pki"
)

// fleetLimit bounds every wait of a fleet.
const fleetLimit = 90 * time.Second

// fleet is a few machines that share a discovery service, and the configs of one cluster.
type fleet struct {
	t        *testing.T
	third    int
	registry *node.Registry
	input    *generate.Input
	talos    *clientconfig.Config
	options  node.Options
}

// newFleet uses the addresses 127.31.third.x; its machines run real etcd and Kubernetes unless modelled.
func newFleet(t *testing.T, third int, modelled bool) *fleet {
	t.Helper()

	f := &fleet{t: t, third: third, registry: node.NewRegistry()}
	f.options = node.Options{Modelled: modelled, Cluster: f.registry}

	if !modelled {
		assets, err := process.Assets()
		if err != nil {
			t.Fatal(err)
		}

		f.options.Assets = assets
	}

	bundle, err := pki.Machinery()
	if err != nil {
		t.Fatal(err)
	}

	input, err := generate.NewInput("fleet", "https://"+f.address(1)+":6443", "1.36.2",
		generate.WithSecretsBundle(bundle),
		generate.WithVersionContract(machineryconfig.TalosVersion1_13), generate.WithInstallDisk("/dev/sda"),
		generate.WithInstallImage("ghcr.io/siderolabs/installer:v1.13.9"),
		generate.WithEndpointList([]string{f.address(1)}))
	if err != nil {
		t.Fatal(err)
	}

	f.input = input

	if f.talos, err = input.Talosconfig(); err != nil {
		t.Fatal(err)
	}

	return f
}

func (f *fleet) address(i int) string { return fmt.Sprintf("127.31.%d.%d", f.third, i) }

// boot powers a machine on and waits for maintenance mode.
func (f *fleet) boot(i int, change ...func(*node.Options)) *node.Node {
	f.t.Helper()

	o := f.options
	o.Name, o.Address, o.Dir = fmt.Sprintf("n%d", i), f.address(i), f.t.TempDir()

	for _, c := range change {
		c(&o)
	}

	n, err := node.New(o)
	if err != nil {
		f.t.Fatal(err)
	}

	if err := n.PowerOn(f.t.Context()); err != nil {
		f.t.Fatal(err)
	}

	f.t.Cleanup(n.Kill)
	f.stage(n, "maintenance")

	return n
}

// render makes a machine config of the cluster.
func (f *fleet) render(typ configmachine.Type, patches ...string) []byte {
	f.t.Helper()

	var cfg machineryconfig.Provider

	cfg, err := f.input.Config(typ)
	if err != nil {
		f.t.Fatal(err)
	}

	for _, text := range patches {
		patch, err := configpatcher.LoadPatch([]byte(text))
		if err != nil {
			f.t.Fatal(err)
		}

		out, err := configpatcher.Apply(configpatcher.WithConfig(cfg), []configpatcher.Patch{patch})
		if err != nil {
			f.t.Fatal(err)
		}

		if cfg, err = out.Config(); err != nil {
			f.t.Fatal(err)
		}
	}

	data, err := cfg.Bytes()
	if err != nil {
		f.t.Fatal(err)
	}

	if _, err := configloader.NewFromBytes(data); err != nil {
		f.t.Fatal(err)
	}

	return data
}

// first gives a machine in maintenance mode its config.
func (f *fleet) first(n *node.Node, data []byte) {
	f.t.Helper()

	c, err := client.New(f.t.Context(), client.WithEndpoints(n.Address()),
		client.WithTLSConfig(&tls.Config{InsecureSkipVerify: true}))
	if err != nil {
		f.t.Fatal(err)
	}

	defer c.Close() //nolint:errcheck // a test's client

	if _, err := c.ApplyConfiguration(f.t.Context(), &machine.ApplyConfigurationRequest{
		Data: data, Mode: machine.ApplyConfigurationRequest_AUTO,
	}); err != nil {
		f.t.Fatal(err)
	}
}

// client is the unmodified official client with the cluster's admin certificate.
func (f *fleet) client(n *node.Node) *client.Client {
	f.t.Helper()

	c, err := client.New(f.t.Context(), client.WithConfig(f.talos), client.WithEndpoints(n.Address()))
	if err != nil {
		f.t.Fatal(err)
	}

	f.t.Cleanup(func() { _ = c.Close() })

	return c
}

// eventually waits for a condition.
func (f *fleet) eventually(what string, check func(ctx context.Context) bool) {
	f.t.Helper()

	ctx, cancel := context.WithTimeout(f.t.Context(), fleetLimit)
	defer cancel()

	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()

	for !check(ctx) {
		select {
		case <-ctx.Done():
			f.t.Fatalf("%s: not in time", what)
		case <-tick.C:
		}
	}
}

func (f *fleet) stage(n *node.Node, want string) {
	f.t.Helper()
	f.eventually(n.Name()+" reaches stage "+want, func(context.Context) bool { return n.Status().Stage == want })
}

func (f *fleet) ready(nodes ...*node.Node) {
	f.t.Helper()

	for _, n := range nodes {
		f.eventually(n.Name()+" is running and ready", func(context.Context) bool {
			st := n.Status()

			return st.Stage == "running" && st.Ready
		})
	}
}

// service returns state, health and messages of a service, oldest first.
func (f *fleet) service(c *client.Client, id string) (state string, healthy bool, messages []string) {
	f.t.Helper()

	ctx, cancel := context.WithTimeout(f.t.Context(), 5*time.Second)
	defer cancel()

	list, err := c.ServiceInfo(ctx, id)
	if err != nil || len(list) != 1 {
		return "", false, nil
	}

	for _, e := range list[0].Service.GetEvents().GetEvents() {
		messages = append(messages, e.GetMsg())
	}

	return list[0].Service.GetState(), list[0].Service.GetHealth().GetHealthy(), messages
}

// preparing waits until a control-plane node waits for its bootstrap.
func (f *fleet) preparing(n *node.Node) *client.Client {
	f.t.Helper()

	c := f.client(n)
	f.eventually(n.Name()+" waits for etcd", func(context.Context) bool {
		state, _, messages := f.service(c, "etcd")

		return state == "Preparing" && slices.Contains(messages, "Running pre state")
	})

	return c
}

// members returns the names of the voting members that a node sees.
func (f *fleet) members(c *client.Client, local bool) []string {
	ctx, cancel := context.WithTimeout(f.t.Context(), 2*time.Second)
	defer cancel()

	resp, err := c.EtcdMemberList(ctx, &machine.EtcdMemberListRequest{QueryLocal: local})
	if err != nil || len(resp.GetMessages()) != 1 {
		return nil
	}

	var names []string

	for _, m := range resp.GetMessages()[0].GetMembers() {
		if !m.GetIsLearner() {
			names = append(names, m.GetHostname())
		}
	}

	slices.Sort(names)

	return names
}

// found bootstraps a cluster of control-plane nodes and waits until all of them vote.
func (f *fleet) found(nodes ...*node.Node) []*client.Client {
	f.t.Helper()

	var (
		clients []*client.Client
		names   []string
	)

	for _, n := range nodes {
		f.first(n, f.render(configmachine.TypeControlPlane))
	}

	for _, n := range nodes {
		clients, names = append(clients, f.preparing(n)), append(names, n.Name())
	}

	if err := clients[0].Bootstrap(f.t.Context(), &machine.BootstrapRequest{}); err != nil {
		f.t.Fatal(err)
	}

	slices.Sort(names)

	for i, c := range clients {
		f.eventually(nodes[i].Name()+" sees all members", func(context.Context) bool {
			return slices.Equal(f.members(c, true), names)
		})
	}

	f.ready(nodes...)

	return clients
}
