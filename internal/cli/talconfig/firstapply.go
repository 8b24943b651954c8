package talconfig

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/talos-operator/talos-operator/internal/safety"
	"github.com/talos-operator/talos-operator/internal/text"
	"github.com/talos-operator/talos-operator/internal/workload"
)

// workFirst gives one machine after the other its first config.
func (d *drive) workFirst(ctx context.Context, bares []*target, so *tally) error {
	for _, t := range bares {
		if err := d.authenticate(); err != nil {
			return err
		}

		if err := d.first(ctx, t); err != nil {
			return t.ended(ctx, err, fmt.Sprintf("%d of %d machines got their first config, and no other node is "+
				"changed", so.done, so.total), "")
		}

		so.done++

		d.say("%s is configured (%d of %d).", t.Hostname, so.done, so.total)
	}

	return nil
}

// first sends a machine its first config, and waits until it runs with it.
func (d *drive) first(ctx context.Context, t *target) error {
	t.begin("checking whether the cluster knows it", nothingSent)

	established, err := d.checkUnknown(ctx, t)
	if err != nil {
		return err
	}

	if err := d.sendFirst(ctx, t); err != nil {
		return err
	}

	t.begin("waiting for it to run with its first config", "it has its first config, and installs itself")

	return d.until(ctx, "it does not run with its first config yet", steady, func(ctx context.Context) error {
		return d.installed(ctx, t, established)
	})
}

// sendFirst inspects the machine again, and sends the config over the same connection: the machine that the plan shows
// is the one that gets it.
func (d *drive) sendFirst(ctx context.Context, t *target) error {
	node, err := d.pool.Maintenance(ctx, t.address, t.bare.fingerprint)
	if err != nil {
		return err
	}
	// An open connection delays the apply.
	defer node.Close()

	switch seen, err := d.inspect(ctx, t, node); {
	case err != nil:
		return err
	case seen != *t.bare:
		return fmt.Errorf("the machine at %s is not as it was when the plan was made: run the command again", t.address)
	}

	if _, err := node.DryRun(ctx, t.desired); err != nil {
		return fmt.Errorf("the machine refuses the config in a dry run: %w", err)
	}

	d.say("%s: sending its first config.", t.Hostname)
	t.begin("sending its first config", maybeSent)

	warnings, err := node.Apply(ctx, t.desired)
	for _, warning := range warnings {
		d.warn("Warning: %s: %s", t.Hostname, warning)
	}

	return err
}

// installed reports what a machine lacks to run with its first config. Before etcd is bootstrapped, a control plane
// waits for that, and nothing is known about Kubernetes.
func (d *drive) installed(ctx context.Context, t *target, established bool) error {
	if err := d.reach(ctx, t); err != nil {
		return err
	}

	node, err := d.pool.Node(ctx, d.ref(t))
	if err != nil {
		return err
	}

	facts, err := node.Facts(ctx)

	switch {
	case err != nil:
		return err
	case facts.UUID != t.bare.uuid:
		return fmt.Errorf("another machine has the address %s", t.address)
	case facts.SystemDisk == "":
		return errors.New("it has not booted from its disk yet")
	case established:
		t.isConfigured = true

		return d.settled(ctx, t, "")
	}

	services, err := node.Services(ctx)
	if err != nil {
		return err
	}

	if err := prepared(services); err != nil {
		return err
	}

	t.isConfigured = true

	return nil
}

// checkUnknown returns an error if the cluster already knows the machine, or does not tell: it was wiped without
// leaving the cluster, or another one has its address or name. It also returns whether there is a cluster.
func (d *drive) checkUnknown(ctx context.Context, t *target) (bool, error) {
	nodes := d.collect(ctx, false)

	// Nothing but the proof that no control plane has etcd data means that there is no cluster yet. Of those which are not
	// listed, only a user can know that.
	switch {
	case hasNoEtcd(nodes) && !t.ControlPlane:
		return false, errNoEtcd
	case hasNoEtcd(nodes):
		return false, d.checkNew()
	}

	var members []safety.Member
	for _, n := range nodes {
		members = append(members, n.Members...)
	}

	if len(members) == 0 {
		return true, errors.New("it is unknown whether etcd has a member of it: no member list is available from the " +
			"control planes that run")
	}

	for _, m := range members {
		if t.has(m.Name, m.PeerAddresses) {
			return true, t.joined(m, nodes, d.nodesOf(ctx))
		}
	}

	// Each member makes the quorum larger, and a new one does not respond yet. A worker could not become healthy.
	if health := safety.AssessEtcd(nodes); !health.Healthy {
		return true, fmt.Errorf("it would join a cluster whose etcd is not healthy: %s", health.Message)
	}

	cluster, err := d.kubernetes(ctx)
	if err != nil {
		return true, fmt.Errorf("it is unknown whether the cluster has a Node of it: %w", err)
	}

	return true, d.checkNode(ctx, t, cluster)
}

// nodesOf returns the Nodes of the cluster; none where Kubernetes does not tell.
func (d *drive) nodesOf(ctx context.Context) []safety.ClusterNode {
	cluster, err := d.kubernetes(ctx)
	if err != nil {
		return nil
	}

	nodes, err := cluster.Nodes(ctx)
	if err != nil {
		return nil
	}

	return nodes
}

