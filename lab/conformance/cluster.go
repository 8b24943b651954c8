package conformance

import (
	"context"
	"fmt"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	talosclient "github.com/siderolabs/talos/pkg/machinery/client"
	machinetype "github.com/siderolabs/talos/pkg/machinery/config/machine"

	"github.com/talos-operator/talos-operator/lab/node"
)

// controlPlane boots, configures and bootstraps control-plane nodes and waits until all of them run.
func (e *fleet) controlPlane(ctx context.Context, host byte, names ...string) ([]*node.Node, error) {
	var nodes []*node.Node

	for i, name := range names {
		n, err := e.boot(ctx, name, host+byte(i))
		if err != nil {
			return nil, err
		}

		nodes = append(nodes, n)

		if err := e.configure(ctx, n, nodes[0], machinetype.TypeControlPlane); err != nil {
			return nil, err
		}
	}

	if err := e.bootstrap(ctx, nodes[0]); err != nil {
		return nil, err
	}

	for _, n := range nodes {
		if err := await(ctx, "control-plane node "+n.Name(), isRunning(n)); err != nil {
			return nil, fmt.Errorf("%w (%+v)", err, n.Status())
		}
	}

	return nodes, nil
}

// cluster is what the rebooted nodes were recorded in: three control-plane nodes and a worker, n1 to n4.
func (e *fleet) cluster(ctx context.Context, host byte) ([]*node.Node, error) {
	nodes, err := e.controlPlane(ctx, host, "n1", "n2", "n3")
	if err != nil {
		return nil, err
	}

	n, err := e.worker(ctx, nodes[0], host+3)

	return append(nodes, n), err
}

// worker boots and configures a worker and waits until it runs.
func (e *fleet) worker(ctx context.Context, first *node.Node, host byte) (*node.Node, error) {
	n, err := e.boot(ctx, "n4", host)
	if err != nil {
		return nil, err
	}

	if err := e.configure(ctx, n, first, machinetype.TypeWorker); err != nil {
		return nil, err
	}

	return n, await(ctx, "worker", isRunning(n))
}

// rebooted compares a control-plane node that has booted from its disk.
func rebooted(ctx context.Context, c *comparison, e *fleet) error {
	nodes, err := e.cluster(ctx, 51)
	if err != nil {
		return err
	}

	return c.rebooted(ctx, e, nodes[0])
}

// rebootedWorker compares a worker that has booted from its disk.
func rebootedWorker(ctx context.Context, c *comparison, e *fleet) error {
	nodes, err := e.cluster(ctx, 61)
	if err != nil {
		return err
	}

	return c.rebooted(ctx, e, nodes[3])
}

func (c *comparison) rebooted(ctx context.Context, e *fleet, n *node.Node) error {
	t := target{address: n.Address(), roles: e.roles}

	if err := e.reboot(ctx, n); err != nil {
		return err
	}

	if err := e.answers(ctx, t); err != nil {
		return err
	}

	return c.compare(ctx, e, t, n)
}

// reboot reboots a running node by its API and waits until it runs again.
func (e *fleet) reboot(ctx context.Context, n *node.Node) error {
	before := n.Status().BootID

	c, err := talosclient.New(ctx, talosclient.WithEndpoints(n.Address()), talosclient.WithTLSConfig(e.roles["admin"]))
	if err != nil {
		return fmt.Errorf("connecting to %s: %w", n.Name(), err)
	}
	defer c.Close()

	if err := c.Reboot(ctx, talosclient.WithRebootMode(machine.RebootRequest_DEFAULT)); err != nil {
		return fmt.Errorf("rebooting %s: %w", n.Name(), err)
	}

	return await(ctx, "reboot of "+n.Name(), func() bool {
		status := n.Status()
		member := status.EtcdMember != "" || status.MachineType != machinetype.TypeControlPlane.String()

		return status.BootID != before && isRunning(n)() && member
	})
}
