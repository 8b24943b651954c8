package talconfig

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/talos-operator/talos-operator/internal/machineconfig"
	"github.com/talos-operator/talos-operator/internal/safety"
	"github.com/talos-operator/talos-operator/internal/talos"
)

// work changes one node after the other. The order of the control planes is computed anew each time: the leader moves.
func (d *drive) work(ctx context.Context, due []*target, so *tally) error {
	for len(due) > 0 {
		if err := d.authenticate(); err != nil {
			return err
		}

		t := next(due, d.collect(ctx, true))

		if err := d.change(ctx, t); err != nil {
			return t.ended(ctx, err, fmt.Sprintf("%d of %d nodes were changed, and no other one is", so.done, so.total),
				t.left())
		}

		so.done++
		due = slices.DeleteFunc(due, func(other *target) bool { return other == t })

		d.say("%s is done (%d of %d).", t.Hostname, so.done, so.total)
	}

	return nil
}

// next are control planes before workers.
func next(due []*target, nodes []safety.Node) *target {
	var planes []string

	for _, t := range due {
		if t.ControlPlane {
			planes = append(planes, t.Hostname)
		}
	}

	if len(planes) == 0 {
		return due[0]
	}

	first := safety.Order(nodes, planes)[0]

	return due[slices.IndexFunc(due, func(t *target) bool { return t.Hostname == first })]
}

const (
	// poll is how often a node is asked whether it has become healthy.
	poll = time.Second
	// steady is how often in a row it has to be: services restart a moment after the node has taken a config.
	steady = 4
)

// until waits for a check to pass, several times in a row. The error has what it found last.
func (d *drive) until(ctx context.Context, what string, times int, check func(context.Context) error) error {
	var last error

	passed := 0

	err := wait.PollUntilContextTimeout(ctx, poll, d.timeout, true, func(ctx context.Context) (bool, error) {
		err := check(ctx)
		if passed++; err != nil {
			passed = 0
		}

		if last == nil || !isCutShort(ctx) {
			last = err
		}

		return passed >= times, nil
	})

	switch {
	case err == nil:
		return nil
	case last == nil:
		return fmt.Errorf("%s: %w", what, err)
	}

	return fmt.Errorf("%s: %w", what, last)
}

// isCutShort reports whether a check has ended because the time is over, so that it has found nothing of its own. Nodes
// give up on a call at its deadline, which may be a moment before the context ends here.
func isCutShort(ctx context.Context) bool {
	const moment = 200 * time.Millisecond

	deadline, has := ctx.Deadline()

	return ctx.Err() != nil || has && time.Until(deadline) < moment
}

// permit asks the safety rules whether a node may be changed now. Even what needs no reboot restarts services.
func (d *drive) permit(ctx context.Context, t *target) error {
	if t.isEarly {
		return d.permitEarly(ctx)
	}

	nodes := d.collect(ctx, true)

	if !t.ControlPlane {
		if health := safety.AssessEtcd(nodes); !health.Healthy {
			return errors.New(health.Message)
		}

		return nil
	}

	verdict := safety.Permit(nodes, "", safety.Disruption{Act: safety.ActReboot, Machine: t.Hostname})
	if verdict.Action != safety.Proceed {
		return errors.New(verdict.Message)
	}

	return nil
}

// change gives a node its config, and waits until it is healthy with it. One that an earlier run has left cordoned only
// has to be healthy.
func (d *drive) change(ctx context.Context, t *target) error {
	boot := ""

	if len(t.changes) > 0 {
		var err error
		if boot, err = d.renew(ctx, t); err != nil {
			return err
		}

		t.begin("waiting for it to become healthy", "it has the new config")
	} else {
		t.begin("waiting for it to be healthy", "it was not changed")
	}

	if err := d.until(ctx, "it has not become healthy with the new config", steady, func(ctx context.Context) error {
		return d.settled(ctx, t, boot)
	}); err != nil {
		return err
	}

	return d.release(ctx, t)
}

