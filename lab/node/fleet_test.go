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
	"github.com/talos-operator/talos-operator/test/loopback"
	"github.com/talos-operator/talos-operator/test/pki"
	"github.com/talos-operator/talos-operator/test/wait"
)

const (
	// attempt bounds one try of several: a call to a service that does not run hangs, and the next one may not.
	attempt = 2 * time.Second
	// stuck ends a call that hangs where it must be answered. It says nothing about how long the answer may take.
	stuck = 10 * time.Minute
)

// fleet is a few machines that share a discovery service, and the configs of one cluster.
type fleet struct {
	t        *testing.T
	subnet   string
	registry *node.Registry
	input    *generate.Input
	talos    *clientconfig.Config
	options  node.Options
}

// newFleet is a fleet in a subnet of its own; its machines run real etcd and Kubernetes unless modelled.
func newFleet(t *testing.T, modelled bool) *fleet {
	t.Helper()

	t.Logf("lab seed %d", node.Seed())

	f := &fleet{t: t, subnet: loopback.Subnet(t), registry: node.NewRegistry()}
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

func (f *fleet) address(i int) string { return fmt.Sprintf("%s.%d", f.subnet, i) }

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

	defer c.Close()

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

// on is the fleet in a part of its test.
func (f *fleet) on(t *testing.T) *fleet {
	part := *f
	part.t = t

	return &part
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

func (f *fleet) stage(n *node.Node, want string) {
	f.t.Helper()
	wait.For(f.t, n.Name()+" reaches stage "+want, shows(n, func(s node.Status) bool { return s.Stage == want }))
}

func (f *fleet) ready(nodes ...*node.Node) {
	f.t.Helper()

	for _, n := range nodes {
		wait.For(f.t, n.Name()+" is running and ready", shows(n, func(s node.Status) bool {
			return s.Stage == "running" && s.Ready
		}))
	}
}

// service is what a machine says about one of its services.
type service struct {
	state   string
	healthy bool
	// messages of its events, oldest first.
	messages []string
}

func (f *fleet) service(ctx context.Context, c *client.Client, id string) (service, error) {
	ctx, cancel := context.WithTimeout(ctx, attempt)
	defer cancel()

	list, err := c.ServiceInfo(ctx, id)
	if err != nil {
		return service{}, err
	}

	if len(list) != 1 {
		return service{}, fmt.Errorf("%d services are called %s", len(list), id)
	}

	s := service{state: list[0].Service.GetState(), healthy: list[0].Service.GetHealth().GetHealthy()}
	for _, e := range list[0].Service.GetEvents().GetEvents() {
		s.messages = append(s.messages, e.GetMsg())
	}

	return s, nil
}

// serviceShows waits for what a machine says about a service.
func (f *fleet) serviceShows(what string, c *client.Client, id string, ok func(service) bool) {
	f.t.Helper()
	wait.For(f.t, what, func(ctx context.Context) error {
		s, err := f.service(ctx, c, id)
		if err == nil && !ok(s) {
			err = fmt.Errorf("%+v", s)
		}

		return err
	})
}

// preparing waits until a control-plane node waits for its bootstrap.
func (f *fleet) preparing(n *node.Node) *client.Client {
	f.t.Helper()

	c := f.client(n)
	f.serviceShows(n.Name()+" waits for etcd", c, "etcd", func(s service) bool {
		return s.state == "Preparing" && slices.Contains(s.messages, "Running pre state")
	})

	return c
}

// membersNow returns the names of the voting members that a node sees, within a time.
func membersNow(ctx context.Context, c *client.Client, local bool, limit time.Duration) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()

	resp, err := c.EtcdMemberList(ctx, &machine.EtcdMemberListRequest{QueryLocal: local})
	if err != nil {
		return nil, err
	}

	if len(resp.GetMessages()) != 1 {
		return nil, fmt.Errorf("%d answers", len(resp.GetMessages()))
	}

	names := []string{}

	for _, m := range resp.GetMessages()[0].GetMembers() {
		if !m.GetIsLearner() {
			names = append(names, m.GetHostname())
		}
	}

	slices.Sort(names)

	return names, nil
}

// members are the voting members that a node sees.
func (f *fleet) members(c *client.Client, local bool) []string {
	f.t.Helper()

	names, err := membersNow(f.t.Context(), c, local, stuck)
	if err != nil {
		f.t.Errorf("listing members: %v", err)
	}

	return names
}

// sees makes a check of the voting members that a node sees.
func sees(c *client.Client, want ...string) func(context.Context) error {
	return func(ctx context.Context) error {
		got, err := membersNow(ctx, c, true, attempt)
		if err == nil && !slices.Equal(got, want) {
			err = fmt.Errorf("it sees %q", got)
		}

		return err
	}
}

// version asks a machine for its version over a new connection, within a time.
func (f *fleet) version(ctx context.Context, n *node.Node, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()

	_, err := f.client(n).Version(ctx)

	return err
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
		wait.For(f.t, nodes[i].Name()+" sees all members", sees(c, names...))
	}

	f.ready(nodes...)

	return clients
}
