package talconfig

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/evidence"
	"github.com/talos-operator/talos-operator/internal/machineconfig"
	"github.com/talos-operator/talos-operator/internal/safety"
	model "github.com/talos-operator/talos-operator/internal/talconfig"
	"github.com/talos-operator/talos-operator/internal/talos"
	"github.com/talos-operator/talos-operator/internal/workload"
)

// drive changes the nodes of a running cluster.
type drive struct {
	pool *talos.Pool
	// creds are replaced from renewAt on.
	creds   talos.Credentials
	renewAt time.Time
	bundle  *clusterstate.Bundle
	timeout time.Duration
	say     func(format string, args ...any)
	warn    func(format string, args ...any)
	nodes   []*target
	api     kubernetesAPI
	// drain moves the pods off the nodes that reboot; nil where they reboot with their pods.
	drain *drainer
	// firstConfig allows to configure machines in maintenance mode, wipe names those whose disks may be wiped for that.
	firstConfig bool
	wipe        []string
	// newCluster: no machine was ever configured with this PKI.
	newCluster bool
	// noEtcd: when the plan was made, no control plane that runs had etcd data. isNew: nor can there be any, as far as it
	// is known.
	noEtcd, isNew bool
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

	// hostname that it runs with.
	hostname string
	// ref identifies its Node in Kubernetes, status is what Kubernetes reported of it when the plan was made.
	ref    workload.NodeRef
	status workload.NodeStatus
	// isEarly: it is a control plane that is changed before etcd is bootstrapped.
	isEarly bool
	// wasReady: its Node was ready when the plan was made. sent is when it got its config.
	wasReady bool
	sent     time.Time
	// drained: this run has begun to drain it, so that it may be cordoned.
	drained bool
	// progress is what this run does with it.
	progress

	// bare is set for a machine in maintenance mode, isConfigured once it runs with the config that this run has sent.
	bare         *bare
	isConfigured bool
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

func (d *drive) effect(t *target) string {
	switch {
	case t.bare != nil:
		return t.bare.effect()
	case len(t.changes) == 0:
		return t.effectUnchanged()
	case t.reboots && t.isEarly:
		return "reboots, before etcd is bootstrapped"
	case t.reboots && !d.drain.isOff:
		return "is drained, reboots"
	case t.reboots:
		return "reboots, is not drained"
	case len(machineconfig.AffectsConnection(t.changes)) > 0:
		return "no reboot, is tried first"
	}

	return "no reboot"
}

func (b *bare) effect() string {
	switch {
	case b.holds != "":
		return "is installed to " + b.disk + ", which is wiped"
	case b.isInstalled:
		return "keeps the Talos on " + b.disk
	}

	return "is installed to " + b.disk
}

// effectUnchanged is what this run does to the Node of a machine that has its config already.
func (t *target) effectUnchanged() string {
	switch {
	case t.status.Marked:
		return "is uncordoned"
	case t.status.Stale:
		return "loses the mark of an earlier run"
	}

	return "none"
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

// accessTTL is the validity of the certificate that the command makes for itself.
const accessTTL = 12 * time.Hour

// authenticate makes the certificate, and makes it anew once half of its validity is over: a run over hundreds of nodes
// takes days.
func (d *drive) authenticate() error {
	now := d.drain.now()
	if now.Before(d.renewAt) {
		return nil
	}

	access, err := d.bundle.TalosCredentials(now, accessTTL)
	if err != nil {
		return err
	}

	d.creds = talos.Credentials{CA: access.CA, Cert: access.Cert, Key: access.Key}
	d.renewAt = now.Add(accessTTL / 2)

	return nil
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

	if t.bare != nil && t.isSelected {
		return d.meetBare(ctx, t)
	}

	if t.bare != nil {
		return nil
	}

	node, err := d.pool.Node(ctx, d.ref(t))
	if err != nil {
		return err
	}

	if t.live, err = node.MachineConfig(ctx); err != nil {
		return err
	}

	if err := d.checkIdentity(t); err != nil {
		return err
	}

	if err := d.identify(ctx, t, node); err != nil || !t.isSelected {
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
			if !d.firstConfig {
				return fmt.Errorf("the machine at %s is in maintenance mode: --first-config configures and installs it", address)
			}

			t.address, t.bare = address, &bare{fingerprint: probe.Fingerprint}

			return nil
		case talos.StateForeign:
			return fmt.Errorf("the node at %s runs under another CA than that of the PKI: check --secret-file", address)
		case talos.StateUnreachable:
			last = silent(address, err)
		}
	}

	if d.firstConfig && last != nil {
		return fmt.Errorf("%w; if its first config has cut it off, %s", last, howToReset)
	}

	return last
}

func silent(address string, err error) error {
	if err == nil {
		return fmt.Errorf("the Talos API at %s does not respond as a node of the cluster", address)
	}

	return fmt.Errorf("the Talos API at %s does not respond: %w", address, err)
}

// compare finds out what changes. Versions belong to upgrades, which go another way, and install.wipe of a first config
// stays: it has no effect once Talos is installed, and no config of genconfig has it.
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
	if err != nil {
		return err
	}

	if slices.ContainsFunc(difference.Changes, isLeftWipe) {
		if t.desired, err = withWipe(desired); err != nil {
			return err
		}

		difference, err = machineconfig.Diff(t.live, t.desired)
	}

	t.changes = difference.Changes

	return err
}

// isLeftWipe reports whether a change would take back the wipe of a first config.
func isLeftWipe(c machineconfig.Change) bool {
	return c.Field() == "machine.install.wipe" && c.Old == "true"
}

// due are the nodes that change, and those that an earlier run has left cordoned or marked.
func (d *drive) due() []*target {
	return slices.DeleteFunc(slices.Clone(d.nodes), func(t *target) bool {
		return len(t.changes) == 0 && !t.status.Marked && !t.status.Stale
	})
}

// collect asks the control planes about etcd. Those that have no config yet can be left out: they have no part in it.
func (d *drive) collect(ctx context.Context, withBare bool) []safety.Node {
	var machines []v1alpha1.TalosMachine

	for _, t := range d.nodes {
		if t.ControlPlane && (withBare || t.bare == nil || t.isConfigured) {
			machines = append(machines, v1alpha1.TalosMachine{
				ObjectMeta: metav1.ObjectMeta{Name: t.Hostname}, Spec: v1alpha1.TalosMachineSpec{Address: t.address},
			})
		}
	}

	state := clusterstate.NewState(d.bundle, clusterstate.BundleConfig{}, "")

	return evidence.Source{Nodes: d.pool, Credentials: d.creds, State: state}.Collect(ctx, machines)
}
