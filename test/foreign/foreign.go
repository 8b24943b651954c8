// Package foreign makes clusters that the operator did not make: with the machinery library and the official client
// alone, as talosctl gen config, apply-config and bootstrap do.
package foreign

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/safe"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	talosclient "github.com/siderolabs/talos/pkg/machinery/client"
	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	machineryconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	configmachine "github.com/siderolabs/talos/pkg/machinery/config/machine"
	configres "github.com/siderolabs/talos/pkg/machinery/resources/config"
	runtimeres "github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"go.yaml.in/yaml/v4"

	"github.com/talos-operator/talos-operator/test/pki"
	"github.com/talos-operator/talos-operator/test/wait"
)

// Roles of machines.
const (
	ControlPlane = configmachine.TypeControlPlane
	Worker       = configmachine.TypeWorker
)

// Cluster is one that exists on its nodes only.
type Cluster struct {
	// Name of the cluster.
	Name string
	// Secrets are its PKI.
	Secrets *secrets.Bundle

	t       *testing.T
	input   *generate.Input
	nodes   []string
	patches map[configmachine.Type][]string
}

// New makes the PKI of a cluster whose first control-plane node is at an address.
func New(t *testing.T, name, address string, options ...generate.Option) *Cluster {
	t.Helper()

	bundle, err := pki.Machinery()
	if err != nil {
		t.Fatal(err)
	}

	options = append([]generate.Option{
		generate.WithSecretsBundle(bundle), generate.WithVersionContract(machineryconfig.TalosVersion1_13),
		generate.WithInstallDisk("/dev/sda"), generate.WithInstallImage("ghcr.io/siderolabs/installer:v1.13.9"),
		generate.WithEndpointList([]string{address}),
	}, options...)

	in, err := generate.NewInput(name, "https://"+address+":6443", "1.36.2", options...)
	if err != nil {
		t.Fatal(err)
	}

	return &Cluster{Name: name, Secrets: bundle, t: t, input: in, patches: map[configmachine.Type][]string{}}
}

// Patch adds a patch for the machines of a role that join from now on.
func (c *Cluster) Patch(role configmachine.Type, patch string) {
	c.patches[role] = append(c.patches[role], patch)
}

// Config is the machine config of a role, with further patches of one machine.
func (c *Cluster) Config(role configmachine.Type, patches ...string) []byte {
	c.t.Helper()

	cfg, err := c.input.Config(role)
	if err != nil {
		c.t.Fatal(err)
	}

	var loaded []configpatcher.Patch

	for _, text := range append(append([]string{}, c.patches[role]...), patches...) {
		p, err := configpatcher.LoadPatch([]byte(text))
		if err != nil {
			c.t.Fatal(err)
		}

		loaded = append(loaded, p)
	}

	out, err := configpatcher.Apply(configpatcher.WithConfig(cfg), loaded)
	if err != nil {
		c.t.Fatal(err)
	}

	data, err := out.Bytes()
	if err != nil {
		c.t.Fatal(err)
	}

	return data
}

// Join sends the config of a role to the machine in maintenance mode at an address.
func (c *Cluster) Join(role configmachine.Type, address string, patches ...string) {
	c.t.Helper()

	client, err := talosclient.New(c.t.Context(), talosclient.WithEndpoints(address),
		talosclient.WithTLSConfig(&tls.Config{InsecureSkipVerify: true}))
	if err != nil {
		c.t.Fatal(err)
	}
	defer client.Close()

	config := c.Config(role, patches...)

	c.eventually("the config of "+address, func(ctx context.Context) error {
		_, err := client.ApplyConfiguration(ctx, &machineapi.ApplyConfigurationRequest{Data: config})

		return err
	})

	c.nodes = append(c.nodes, address)
}

