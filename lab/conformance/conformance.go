// Package conformance compares lab nodes with what real Talos nodes answered. It takes nodes through the six recorded
// states, asks every call as every role, reads every resource, and says where the lab differs.
package conformance

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/netip"

	machinetype "github.com/siderolabs/talos/pkg/machinery/config/machine"

	"github.com/talos-operator/talos-operator/lab/node"
)

// The recorded states.
const (
	stateMaintenance = "maintenance"
	stateConfigured  = "configured-controlplane"
	stateRunning     = "running-controlplane"
	stateWorker      = "running-worker"
	// Nodes that booted from their disk, and were sent no config since.
	stateRebooted       = "rebooted-controlplane"
	stateRebootedWorker = "rebooted-worker"
)

// Run boots lab nodes into the six recorded states, compares them with the recordings, writes every difference to w
// and ends with the line "N passed, M failed". The error is about running the comparison, not about what it found.
func Run(ctx context.Context, w io.Writer, o Options) (Result, error) {
	d, err := loadDifferences()
	if err != nil {
		return Result{}, err
	}

	r := &report{w: w}

	for _, state := range []struct {
		name string
		run  func(context.Context, *comparison, *fleet) error
	}{
		{stateMaintenance, maintenance},
		{stateConfigured, configured},
		{stateRunning, running},
		{stateWorker, worker},
		{stateRebooted, rebooted},
		{stateRebootedWorker, rebootedWorker},
	} {
		before := r.result

		e, err := newFleet(o)
		if err != nil {
			return r.result, err
		}

		err = state.run(ctx, &comparison{report: r, known: d, state: state.name}, e)
		e.close()

		if err != nil {
			return r.result, fmt.Errorf("comparing a node in state %s: %w", state.name, err)
		}

		r.say("%s: %d passed, %d of them for a listed reason, %d failed", state.name, r.result.Passed-before.Passed,
			r.result.Allowed-before.Allowed, r.result.Failed-before.Failed)
	}

	for _, stale := range d.unused() {
		r.fail("the list of differences has an entry that nothing needs: %s", stale)
	}

	r.say("%d passed, %d failed", r.result.Passed, r.result.Failed)

	return r.result, nil
}

func maintenance(ctx context.Context, c *comparison, e *fleet) error {
	n, err := e.boot(ctx, "n1", 11)
	if err != nil {
		return err
	}

	t := target{address: n.Address(), roles: map[string]*tls.Config{anonymous: withoutCA()}}

	if err := c.resourcesAs(ctx, anonymous, t); err != nil {
		return err
	}

	return c.calls(ctx, t)
}

func configured(ctx context.Context, c *comparison, e *fleet) error {
	n, err := e.boot(ctx, "n1", 21)
	if err != nil {
		return err
	}

	bootID := n.Status().BootID

	if err := e.configure(ctx, n, n, machinetype.TypeControlPlane); err != nil {
		return err
	}

	// It boots twice: the first time it installs, and goes away in the middle of the calls.
	err = await(ctx, "boot of a configured node", func() bool {
		status := n.Status()

		return status.Stage == "booting" && status.BootID != bootID
	})
	if err != nil {
		return err
	}

	t := target{address: n.Address(), roles: e.roles}

	if err := e.answers(ctx, t); err != nil {
		return err
	}

	if err := c.calls(ctx, t); err != nil {
		return err
	}

	return c.power(ctx, e, t, n)
}

func running(ctx context.Context, c *comparison, e *fleet) error {
	nodes, err := e.controlPlane(ctx, 31, "n1", "n2", "n3")
	if err != nil {
		return err
	}

	return c.running(ctx, e, nodes[0])
}

func worker(ctx context.Context, c *comparison, e *fleet) error {
	nodes, err := e.controlPlane(ctx, 41, "n1")
	if err != nil {
		return err
	}

	n, err := e.worker(ctx, nodes[0], 44)
	if err != nil {
		return err
	}

	return c.running(ctx, e, n)
}

func isRunning(n *node.Node) func() bool {
	return func() bool {
		status := n.Status()

		return status.Stage == "running" && status.Ready
	}
}

func (c *comparison) running(ctx context.Context, e *fleet, n *node.Node) error {
	t := target{address: n.Address(), roles: e.roles}

	if err := e.configureAgain(ctx, n); err != nil {
		return err
	}

	return c.compare(ctx, e, t, n)
}

// compare holds a node against the recordings of its state: its resources, and then its calls, some of which end it.
func (c *comparison) compare(ctx context.Context, e *fleet, t target, n *node.Node) error {
	if err := c.resourcesAs(ctx, "admin", t); err != nil {
		return err
	}

	if err := c.calls(ctx, t); err != nil {
		return err
	}

	return c.power(ctx, e, t, n)
}

// answers waits until the node responds to an administrator: it changes its certificate when it is configured.
func (e *fleet) answers(ctx context.Context, t target) error {
	q := question{method: "/machine.MachineService/Version", role: "admin"}

	return await(ctx, "node to answer its administrator", func() bool {
		got, err := ask(ctx, t, []question{q})

		return err == nil && got[q].Code == "OK"
	})
}

func (c *comparison) resourcesAs(ctx context.Context, role string, t target) error {
	conns, closeAll, err := t.connect()
	if err != nil {
		return err
	}
	defer closeAll()

	return c.resources(ctx, conns[role], placeOf(t.address))
}

// power makes the calls that take the node down, which are not refused here, and watches that they do.
func (c *comparison) power(ctx context.Context, e *fleet, t target, n *node.Node) error {
	calls, err := c.powerCalls()
	if err != nil {
		return err
	}

	for _, p := range calls {
		// A node that was just rebooted reaches its stage before its API listens.
		if err := e.answers(ctx, t); err != nil {
			return err
		}

		stage, bootID := n.Status().Stage, n.Status().BootID

		answers, err := ask(ctx, t, []question{p.question})
		if err != nil {
			return err
		}

		c.call(p.question, p.want, answers[p.question])

		if answers[p.question].Code != "OK" {
			continue
		}

		err = await(ctx, p.power+" after "+p.method, func() bool {
			status := n.Status()
			if p.power == "off" {
				return !status.Powered
			}

			return status.Powered && status.BootID != bootID && status.Stage == stage
		})
		if err != nil {
			c.fail("%s: %s as %s was accepted, but nothing happened: %v", c.state, p.method, p.role, err)
		}
	}

	return nil
}

// placeOf says where a lab node is on its network.
func placeOf(address string) place {
	addr := netip.MustParseAddr(address)
	subnet := netip.PrefixFrom(addr, 16).Masked()
	last := subnet.Addr().As4()
	last[2], last[3] = 255, 255

	return place{
		address: address, prefix: "/16", subnet: subnet.String(), broadcast: netip.AddrFrom4(last).String(),
		gateway: subnet.Addr().Next().String(),
	}
}

func withoutCA() *tls.Config {
	// Maintenance mode has no CA.
	return &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}
}

func pool(ca []byte) *x509.CertPool {
	p := x509.NewCertPool()
	p.AppendCertsFromPEM(ca)

	return p
}
