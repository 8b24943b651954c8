package talconfig

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/evidence"
	"github.com/talos-operator/talos-operator/internal/machineconfig"
	"github.com/talos-operator/talos-operator/internal/safety"
	model "github.com/talos-operator/talos-operator/internal/talconfig"
	"github.com/talos-operator/talos-operator/internal/talos"
)

// drive changes the nodes of a running cluster.
type drive struct {
	pool    *talos.Pool
	creds   talos.Credentials
	bundle  *clusterstate.Bundle
	timeout time.Duration
	say     func(format string, args ...any)
	nodes   []*target
}

// target is a node, what it runs and what it should run.
type target struct {
	*model.Machine

	config     []byte
	isSelected bool

	// address at which it responded.
	address string
	// live is what it ran when the plan was made, desired what it is sent: its config with the versions that it runs.
	live, desired []byte
	changes       []machineconfig.Change
	kept          []string
	warnings      []string
	reboots       bool
}

func (t *target) role() v1alpha1.Role {
	if t.ControlPlane {
		return v1alpha1.RoleControlPlane
	}

	return v1alpha1.RoleWorker
}

func (t *target) fields() []string {
	return machineconfig.Difference{Changes: t.changes}.Paths()
}

func (t *target) effect() string {
	switch {
	case len(t.changes) == 0:
		return "none"
	case t.reboots:
		return "reboots"
	case len(machineconfig.AffectsConnection(t.changes)) > 0:
		return "no reboot, is tried first"
	}

	return "no reboot"
}

// mostAsked is how many nodes are asked at a time.
const mostAsked = 16

// look asks all nodes what they run, and the selected ones what they would do. It changes nothing.
func (d *drive) look(ctx context.Context) error {
	errs := make([]error, len(d.nodes))
	slots := make(chan struct{}, mostAsked)

	var wg sync.WaitGroup

	for i, t := range d.nodes {
		wg.Go(func() {
			slots <- struct{}{}

			defer func() { <-slots }()

			if err := d.meet(ctx, t); err != nil {
				errs[i] = fmt.Errorf("%s: %w", t.Hostname, err)
			}
		})
	}

	wg.Wait()

	return errors.Join(errs...)
}

func (d *drive) ref(t *target) talos.NodeRef {
	return talos.NodeRef{Key: t.Hostname, Address: t.address, Credentials: d.creds}
}

// meet compares a node with its desired config. The evidence about etcd needs every control plane; a worker that is not
// selected is not asked.
func (d *drive) meet(ctx context.Context, t *target) error {
	if !t.isSelected && !t.ControlPlane {
		return nil
	}

	if err := d.find(ctx, t); err != nil {
		return err
	}

	node, err := d.pool.Node(ctx, d.ref(t))
	if err != nil {
		return err
	}

	if t.live, err = node.MachineConfig(ctx); err != nil {
		return err
	}

	if err := d.checkIdentity(t); err != nil || !t.isSelected {
		return err
	}

	if err := t.compare(); err != nil || len(t.changes) == 0 {
		return err
	}

	answer, err := node.Apply(ctx, t.desired, talos.ApplyOptions{Mode: talos.ApplyAuto, DryRun: true})
	if err != nil {
		return fmt.Errorf("the node refuses the config in a dry run: %w", err)
	}

	t.reboots, t.warnings = answer.Mode == talos.ApplyReboot, answer.Warnings

	return nil
}

// find finds the address at which a node responds as a member.
func (d *drive) find(ctx context.Context, t *target) error {
	var last error

	for _, address := range t.Addresses() {
		probe, err := d.pool.Probe(ctx, address, &d.creds)

		switch probe.State {
		case talos.StateMember:
			t.address = address

			return nil
		case talos.StateMaintenance:
			return fmt.Errorf("the node at %s is in maintenance mode, and apply only changes nodes that run: install it with "+
				"the command of talos-operator talconfig gencommand apply --node %s --extra-flags=--insecure", address, t.Hostname)
		case talos.StateForeign:
			return fmt.Errorf("the node at %s runs under another CA than that of the PKI: check --secret-file", address)
		case talos.StateUnreachable:
			last = silent(address, err)
		}
	}

	return last
}

func silent(address string, err error) error {
	if err == nil {
		return fmt.Errorf("the Talos API at %s does not respond as a node of the cluster", address)
	}

	return fmt.Errorf("the Talos API at %s does not respond: %w", address, err)
}

func (d *drive) checkIdentity(t *target) error {
	have, err := machineconfig.IdentityOf(t.live)

	switch {
	case err != nil:
		return err
	case !have.SameCluster(d.bundle.Identity()):
		return fmt.Errorf("the node at %s has another cluster ID than the PKI: check --secret-file", t.address)
	case string(have.Role) != string(t.role()):
		return fmt.Errorf("the node at %s is a %s, and the talconfig.yaml says %s: a role only changes by a reset", t.address,
			have.Role, t.role())
	}

	return nil
}

// compare finds out what changes. Versions belong to upgrades, which go another way.
func (t *target) compare() error {
	desired, kept, err := machineconfig.KeepImageTags(t.live, t.config, machineconfig.Released{})
	if err != nil {
		return err
	}

	t.desired, t.kept = desired, nil
	for _, k := range kept {
		t.kept = append(t.kept, k.Field())
	}

	difference, err := machineconfig.Diff(t.live, desired)
	t.changes = difference.Changes

	return err
}

