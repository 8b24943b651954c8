package talconfig

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/cli/exit"
	"github.com/talos-operator/talos-operator/internal/cli/session"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	model "github.com/talos-operator/talos-operator/internal/talconfig"
	"github.com/talos-operator/talos-operator/internal/talconfig/render"
	"github.com/talos-operator/talos-operator/internal/talos"
)

type applier struct {
	*environment
	source

	secretFile, node string
	compat, dryRun   bool
	yes              bool
	timeout          time.Duration

	noDrain, untried           bool
	drainTimeout               time.Duration
	onDrainTimeout, kubeconfig string

	firstConfig bool
	wipe        []string

	bootstrap bool
	// newCluster: the user says that no machine was ever configured with this PKI.
	newCluster bool
	outDir     string
}

func newApplyCommand(env *environment) *cobra.Command {
	a := &applier{environment: env}

	cmd := &cobra.Command{
		Use:   "apply",
		Short: "Apply the machine configs to nodes, one node at a time",
		Long: `Apply the machine configs of a talconfig.yaml to the nodes of a running cluster, without a management cluster.
Each node is asked for its live config, and by a dry run whether it would reboot; the plan is shown before anything
is changed. Then one node at a time is changed, control planes first and the leader of etcd last of them. A node is only
changed while etcd is healthy, as the safety rules of the operator demand, and the next one only once the node runs the
new config, its services are healthy and etcd is healthy again. What may cut a node off is tried first: the node
rolls it back by itself unless it stays reachable.

A node that reboots is cordoned and drained before, and uncordoned once it is healthy and its Node is ready. Its pods
are evicted, as their PodDisruptionBudgets allow; --on-drain-timeout says what happens if they do not leave in time.
What was cordoned by another client stays cordoned. Without the Kubernetes API of the cluster, nothing that reboots is
changed, unless --no-drain is given.

The command stops at the first failure. Run it again to go on: what is left to do follows from what the nodes run, and
a node that an interrupted run has left cordoned is uncordoned.
Versions of Kubernetes stay as they run: see gencommand upgrade and gencommand upgrade-k8s.

With --first-config, machines in maintenance mode get their first config before anything else is changed, one at a
time: control planes first, and workers once etcd is healthy. The plan names each of them with its UUID, the
fingerprint of its certificate, which it prints on its console, and the disk that Talos is installed to. A machine that
the cluster already knows is refused, and so is a disk that holds anything, unless --wipe names the node. Such a
machine cannot prove what it is, and gets the keys of the cluster.

With --bootstrap, etcd is bootstrapped on one control plane, once all of them respond with certificates of the cluster
and report that they have no etcd data. Which one was chosen is recorded beside the talconfig.yaml, in
CLUSTER-bootstrap.json, before it is asked, so that no run asks another one.

Control planes that the talconfig.yaml does not list cannot be asked. So where no listed one proves that the cluster
runs, both need --new-cluster.`,
		Example: `  talos-operator talconfig apply --dry-run
  talos-operator talconfig apply
  talos-operator talconfig apply --first-config --bootstrap --new-cluster`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.run(cmd.Context()) },
	}
	a.addPath(cmd)
	a.addEnv(cmd, "e")
	a.addFlags(cmd.Flags())

	return cmd
}