// Bootstrap starts etcd on a node and waits for a number of voting members, and until all nodes that joined run.
func (c *Cluster) Bootstrap(address string, members int) {
	c.t.Helper()

	client := c.client()
	at := func(ctx context.Context) context.Context { return talosclient.WithNode(ctx, address) }

	c.eventually("the bootstrap", func(ctx context.Context) error {
		return client.Bootstrap(at(ctx), &machineapi.BootstrapRequest{})
	})
	c.eventually("the members of etcd", func(ctx context.Context) error {
		resp, err := client.EtcdMemberList(at(ctx), &machineapi.EtcdMemberListRequest{})
		if err != nil {
			return err
		}

		voting := 0

		for _, m := range resp.GetMessages() {
			for _, e := range m.GetMembers() {
				if e.GetHostname() != "" && !e.GetIsLearner() {
					voting++
				}
			}
		}

		if voting != members {
			return fmt.Errorf("%d vote", voting)
		}

		return nil
	})

	for _, node := range c.nodes {
		c.eventually(node+" runs", func(ctx context.Context) error {
			return running(talosclient.WithNode(ctx, node), client)
		})
	}
}

// running tells by nil that a node has booted: the last one to join is still being installed when the others have
// formed a cluster, and goes away once more.
func running(ctx context.Context, client *talosclient.Client) error {
	status, err := safe.ReaderGetByID[*runtimeres.MachineStatus](ctx, client.COSI, runtimeres.MachineStatusID)
	if err == nil && status.TypedSpec().Stage != runtimeres.MachineStageRunning {
		err = fmt.Errorf("it is %s", status.TypedSpec().Stage)
	}

	return err
}

func (c *Cluster) client() *talosclient.Client {
	c.t.Helper()

	cfg, err := clientconfig.FromBytes(c.Talosconfig())
	if err != nil {
		c.t.Fatal(err)
	}

	client, err := talosclient.New(c.t.Context(), talosclient.WithConfig(cfg))
	if err != nil {
		c.t.Fatal(err)
	}

	c.t.Cleanup(func() { _ = client.Close() })

	return client
}

// Talosconfig is that of an administrator, with the first node as endpoint.
func (c *Cluster) Talosconfig() []byte {
	c.t.Helper()

	cfg, err := c.input.Talosconfig()
	if err != nil {
		c.t.Fatal(err)
	}

	data, err := cfg.Bytes()
	if err != nil {
		c.t.Fatal(err)
	}

	return data
}

// SecretsYAML is the secrets bundle as talosctl gen secrets writes it.
func (c *Cluster) SecretsYAML() []byte {
	c.t.Helper()

	data, err := yaml.Marshal(c.Secrets)
	if err != nil {
		c.t.Fatal(err)
	}

	return data
}

// SendAgain sends machines the config that they run once more.
func (c *Cluster) SendAgain(addresses ...string) {
	c.t.Helper()

	client := c.client()

	for _, address := range addresses {
		c.eventually("the same config for "+address, func(ctx context.Context) error {
			ctx = talosclient.WithNode(ctx, address)

			res, err := safe.ReaderGet[*configres.MachineConfig](ctx, client.COSI, resource.NewMetadata(configres.NamespaceName,
				configres.MachineConfigType, configres.ActiveID, resource.VersionUndefined))
			if err != nil {
				return err
			}

			data, err := res.Container().Bytes()
			if err != nil {
				return err
			}

			_, err = client.ApplyConfiguration(ctx, &machineapi.ApplyConfigurationRequest{
				Data: data, Mode: machineapi.ApplyConfigurationRequest_NO_REBOOT,
			})

			return err
		})
	}
}

// Files writes talosconfig, secrets.yaml and controlplane.yaml to a folder of its own and returns their paths.
func (c *Cluster) Files() (talosconfig, bundle, config string) {
	c.t.Helper()

	dir := c.t.TempDir()

	write := func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			c.t.Fatal(err)
		}

		return path
	}

	return write("talosconfig", c.Talosconfig()), write("secrets.yaml", c.SecretsYAML()),
		write("controlplane.yaml", c.Config(ControlPlane))
}

// Holds tells whether a text holds one of the secrets of the cluster.
func (c *Cluster) Holds(text []byte) bool {
	for _, secret := range []string{
		c.Secrets.Cluster.Secret, c.Secrets.TrustdInfo.Token, c.Secrets.Secrets.BootstrapToken,
		c.Secrets.Secrets.SecretboxEncryptionSecret,
	} {
		if bytes.Contains(text, []byte(secret)) {
			return true
		}
	}

	return bytes.Contains(text, []byte("PRIVATE KEY"))
}

func (c *Cluster) eventually(what string, check func(context.Context) error) {
	c.t.Helper()
	wait.For(c.t, what+" of cluster "+c.Name, check)
}
