package conformance

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"path/filepath"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	talosclient "github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	machinetype "github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/talos-operator/talos-operator/lab/node"
)

// Options say where the compared nodes live.
type Options struct {
	// Dir is an empty directory for the nodes' disks.
	Dir string
	// Assets is the folder with etcd, etcdutl and kube-apiserver.
	Assets string
	// Subnet is the /24 of loopback addresses that the nodes take, for example 127.35.1.0/24.
	Subnet netip.Prefix
	// Log receives what the nodes print; nil discards it.
	Log io.Writer
}

// kubernetesVersion is what the recorded clusters ran.
const kubernetesVersion = "1.36.3"

// bootPatience is how long a node may take to reach a state. Three voting etcd members take longest: they join as
// learners, one after the other.
const bootPatience = 4 * time.Minute

// fleet is a handful of lab nodes that belong to one or no cluster.
type fleet struct {
	o        Options
	registry *node.Registry
	nodes    []*node.Node
	bundle   *secrets.Bundle
	roles    map[string]*tls.Config
	// configs that were sent, by address.
	configs map[string][]byte
}

func newFleet(o Options) (*fleet, error) {
	bundle, err := secrets.NewBundle(secrets.NewClock(), config.TalosVersionCurrent)
	if err != nil {
		return nil, fmt.Errorf("making the secrets of a cluster: %w", err)
	}

	e := &fleet{o: o, registry: node.NewRegistry(), bundle: bundle, configs: map[string][]byte{}}

	if e.roles, err = e.credentials(); err != nil {
		return nil, err
	}

	return e, nil
}

// credentials makes a client certificate for each role that was asked.
func (e *fleet) credentials() (map[string]*tls.Config, error) {
	roles := map[string]*tls.Config{anonymous: withoutCA()}

	for name, r := range map[string]role.Role{
		"reader": role.Reader, "operator": role.Operator, "etcd-backup": role.EtcdBackup, "admin": role.Admin,
	} {
		pair, err := e.bundle.GenerateTalosAPIClientCertificate(role.MakeSet(r))
		if err != nil {
			return nil, fmt.Errorf("making the certificate of a %s: %w", name, err)
		}

		cert, err := tls.X509KeyPair(pair.Crt, pair.Key)
		if err != nil {
			return nil, fmt.Errorf("loading the certificate of a %s: %w", name, err)
		}

		roles[name] = &tls.Config{
			RootCAs: pool(e.bundle.Certs.OS.Crt), Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS13,
		}
	}

	return roles, nil
}

// boot powers a new machine on and waits for maintenance mode.
func (e *fleet) boot(ctx context.Context, name string, host byte) (*node.Node, error) {
	address := e.o.Subnet.Masked().Addr().As4()
	address[3] = host

	n, err := node.New(node.Options{
		Name: name, Address: netip.AddrFrom4(address).String(), Dir: filepath.Join(e.o.Dir, fmt.Sprintf("%s-%d", name, host)),
		Assets: e.o.Assets, Cluster: e.registry, Log: e.o.Log,
	})
	if err != nil {
		return nil, fmt.Errorf("making the node %s: %w", name, err)
	}

	e.nodes = append(e.nodes, n)

	if err := n.PowerOn(ctx); err != nil {
		return nil, fmt.Errorf("powering %s on: %w", name, err)
	}

	return n, await(ctx, "maintenance mode of "+name, func() bool {
		status := n.Status()

		return status.Stage == "maintenance" && status.Ready
	})
}

// configure gives a machine its config, as a person does with the official client.
func (e *fleet) configure(ctx context.Context, n, first *node.Node, typ machinetype.Type) error {
	input, err := generate.NewInput(
		"conformance", "https://"+first.Address()+":6443", kubernetesVersion,
		generate.WithSecretsBundle(e.bundle), generate.WithInstallDisk("/dev/sda"),
	)
	if err != nil {
		return fmt.Errorf("preparing the machine config of %s: %w", n.Name(), err)
	}

	cfg, err := input.Config(typ)
	if err != nil {
		return fmt.Errorf("generating the machine config of %s: %w", n.Name(), err)
	}

	data, err := cfg.Bytes()
	if err != nil {
		return fmt.Errorf("encoding the machine config of %s: %w", n.Name(), err)
	}

	e.configs[n.Address()] = data

	return apply(ctx, n, data, withoutCA())
}

// configureAgain sends a node the config that it has. The recorded nodes were in the boot in which they got theirs, and
// show it as the persistent one; the lab's reboot when they have installed it.
func (e *fleet) configureAgain(ctx context.Context, n *node.Node) error {
	return apply(ctx, n, e.configs[n.Address()], e.roles["admin"])
}

func apply(ctx context.Context, n *node.Node, data []byte, credentials *tls.Config) error {
	c, err := talosclient.New(ctx, talosclient.WithEndpoints(n.Address()), talosclient.WithTLSConfig(credentials))
	if err != nil {
		return fmt.Errorf("connecting to %s: %w", n.Name(), err)
	}
	defer c.Close()

	_, err = c.ApplyConfiguration(ctx, &machine.ApplyConfigurationRequest{
		Data: data, Mode: machine.ApplyConfigurationRequest_AUTO,
	})
	if err != nil {
		return fmt.Errorf("configuring %s: %w", n.Name(), err)
	}

	return nil
}

// bootstrap asks a node to start the cluster's etcd, as often as it says that it is too early.
func (e *fleet) bootstrap(ctx context.Context, n *node.Node) error {
	c, err := talosclient.New(ctx, talosclient.WithEndpoints(n.Address()), talosclient.WithTLSConfig(e.roles["admin"]))
	if err != nil {
		return fmt.Errorf("connecting to %s: %w", n.Name(), err)
	}
	defer c.Close()

	var last error

	err = await(ctx, "bootstrap of "+n.Name(), func() bool {
		last = c.Bootstrap(ctx, &machine.BootstrapRequest{})

		return last == nil
	})

	return errors.Join(err, last)
}

// close ends all nodes.
func (e *fleet) close() {
	for _, n := range e.nodes {
		n.Kill()
	}
}

// await looks again and again until something is so.
func await(ctx context.Context, what string, done func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, bootPatience)
	defer cancel()

	err := wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(context.Context) (bool, error) {
		return done(), nil
	})
	if err != nil {
		return fmt.Errorf("waiting for the %s: %w", what, err)
	}

	return nil
}
