package talconfig

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/evidence"
	"github.com/talos-operator/talos-operator/internal/safety"
	"github.com/talos-operator/talos-operator/internal/talos"
)

const (
	// repeatBootstrap is the time after which a bootstrap without an effect is requested again. Until chosenLately is
	// over, the call may still be in progress.
	repeatBootstrap = 15 * time.Second
	chosenLately    = time.Minute
)

// bootstrapper bootstraps etcd once.
type bootstrapper struct {
	*drive
	recordFile

	now      func() time.Time
	isWanted bool
	// dryRun: not even the record is moved.
	dryRun bool
}

func (a *applier) bootstrapper(d *drive, fleet fleetFile) *bootstrapper {
	return &bootstrapper{
		drive: d, now: a.now, isWanted: a.bootstrap, dryRun: a.dryRun,
		recordFile: newRecordFile(a.path, a.outDir, fleet.Config.ClusterName, d.bundle.CAFingerprint()),
	}
}

// ask collects the evidence for a bootstrap. Each control plane counts as configured: one that does not respond may
// have etcd data.
func (b *bootstrapper) ask(ctx context.Context) []safety.Node {
	var machines []v1alpha1.TalosMachine

	for _, t := range b.planes() {
		machines = append(machines, v1alpha1.TalosMachine{
			ObjectMeta: metav1.ObjectMeta{Name: t.Hostname}, Spec: v1alpha1.TalosMachineSpec{Address: t.address},
			Status: v1alpha1.TalosMachineStatus{ConfigHash: "talconfig.yaml"},
		})
	}

	state := clusterstate.NewState(b.bundle, clusterstate.BundleConfig{}, "")

	return evidence.Source{Nodes: b.pool, Credentials: b.creds, State: state}.Collect(ctx, machines)
}

// isNeeded reports whether etcd is to be bootstrapped, as far as it is known when the plan is made, and says so.
func (b *bootstrapper) isNeeded(ctx context.Context) (bool, error) {
	if !b.isWanted {
		return false, nil
	}

	rec, err := b.read()
	if err != nil {
		return false, err
	}

	if err := b.settle(rec); err != nil {
		return false, err
	}

	nodes := b.ask(ctx)
	if safety.AssessEtcd(nodes).Healthy {
		return false, b.nothingToDo(rec, nodes)
	}

	d := b.decide(rec, nodes)

	switch d.Action {
	case safety.BootstrapRefuse:
		return false, b.refused(d)
	case safety.BootstrapDone:
		b.say("etcd is already bootstrapped; the command waits until all control planes are healthy members.")

		return true, nil
	case safety.BootstrapWait, safety.BootstrapNode:
	}

	if rec == nil {
		if err := b.checkNew(); err != nil {
			return false, err
		}
	}

	b.say("etcd would be bootstrapped on one control plane, once all of them report that they have no etcd data.")

	return true, nil
}

// settle moves a record that an earlier version has left among the generated files.
func (b *bootstrapper) settle(rec *bootstrapRecord) error {
	if b.dryRun {
		return nil
	}

	moved, err := b.move(rec)
	if moved {
		b.say("The record of the bootstrap is %s now, and no longer %s.", b.path, b.former)
	}

	return err
}

// nothingToDo says that etcd runs, and records it: should it be lost later, nothing else tells that it ever ran.
func (b *bootstrapper) nothingToDo(rec *bootstrapRecord, nodes []safety.Node) error {
	b.say("etcd is already bootstrapped: nothing to do.")

	if b.dryRun {
		return nil
	}

	return b.record(rec, safety.AssessEtcd(nodes))
}

// decide is the decision of the safety rules.
func (b *bootstrapper) decide(rec *bootstrapRecord, nodes []safety.Node) safety.BootstrapDecision {
	if rec == nil {
		return safety.Bootstrap(safety.BootstrapRecord{}, nodes)
	}

	return safety.Bootstrap(safety.BootstrapRecord{
		Machine: rec.Machine, Recent: b.now().Sub(rec.ChosenAt) < chosenLately, Established: rec.EstablishedAt != nil,
	}, nodes)
}

// run bootstraps etcd, and waits until all control planes have joined it.
func (b *bootstrapper) run(ctx context.Context) error {
	told := ""

	err := wait.PollUntilContextTimeout(ctx, poll, b.timeout, true, func(ctx context.Context) (bool, error) {
		waits, err := b.step(ctx)
		if waits != "" && waits != told && !isCutShort(ctx) {
			told = waits
			b.say("bootstrap: %s.", told)
		}

		return waits == "", err
	})

	switch {
	case err != nil && ctx.Err() != nil:
		return fmt.Errorf("interrupted while %s; %s; no other node is changed: run the command again to go on",
			cmp.Or(told, "asking the control planes about etcd"), b.state())
	case wait.Interrupted(err):
		return fmt.Errorf("etcd is not bootstrapped: %s%s; no other node is changed: run the command again to go on", told,
			b.stuck(ctx))
	}

	return err
}

// stuck says what to do about the control planes that have their config, and neither have etcd data nor wait for the
// bootstrap.
func (b *bootstrapper) stuck(ctx context.Context) string {
	out := ""

	for _, n := range b.ask(ctx) {
		if n.Answer != safety.AnswerMember || n.EtcdData != safety.DataAbsent || n.EtcdWaiting {
			continue
		}

		out += fmt.Sprintf("; etcd on %s has no data, and does not wait for its bootstrap (%s): correct the config of "+
			"%[1]s, or reset it (talosctl reset --nodes %[3]s --graceful=false --reboot --system-labels-to-wipe STATE "+
			"--system-labels-to-wipe EPHEMERAL)", n.Name, b.etcdService(ctx, n), n.Address)
	}

	return out
}