func (a *applier) addFlags(f *pflag.FlagSet) {
	f.StringVarP(&a.secretFile, "secret-file", "s", "",
		"file with the PKI (default: the one of talsecret.yaml, talsecret.sops.yaml, … beside the talconfig.yaml)")
	f.StringVarP(&a.node, "node", "n", "", "host name or address of the one node to change")
	f.BoolVar(&a.dryRun, "dry-run", false,
		"ask the nodes what they would do, and change nothing; ends with 2 if any would change")
	f.BoolVarP(&a.yes, "yes", "y", false, "do not ask for confirmation")
	f.BoolVar(&a.compat, "compat", false, "apply patches in the order of talhelper: those of all nodes last")
	f.DurationVar(&a.timeout, "timeout", 10*time.Minute, "how long one node may take to become healthy")
	f.BoolVar(&a.noDrain, "no-drain", false, "reboot nodes with their pods")
	f.BoolVar(&a.untried, "untried", false, "change fields that may cut a node off together with what needs a reboot, so "+
		"that they cannot be tried")
	f.DurationVar(&a.drainTimeout, "drain-timeout", 5*time.Minute, "how long the pods of a node may take to leave it")
	f.StringVar(&a.onDrainTimeout, "on-drain-timeout", string(v1alpha1.DrainHold),
		"what happens if pods have not left by then: Hold stops, Force deletes them regardless of their\n"+
			"PodDisruptionBudgets, Skip reboots the node with them")
	f.StringVar(&a.kubeconfig, "kubeconfig", "",
		"kubeconfig of the cluster (default: credentials made from the PKI, for the API servers of its control planes)")

	f.BoolVar(&a.firstConfig, "first-config", false, "also configure, and so install, machines in maintenance mode")
	f.StringSliceVar(&a.wipe, "wipe", nil,
		"host names or addresses of machines in maintenance mode whose install disk may be wiped")

	f.BoolVar(&a.bootstrap, "bootstrap", false, "bootstrap etcd unless it runs")
	f.BoolVar(&a.newCluster, "new-cluster", false,
		"no machine was ever configured with this talsecret, so no etcd of this cluster exists anywhere")
	f.StringVarP(&a.outDir, "out-dir", "o", defaultOutDir,
		"folder in which earlier versions have kept the record of the bootstrap, which is beside the talconfig.yaml now")
}

func (a *applier) run(ctx context.Context) error {
	d, b, err := a.prepare()
	if err != nil {
		return err
	}
	defer d.pool.Close()

	boots, err := a.plan(ctx, d, b)

	switch {
	case ctx.Err() != nil:
		return interrupted("asking the nodes")
	case err != nil:
		return err
	}

	switch {
	case len(d.due())+len(d.bares()) == 0 && !boots:
		return nil
	case a.dryRun:
		return &exit.Error{Code: codeChanges}
	}

	if err := a.confirm(ctx); err != nil {
		return err
	}

	return d.carryOut(ctx, b, boots)
}

// prepare reads the files.
func (a *applier) prepare() (*drive, *bootstrapper, error) {
	fleet, err := a.load(a.source, false)
	if err != nil {
		return nil, nil, err
	}

	bundle, err := a.readBundle(a.secretFile, a.path)
	if err != nil {
		return nil, nil, err
	}

	files, err := a.render(fleet, render.Options{Secrets: bundle.Secrets(), Compat: a.compat})
	if err != nil {
		return nil, nil, err
	}

	d, err := a.drive(fleet, bundle, files)
	if err != nil {
		return nil, nil, err
	}

	return d, a.bootstrapper(d, fleet), nil
}

// plan asks the nodes and Kubernetes, and shows what would be done. It returns whether etcd is to be bootstrapped.
func (a *applier) plan(ctx context.Context, d *drive, b *bootstrapper) (bool, error) {
	if err := d.look(ctx); err != nil {
		return false, fmt.Errorf("%w; nothing was changed", err)
	}

	if err := errors.Join(d.checkWipe(), d.checkTwins(), d.checkExchanged(), d.checkVersions()); err != nil {
		return false, fmt.Errorf("%w; nothing was changed", err)
	}

	if err := d.observeEtcd(ctx, b); err != nil {
		return false, fmt.Errorf("%w; nothing was changed", err)
	}

	boots, err := b.isNeeded(ctx)
	if err != nil {
		return false, fmt.Errorf("%w; nothing was changed", err)
	}

	err = d.lookUp(ctx)

	a.describe(d)

	if err := errors.Join(err, a.checkTried(d), d.checkUnchanged(ctx)); err != nil {
		return false, err
	}

	return boots, nil
}