// due are the nodes that change.
func (d *drive) due() []*target {
	return slices.DeleteFunc(slices.Clone(d.nodes), func(t *target) bool { return len(t.changes) == 0 })
}

// collect asks the control planes about etcd.
func (d *drive) collect(ctx context.Context) []safety.Node {
	var machines []v1alpha1.TalosMachine

	for _, t := range d.nodes {
		if t.ControlPlane {
			machines = append(machines, v1alpha1.TalosMachine{
				ObjectMeta: metav1.ObjectMeta{Name: t.Hostname}, Spec: v1alpha1.TalosMachineSpec{Address: t.address},
			})
		}
	}

	state := clusterstate.NewState(d.bundle, clusterstate.BundleConfig{}, "")

	return evidence.Source{Nodes: d.pool, Credentials: d.creds, State: state}.Collect(ctx, machines)
}

// work changes one node after the other. The order of the control planes is computed anew each time: the leader moves.
func (d *drive) work(ctx context.Context, due []*target) error {
	total, done := len(due), 0

	for len(due) > 0 {
		t := next(due, d.collect(ctx))

		if err := d.change(ctx, t); err != nil {
			return fmt.Errorf("%s: %w; %d of %d nodes were changed, and no other one is: repair the node, or correct the "+
				"talconfig.yaml, and run the command again to go on", t.Hostname, err, done, total)
		}

		done++
		due = slices.DeleteFunc(due, func(other *target) bool { return other == t })

		d.say("%s is done (%d of %d).", t.Hostname, done, total)
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
		if last = check(ctx); last == nil {
			passed++
		} else {
			passed = 0
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

// permit asks the safety rules whether a node may be changed now. Even what needs no reboot restarts services.
func (d *drive) permit(ctx context.Context, t *target) error {
	nodes := d.collect(ctx)

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

// change gives a node its config, and waits until it is healthy with it.
func (d *drive) change(ctx context.Context, t *target) error {
	if err := d.until(ctx, "it may not be changed now", 1, func(ctx context.Context) error {
		return d.permit(ctx, t)
	}); err != nil {
		return err
	}

	node, err := d.pool.Node(ctx, d.ref(t))
	if err != nil {
		return err
	}

	// The plan that was confirmed is of this config.
	live, err := node.MachineConfig(ctx)
	if err != nil {
		return err
	}

	if difference, err := machineconfig.Diff(t.live, live); err != nil || !difference.Equal() {
		return errors.Join(errors.New("its config was changed by another one since the plan was made"), err)
	}

	boot, err := node.BootID(ctx)
	if err != nil {
		return err
	}

	if err := d.send(ctx, t, node); err != nil {
		return err
	}

	return d.until(ctx, "it has not become healthy with the new config", steady, func(ctx context.Context) error {
		return d.settled(ctx, t, boot)
	})
}

// tryTimeout is when a node rolls a config back that may have cut it off.
const tryTimeout = 2 * time.Minute

// send applies the config in the way that the plan says: a node that would reboot against the plan refuses.
func (d *drive) send(ctx context.Context, t *target, node *talos.Node) error {
	d.say("%s: applying %s.", t.Hostname, strings.Join(t.fields(), ", "))

	if t.reboots {
		_, err := node.Apply(ctx, t.desired, talos.ApplyOptions{Mode: talos.ApplyReboot})

		return err
	}

	if len(machineconfig.AffectsConnection(t.changes)) > 0 {
		if err := d.try(ctx, t, node); err != nil {
			return err
		}
	}

	_, err := node.Apply(ctx, t.desired, talos.ApplyOptions{Mode: talos.ApplyNoReboot})

	return err
}

// try lets a node try a config, and returns once it responds with it over a new connection.
func (d *drive) try(ctx context.Context, t *target, node *talos.Node) error {
	if _, err := node.Apply(ctx, t.desired, talos.ApplyOptions{Mode: talos.ApplyTry, TryTimeout: tryTimeout}); err != nil {
		return err
	}

	ctx, cancel := context.WithTimeout(ctx, tryTimeout/2)
	defer cancel()

	err := d.until(ctx, "it does not respond with the new config", 1, func(ctx context.Context) error {
		probe, err := d.pool.Probe(ctx, t.address, &d.creds)
		if probe.State != talos.StateMember {
			return silent(t.address, err)
		}

		return nil
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

	if t.reboots {
		if is, err := node.BootID(ctx); err != nil || is == boot {
			return errors.Join(errors.New("it has not rebooted yet"), err)
		}
	}

	live, err := node.MachineConfig(ctx)
	if err != nil {
		return err
	}

	if difference, err := machineconfig.Diff(live, t.desired); err != nil || !difference.Equal() {
		return errors.Join(errors.New("it does not run the new config"), err)
	}

	services, err := node.Services(ctx)
	if err != nil {
		return err
	}

	required := []string{"apid", "kubelet"}
	if t.ControlPlane {
		required = append(required, "etcd")
	}

	for _, name := range required {
		if s := services[name]; s.State != serviceRunning || !s.Healthy {
			return fmt.Errorf("its service %s is not healthy: %s %s", name, s.State, s.Message)
		}
	}

	if health := safety.AssessEtcd(d.collect(ctx)); !health.Healthy {
		return errors.New(health.Message)
	}

	return nil
}

// serviceRunning is the state of a service that runs.
const serviceRunning = "Running"