// renew sends a node its config, and returns the boot in which it got it.
func (d *drive) renew(ctx context.Context, t *target) (string, error) {
	t.begin("waiting until it may be changed", nothingSent)

	if err := d.permitted(ctx, t); err != nil {
		return "", err
	}

	if t.reboots && !d.drain.isOff && !t.isEarly {
		t.begin("draining it", nothingSent)

		if err := d.empty(ctx, t); err != nil {
			return "", err
		}

		// While the pods left, etcd may have changed.
		if err := d.permitted(ctx, t); err != nil {
			return "", err
		}
	}

	node, err := d.pool.Node(ctx, d.ref(t))
	if err != nil {
		return "", err
	}

	// The plan that was confirmed is of this config.
	live, err := node.MachineConfig(ctx)
	if err != nil {
		return "", err
	}

	if difference, err := machineconfig.Diff(t.live, live); err != nil || !difference.Equal() {
		return "", errors.Join(errors.New("its config was changed by another one since the plan was made"), err)
	}

	boot, err := node.BootID(ctx)
	if err != nil {
		return "", err
	}

	return boot, d.send(ctx, t, node)
}

// permitted waits until the safety rules permit the change of a node.
func (d *drive) permitted(ctx context.Context, t *target) error {
	return d.until(ctx, "it may not be changed now", 1, func(ctx context.Context) error { return d.permit(ctx, t) })
}

// tryTimeout is when a node rolls a config back that may have cut it off.
const tryTimeout = 2 * time.Minute

// send applies the config in the way that the plan says: a node that would reboot against the plan refuses.
func (d *drive) send(ctx context.Context, t *target, node *talos.Node) error {
	d.say("%s: applying %s.", t.Hostname, strings.Join(t.fields(), ", "))
	t.begin("sending its config", maybeSent)
	t.sent = d.drain.now()

	if t.reboots {
		d.forfeit(ctx, t, node)

		_, err := node.Apply(ctx, t.desired, talos.ApplyOptions{Mode: talos.ApplyReboot})

		return err
	}

	if len(machineconfig.AffectsConnection(t.changes)) > 0 {
		if err := d.try(ctx, t, node); err != nil {
			return err
		}

		t.begin("sending its config", maybeSent)
	}

	_, err := node.Apply(ctx, t.desired, talos.ApplyOptions{Mode: talos.ApplyNoReboot})

	return err
}

// forfeit moves the leadership of etcd away from a node that is about to reboot. A leader that stops without that costs
// the cluster only one election timeout. A single member can only keep it.
func (d *drive) forfeit(ctx context.Context, t *target, node *talos.Node) {
	if !t.ControlPlane || t.isEarly || len(d.planes()) == 1 {
		return
	}

	if err := node.ForfeitLeadership(ctx); err != nil {
		d.warn("Warning: %s: moving the leadership of etcd failed; it reboots all the same: %v", t.Hostname, err)
	}
}

// try lets a node try a config, and returns once it responds with it over a new connection.
func (d *drive) try(ctx context.Context, t *target, node *talos.Node) error {
	if _, err := node.Apply(ctx, t.desired, talos.ApplyOptions{Mode: talos.ApplyTry, TryTimeout: tryTimeout}); err != nil {
		return err
	}

	t.begin("trying its config", fmt.Sprintf("it rolls the config back by itself after %s", tryTimeout))

	ctx, cancel := context.WithTimeout(ctx, tryTimeout/2)
	defer cancel()

	err := d.until(ctx, "it does not respond with the new config", 1, func(ctx context.Context) error {
		return d.reach(ctx, t)
	})
	if err != nil {
		return fmt.Errorf("%w; it rolls the config back by itself after %s", err, tryTimeout)
	}

	return nil
}

// settled reports what a node lacks to be healthy with its new config.
func (d *drive) settled(ctx context.Context, t *target, boot string) error {
	node, err := d.pool.Node(ctx, d.ref(t))
	if err != nil {
		return err
	}

	is, err := node.BootID(ctx)

	switch {
	case err != nil && len(t.Addresses()) > 1 && d.reach(ctx, t) == nil:
		return errors.New("it was asked at another address than before")
	case err != nil:
		return err
	case t.reboots && is == boot:
		return errors.New("it has not rebooted yet")
	}

	live, err := node.MachineConfig(ctx)
	if err != nil {
		return err
	}

	if difference, err := machineconfig.Diff(live, t.desired); err != nil || !difference.Equal() {
		return errors.Join(errors.New("it does not run the new config"), err)
	}

	if err := d.health(ctx, t, node); err != nil || t.isEarly {
		return err
	}

	if health := safety.AssessEtcd(d.collect(ctx, false)); !health.Healthy {
		return errors.New(health.Message)
	}

	return d.registered(ctx, t, is)
}

// serviceRunning is the state of a service that runs.
const serviceRunning = "Running"