// etcdService is the state of a node's etcd, as the node reports it.
func (b *bootstrapper) etcdService(ctx context.Context, n safety.Node) string {
	node, err := b.pool.Node(ctx, talos.NodeRef{Key: n.Name, Address: n.Address, Credentials: b.creds})
	if err != nil {
		return "unknown"
	}

	s, err := node.Service(ctx, "etcd")
	if err != nil {
		return "unknown"
	}

	return strings.TrimSpace(s.State + " " + s.Message)
}

// state says how an interrupted run leaves the bootstrap.
func (b *bootstrapper) state() string {
	rec, err := b.read()

	switch {
	case err != nil:
		return err.Error()
	case rec == nil:
		return "no node was asked to bootstrap etcd"
	case rec.EstablishedAt != nil:
		return "etcd is bootstrapped"
	}

	return fmt.Sprintf("%s was chosen for the bootstrap, as %s records: it may have been asked, and no other node will be",
		rec.Machine, b.path)
}

// step takes one step of the bootstrap. It returns what is waited for; nothing once etcd is healthy.
func (b *bootstrapper) step(ctx context.Context) (string, error) {
	rec, err := b.read()
	if err != nil {
		return "", err
	}

	nodes := b.ask(ctx)
	d := b.decide(rec, nodes)

	switch d.Action {
	case safety.BootstrapDone:
		return b.established(rec, nodes)
	case safety.BootstrapRefuse:
		return "", b.refused(d)
	case safety.BootstrapWait:
		return d.Message, nil
	case safety.BootstrapNode:
	}

	if rec == nil {
		if err := b.checkNew(); err != nil {
			return "", err
		}

		// Without a record, one that neither waits nor has data may have been called by another client.
		if busy := notWaiting(nodes); len(busy) > 0 {
			return "waiting for " + strings.Join(busy, ", ") + " to wait for the bootstrap of etcd", nil
		}
	} else if rec.Machine == d.Machine && b.now().Sub(rec.ChosenAt) < repeatBootstrap {
		return "waiting for etcd on " + d.Machine, nil
	}

	return "waiting for etcd on " + d.Machine, b.call(ctx, rec, nodes, d.Machine)
}

// notWaiting names the control planes that do not say that etcd waits for its bootstrap and has no data.
func notWaiting(nodes []safety.Node) []string {
	var out []string

	for _, n := range nodes {
		if n.Answer != safety.AnswerMember || n.EtcdData != safety.DataAbsent || !n.EtcdWaiting {
			out = append(out, n.Name)
		}
	}

	return out
}

// call records the choice, and asks the machine in the boot that the evidence is about.
func (b *bootstrapper) call(ctx context.Context, rec *bootstrapRecord, nodes []safety.Node, machine string) error {
	t := b.nodes[slices.IndexFunc(b.nodes, func(t *target) bool { return t.Hostname == machine })]

	node, err := b.pool.Node(ctx, b.ref(t))
	if err != nil {
		return err
	}

	uuid, err := node.UUID(ctx)
	if err != nil {
		return err
	}

	if rec != nil && (rec.Machine != machine || rec.UUID != uuid) {
		return fmt.Errorf("%s was chosen for the bootstrap, with the UUID %s, and %s with the UUID %s would be: remove %s "+
			"only if the machine that was chosen is wiped", rec.Machine, rec.UUID, machine, uuid, b.path)
	}

	next := &bootstrapRecord{
		CA: b.bundle.CAFingerprint(), Machine: machine, Address: t.address, UUID: uuid, ChosenAt: b.now().UTC(),
	}

	if err := b.write(next, rec == nil); err != nil {
		return err
	}

	self := talos.Self{UUID: uuid}

	for _, n := range nodes {
		if n.Name == machine {
			self.BootID = n.BootID
		}
	}

	b.say("%s: bootstrapping etcd.", machine)

	err = node.ToItself(ctx, self, func() error { return node.Bootstrap(ctx) })
	if errors.Is(err, talos.ErrAlreadyExists) {
		return nil
	}

	return err
}

// established records that etcd runs on all control planes, once it is healthy. It returns what is waited for.
func (b *bootstrapper) established(rec *bootstrapRecord, nodes []safety.Node) (string, error) {
	health := safety.AssessEtcd(nodes)
	if !health.Healthy {
		return "waiting for etcd to become healthy: " + health.Message, nil
	}

	if err := b.record(rec, health); err != nil {
		return "", err
	}

	b.say("etcd runs: %s.", health.Message)

	return "", nil
}

// record notes that etcd is healthy. From then on, an empty etcd is a loss and no new cluster.
func (b *bootstrapper) record(rec *bootstrapRecord, health safety.EtcdHealth) error {
	if rec != nil && rec.EstablishedAt != nil {
		return nil
	}

	now, isFirst := b.now().UTC(), rec == nil
	if isFirst {
		rec = &bootstrapRecord{CA: b.bundle.CAFingerprint(), Machine: health.Voting[0], ChosenAt: now}
	}

	rec.EstablishedAt = &now

	return b.write(rec, isFirst)
}

// refused says what to do: the words of the safety rules are for objects of the operator.
func (b *bootstrapper) refused(d safety.BootstrapDecision) error {
	switch d.Reason {
	case v1alpha1.ReasonEtcdLost:
		return fmt.Errorf("the cluster was bootstrapped before (%s), and no control plane has etcd data any more: restore a "+
			"snapshot with talosctl bootstrap --recover-from; remove the file only to start with an empty etcd", b.path)
	case v1alpha1.ReasonWaitingForEvidence:
		return fmt.Errorf("the node that was chosen for the bootstrap (%s) is no control plane of the talconfig.yaml any "+
			"more: list it again; remove the file only if its machine is wiped", b.path)
	}

	return errors.New(d.Message)
}