// joined is the error for a machine in maintenance mode while etcd has a member with its name or an address of it. That
// member is one of the quorum: the advice to remove it needs the proof that it was the one of this very machine.
func (t *target) joined(m safety.Member, nodes []safety.Node, known []safety.ClusterNode) error {
	id := safety.FormatMemberID(m.ID)

	for _, n := range nodes {
		if n.MemberID == m.ID {
			return fmt.Errorf("etcd already has the member %s with its name or an address of it, which is that of %s: correct "+
				"the hostname and the addresses in the talconfig.yaml", id, n.Name)
		}
	}

	if t.wasMember(m, nodes, known) {
		return fmt.Errorf("etcd already has the member %s (%s) of it, and the machine was wiped: remove this member "+
			"(talosctl etcd remove-member %[1]s), and run the command again", id, text.Name(m.Name))
	}

	return fmt.Errorf("etcd already has the member %s (%s) with its name or an address of it, and nothing proves that it "+
		"was this machine: find out which machine runs it (talosctl etcd status, on each control plane). If this one was "+
		"wiped just now, run the command again in some minutes", id, text.Name(m.Name))
}

// wasMember reports whether a member is proved to be what a machine has left behind. The machine itself has no etcd,
// and it responds at the only address of the member. All other control planes have reported another member as their
// own. And the Node with the name of the machine has its UUID, and is not ready: this machine ran as this Node.
func (t *target) wasMember(m safety.Member, nodes []safety.Node, known []safety.ClusterNode) bool {
	elsewhere := func(address string) bool { return address != t.address }
	unknown := func(n safety.Node) bool { return n.MemberID == 0 }
	own := func(n safety.ClusterNode) bool {
		return t.has(n.Name, nil) && !n.Ready && t.bare.uuid != "" && strings.EqualFold(n.SystemUUID, t.bare.uuid)
	}

	return len(m.PeerAddresses) > 0 && !slices.ContainsFunc(m.PeerAddresses, elsewhere) && t.has(m.Name, nil) &&
		!slices.ContainsFunc(nodes, unknown) && slices.ContainsFunc(known, own)
}

// checkNew returns an error unless a user has said that there is no cluster with this PKI. Control planes that are not
// listed, of another talconfig.yaml or before a move, may have its etcd, and nothing here would tell.
func (d *drive) checkNew() error {
	if d.newCluster {
		return nil
	}

	return errors.New("no control plane of the talconfig.yaml proves that the cluster runs: add --new-cluster if no " +
		"machine was ever configured with this talsecret; otherwise list the control planes that run, or restore etcd from " +
		"a snapshot")
}

// checkNode returns an error if the cluster has a Node of a machine in maintenance mode.
func (d *drive) checkNode(ctx context.Context, t *target, cluster *workload.Cluster) error {
	nodes, err := cluster.Nodes(ctx)
	if err != nil {
		return fmt.Errorf("it is unknown whether the cluster has a Node of it: %w", err)
	}

	for _, n := range nodes {
		if err := t.known(n); err != nil {
			return err
		}
	}

	if !d.api.isGiven {
		return nil
	}

	// Another cluster does not have the Node either.
	for _, plane := range d.planes() {
		if plane.bare != nil {
			continue
		}

		node, err := d.pool.Node(ctx, d.ref(plane))
		if err != nil {
			return err
		}

		boot, err := node.BootID(ctx)
		same := func(n safety.ClusterNode) bool { return strings.EqualFold(n.BootID, boot) }

		if err == nil && slices.ContainsFunc(nodes, same) {
			return nil
		}
	}

	return errors.New("the Kubernetes API has no Node that a control plane has reported since it booted: check " +
		"--kubeconfig")
}

// known returns an error if a Node is that of a machine in maintenance mode. Only one that is not ready and has its
// name or address may be deleted: boards may share a UUID, and a Node that is ready has a machine that runs.
func (t *target) known(n safety.ClusterNode) error {
	byName := t.has(n.Name, n.Addresses)
	byUUID := t.bare.uuid != "" && strings.EqualFold(n.SystemUUID, t.bare.uuid)

	switch {
	case !byName && !byUUID:
		return nil
	case n.Ready || !byName:
		return fmt.Errorf("the cluster already has the Node %s of it, or of another machine with its name, address or "+
			"system UUID: find out which machine runs as this Node; if this one was wiped just now, run the command again "+
			"in some minutes", text.Name(n.Name))
	}

	return fmt.Errorf("the cluster already has the Node %s of it, and the machine is in maintenance mode: if it was "+
		"wiped, delete this Node (kubectl delete node %[1]s), and run the command again", text.Name(n.Name))
}

// has reports whether a name or an address is that of the node. A Node and an etcd member may have the name with a
// domain.
func (t *target) has(name string, addresses []string) bool {
	name, own := strings.ToLower(name), strings.ToLower(t.Hostname)

	return name == own || name != "" && (strings.HasPrefix(name, own+".") || strings.HasPrefix(own, name+".")) ||
		slices.ContainsFunc(addresses, func(a string) bool { return a == t.address || slices.Contains(t.Addresses(), a) })
}