// drive prepares what is asked of the nodes.
func (a *applier) drive(fleet fleetFile, bundle *clusterstate.Bundle, files []render.File) (*drive, error) {
	selected, err := selectNodes(fleet, a.node)
	if err != nil {
		return nil, err
	}

	d := &drive{
		pool: talos.NewPool(), bundle: bundle, timeout: a.timeout,
		say:  func(format string, args ...any) { fmt.Fprintf(a.Out, format+"\n", args...) },
		warn: func(format string, args ...any) { fmt.Fprintf(a.ErrOut, format+"\n", args...) },
	}

	d.firstConfig, d.wipe, d.newCluster = a.firstConfig, a.wipe, a.newCluster

	if d.drain, err = a.drainer(fleet); err != nil {
		return nil, err
	}

	if err := d.authenticate(); err != nil {
		return nil, err
	}

	if d.api, err = a.kubernetes(bundle); err != nil {
		return nil, err
	}

	for i := range fleet.Nodes {
		m := &fleet.Nodes[i]
		t := &target{
			Machine: m, config: files[i].Content,
			isSelected: slices.ContainsFunc(selected, func(s *model.Machine) bool { return s == m }),
		}

		if err := t.checkType(); err != nil {
			return nil, err
		}

		d.nodes = append(d.nodes, t)
	}

	return d, nil
}

func (t *target) summary() string {
	if t.bare != nil {
		return "first config"
	}

	return fields(t.fields())
}

// describeBares names the machines in maintenance mode: nothing else tells which machine gets the keys of the cluster.
func (a *applier) describeBares(d *drive) {
	bares := d.bares()
	for _, t := range bares {
		fmt.Fprintf(a.Out,
			"%s is the machine in maintenance mode at %s with the UUID %s and the certificate fingerprint %s.\n", t.Hostname,
			t.address, cmp.Or(t.bare.uuid, "unknown"), t.bare.fingerprint)

		if t.bare.holds != "" {
			fmt.Fprintf(a.Out, "%s: what is on the disk is lost: %s.\n", t.Hostname, t.bare.holds)
		}
	}

	if len(bares) > 0 {
		fmt.Fprintf(a.Out, "%s would get the first config, with the keys of the cluster.\n", count(len(bares), "machine"))
	}

	_, workers := split(bares, func(t *target) bool { return t.ControlPlane })
	if len(workers) > 0 && d.noEtcd && !a.bootstrap {
		fmt.Fprintln(a.Out, "Workers get it only once etcd is healthy: add --bootstrap.")
	}
}

// describe shows the plan: names of fields only, as values may be secret.
func (a *applier) describe(d *drive) {
	tw := tabwriter.NewWriter(a.Out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(tw, "NODE\tROLE\tADDRESS\tEFFECT\tCHANGES")

	for _, t := range d.nodes {
		if t.isSelected {
			fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\n", t.Hostname, t.role(), t.address, d.effect(t), t.summary())
		}
	}

	_ = tw.Flush() // the underlying writer reports its own errors

	for _, t := range d.nodes {
		a.remark(t)
	}

	a.describeDue(d)
}

// remark tells what else a user should know of a node.
func (a *applier) remark(t *target) {
	for _, kept := range t.kept {
		fmt.Fprintf(a.ErrOut, "Note: %s keeps the version of %s that it runs: change it by an upgrade\n", t.Hostname, kept)
	}

	for _, warning := range t.warnings {
		fmt.Fprintf(a.ErrOut, "Warning: %s: %s\n", t.Hostname, warning)
	}

	if t.status.Cordoned && !t.status.Marked {
		fmt.Fprintf(a.ErrOut, "Note: %s was cordoned by another client, and stays cordoned\n", t.Hostname)
	}
}

// describeDue sums up what would be done.
func (a *applier) describeDue(d *drive) {
	change, cordoned, marked := 0, 0, 0

	for _, t := range d.due() {
		switch {
		case len(t.changes) > 0:
			change++
		case t.status.Marked:
			cordoned++
		default:
			marked++
		}
	}

	fmt.Fprintf(a.Out, "\n%s would change.\n", count(change, "node"))

	a.describeBares(d)

	if cordoned > 0 {
		fmt.Fprintf(a.Out, "%s that an earlier run has left cordoned would be uncordoned.\n", count(cordoned, "node"))
	}

	if marked > 0 {
		fmt.Fprintf(a.Out, "%s that another client has uncordoned would lose the mark of an earlier run.\n",
			count(marked, "node"))
	}
}

// confirm asks the user. An interruption does not wait for the answer.
func (a *applier) confirm(ctx context.Context) error {
	if a.yes {
		return nil
	}

	answer := make(chan error, 1)
	go func() { answer <- session.Confirm(a.IOStreams) }()

	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return interrupted("waiting for a confirmation")
	}
}
