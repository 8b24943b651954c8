package importer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/cli/access"
	"github.com/talos-operator/talos-operator/internal/clusterimport"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/evidence"
	"github.com/talos-operator/talos-operator/internal/machineconfig"
	"github.com/talos-operator/talos-operator/internal/safety"
	"github.com/talos-operator/talos-operator/internal/talos"
)

// runningNode is a responding node of the cluster to import.
type runningNode struct {
	clusterimport.Node

	role       v1alpha1.Role
	facts      talos.Facts
	extensions talos.Extensions
	state      talos.State
}

func (n *runningNode) isControlPlane() bool { return n.role == v1alpha1.RoleControlPlane }

func (n *runningNode) kubernetesVersion() string {
	return clusterimport.KubernetesVersion(n.facts.KubeletVersion, n.Config)
}

// findNodes determines the addresses of the nodes: as given, or from discovery, or else from the talosconfig.
func (t *takeover) findNodes(ctx context.Context, given []string) ([]string, error) {
	seeds := slices.Concat(t.material.Endpoints, t.material.Nodes)
	if len(given) > 0 {
		seeds = given
	}

	members, err := t.discover(ctx, seeds)
	if err != nil {
		return nil, err
	}

	if len(given) > 0 || len(members) == 0 {
		t.warnOfOthers(given, members)

		return onlyAddresses(seeds)
	}

	var out []string

	for _, m := range members {
		// If a node has several addresses, one that the talosconfig names is known to be the right one.
		at := slices.IndexFunc(m.Addresses, func(a string) bool { return slices.Contains(seeds, a) })
		out = append(out, m.Addresses[max(at, 0)])
	}

	return out, nil
}

// discover queries the first node that responds for the other nodes.
func (t *takeover) discover(ctx context.Context, seeds []string) ([]talos.ClusterMember, error) {
	var problems []error

	for _, address := range seeds {
		if probe, err := t.pool.Probe(ctx, address, &t.creds); probe.State != talos.StateMember {
			problems = append(problems, stranger(address, probe.State, err))

			continue
		}

		node, err := t.pool.Node(ctx, t.ref(address))
		if err != nil {
			return nil, err
		}

		members, err := node.ClusterMembers(ctx)
		if err != nil {
			problems = append(problems, err)

			continue
		}

		return slices.DeleteFunc(members, func(m talos.ClusterMember) bool { return len(m.Addresses) == 0 }), nil
	}

	if len(problems) == 0 {
		return nil, errors.New("the talosconfig names no endpoint: name the nodes with --nodes")
	}

	return nil, errors.Join(problems...)
}

func (t *takeover) warnOfOthers(given []string, members []talos.ClusterMember) {
	if len(given) == 0 {
		return
	}

	for _, m := range members {
		if !slices.ContainsFunc(m.Addresses, func(a string) bool { return slices.Contains(given, a) }) {
			t.warn("node %s is of the cluster too and not in --nodes: it is not touched", m.Name)
		}
	}
}

func onlyAddresses(list []string) ([]string, error) {
	var out []string

	for _, text := range list {
		if _, err := netip.ParseAddr(text); err != nil {
			return nil, fmt.Errorf("%s is no IP address: name the nodes by address with --nodes", text)
		}

		if !slices.Contains(out, text) {
			out = append(out, text)
		}
	}

	return out, nil
}

func (t *takeover) ref(address string) talos.NodeRef {
	return talos.NodeRef{Key: address, Address: address, Credentials: t.creds}
}

// stranger describes a node that is not a member.
func stranger(address string, state talos.State, err error) error {
	switch state {
	case talos.StateMaintenance:
		return fmt.Errorf("the node at %s is in maintenance mode: it is no member of a cluster", address)
	case talos.StateForeign:
		return fmt.Errorf("the node at %s runs under another CA than that of the given secrets", address)
	case talos.StateMember, talos.StateUnreachable:
	}

	return fmt.Errorf("the node at %s is unreachable: %w", address, err)
}

// readNodes queries the identity and the configuration of every node, and requires that all belong to one cluster.
func (t *takeover) readNodes(ctx context.Context, addresses []string) error {
	found := make([]*runningNode, len(addresses))
	problems := make([]error, len(addresses))

	var wg sync.WaitGroup

	turn := make(chan struct{}, access.MaxAsked)

	for i, address := range addresses {
		wg.Go(func() {
			turn <- struct{}{}

			defer func() { <-turn }()

			found[i], problems[i] = t.readNode(ctx, address)
		})
	}

	wg.Wait()

	if err := errors.Join(problems...); err != nil {
		return disagreement(found, err)
	}

	// One node may have several addresses, including a virtual one.
	boots := map[string]bool{}

	for _, n := range found {
		if !boots[n.facts.BootID] {
			boots[n.facts.BootID] = true
			t.nodes = append(t.nodes, n)
		}
	}

	slices.SortFunc(t.nodes, func(a, b *runningNode) int {
		return cmp.Or(strings.Compare(string(a.role), string(b.role)), strings.Compare(a.facts.Hostname, b.facts.Hostname),
			strings.Compare(a.Address, b.Address))
	})

	return t.agree()
}

// disagreement adds to an error that the nodes belong to two clusters, if they do.
func disagreement(found []*runningNode, err error) error {
	var ours, foreign []string

	for _, n := range found {
		switch n.state {
		case talos.StateMember:
			ours = append(ours, n.Address)
		case talos.StateForeign:
			foreign = append(foreign, n.Address)
		case talos.StateMaintenance, talos.StateUnreachable:
		}
	}

	if len(ours) > 0 && len(foreign) > 0 {
		return fmt.Errorf("the nodes disagree in their CA: %s run under the given one, %s under another: %w",
			strings.Join(ours, ", "), strings.Join(foreign, ", "), err)
	}

	return err
}

func (t *takeover) readNode(ctx context.Context, address string) (*runningNode, error) {
	out := &runningNode{Node: clusterimport.Node{Address: address}}

	probe, err := t.pool.Probe(ctx, address, &t.creds)
	if out.state = probe.State; out.state != talos.StateMember {
		return out, stranger(address, probe.State, err)
	}

	node, err := t.pool.Node(ctx, t.ref(address))
	if err != nil {
		return out, err
	}

	if out.facts, err = node.Facts(ctx); err != nil {
		return out, err
	}

	if out.extensions, err = node.Extensions(ctx); err != nil {
		return out, err
	}

	if out.Config, err = node.MachineConfig(ctx); err != nil {
		return out, err
	}

	out.UUID = out.facts.UUID

	return out, t.checkNode(out)
}

// checkNode compares the configuration of a node with the PKI.
func (t *takeover) checkNode(n *runningNode) error {
	bundle := t.material.Bundle

	identity, err := machineconfig.IdentityOf(n.Config)
	if err != nil {
		return fmt.Errorf("the node at %s: %w", n.Address, err)
	}

	if !identity.SameCluster(bundle.Identity()) {
		return fmt.Errorf("the config of the node at %s has another cluster ID or Talos API CA than the given secrets",
			n.Address)
	}

	if n.role = v1alpha1.Role(identity.Role); n.isControlPlane() {
		theirs, err := clusterstate.BundleFromConfig(n.Config)
		if err != nil {
			return fmt.Errorf("the node at %s: %w", n.Address, err)
		}

		if theirs.Fingerprint() != bundle.Fingerprint() {
			return fmt.Errorf("the node at %s has other CAs of etcd or Kubernetes than the given secrets", n.Address)
		}

		if fields := bundle.Differs(theirs); len(fields) > 0 {
			return fmt.Errorf("the config of the node at %s has another %s than the given secrets", n.Address,
				strings.Join(fields, ", "))
		}
	}

	if n.Disk, err = machineconfig.InstallDisk(n.Config); err != nil {
		return fmt.Errorf("the node at %s: %w", n.Address, err)
	}

	n.Disk = cmp.Or(n.Disk, n.facts.SystemDisk)

	return nil
}

// agree rejects nodes with different versions: an import must neither finish nor begin an upgrade.
func (t *takeover) agree() error {
	talosVersions, kubernetes := map[string][]string{}, map[string][]string{}

	for _, n := range t.nodes {
		talosVersions[n.facts.TalosVersion] = append(talosVersions[n.facts.TalosVersion], n.Address)
		v := n.kubernetesVersion()
		kubernetes[v] = append(kubernetes[v], n.Address)
	}

	for what, versions := range map[string]map[string][]string{"Talos": talosVersions, "Kubernetes": kubernetes} {
		if len(versions) <= 1 {
			continue
		}

		var parts []string
		for v, addresses := range versions {
			parts = append(parts, fmt.Sprintf("%s runs on %s", cmp.Or(v, "no version"), strings.Join(addresses, ", ")))
		}

		slices.Sort(parts)

		return fmt.Errorf("the nodes disagree in the version of %s: %s; finish that upgrade first", what,
			strings.Join(parts, "; "))
	}

	return nil
}

// controlPlane returns the control-plane nodes.
func (t *takeover) controlPlane() []*runningNode {
	return slices.DeleteFunc(slices.Clone(t.nodes), func(n *runningNode) bool { return !n.isControlPlane() })
}

// establish demands complete evidence about etcd: a member that belongs to no machine would later be removed as
// orphaned.
func (t *takeover) establish(ctx context.Context) error {
	nodes := t.controlPlane()
	if len(nodes) == 0 {
		return errors.New("none of the nodes is of the control plane")
	}

	var machines []v1alpha1.TalosMachine

	for _, n := range nodes {
		machines = append(machines, v1alpha1.TalosMachine{
			ObjectMeta: metav1.ObjectMeta{Namespace: t.plane.Namespace, Name: n.Name},
			Spec:       v1alpha1.TalosMachineSpec{Address: n.Address},
		})
	}

	seen := evidence.Source{
		Nodes: t.pool, Credentials: t.creds, State: clusterstate.NewState(t.material.Bundle, t.made, ""),
	}.Collect(ctx, machines)

	if health := safety.AssessEtcd(seen); !health.Healthy {
		return fmt.Errorf("etcd has to be healthy, and the node of every member has to be known: %s", health.Message)
	}

	for i, n := range nodes {
		n.MemberID = seen[i].MemberID
	}

	return nil
}
