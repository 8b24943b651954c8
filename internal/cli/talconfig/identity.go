package talconfig

import (
	"context"
	"fmt"
	"slices"

	"github.com/talos-operator/talos-operator/internal/machineconfig"
	"github.com/talos-operator/talos-operator/internal/talos"
)

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

// fingerprint is what no two machines have in common: the certificate of one in maintenance mode, and the boot of one
// that runs. Boards may share a UUID.
func (t *target) fingerprint() string {
	if t.bare != nil {
		return t.bare.fingerprint
	}

	return t.ref.BootID
}

// checkTwins refuses two nodes of the talconfig.yaml that are one machine: it would get the configs of both, and count
// twice as evidence.
func (d *drive) checkTwins() error {
	seen := map[string]*target{}

	for _, t := range d.nodes {
		id := t.fingerprint()
		if id == "" {
			continue // it was not asked
		}

		if other := seen[id]; other != nil {
			return fmt.Errorf("%s and %s are one machine, which responds at %s and at %s: correct their addresses in the "+
				"talconfig.yaml", other.Hostname, t.Hostname, other.address, t.address)
		}

		seen[id] = t
	}

	return nil
}

// checkExchanged refuses to give a node the config of another one: where it runs with the host name of another node of
// the talconfig.yaml, an address is wrong there, or has moved.
func (d *drive) checkExchanged() error {
	for _, t := range d.nodes {
		if t.hostname == "" || t.IgnoreHostname || talos.SameHost(t.hostname, t.Hostname) {
			continue
		}

		i := slices.IndexFunc(d.nodes, func(other *target) bool { return talos.SameHost(t.hostname, other.Hostname) })
		if i < 0 {
			continue // it is renamed, as the plan shows
		}

		return fmt.Errorf("the node at %s runs as %s, and the talconfig.yaml has that address for %s: correct the addresses "+
			"of both; to rename nodes so that one gets the name of another, give that one a third name first", t.address,
			d.nodes[i].Hostname, t.Hostname)
	}

	return nil
}

// reach finds the address at which a node responds as a member, the one of before first: with its new config, it may
// no longer have that, and have another one that the talconfig.yaml lists.
func (d *drive) reach(ctx context.Context, t *target) error {
	var first error

	for _, address := range slices.Insert(t.Addresses(), 0, t.address) {
		probe, err := d.pool.Probe(ctx, address, &d.creds)
		if probe.State == talos.StateMember {
			t.address = address

			return nil
		}

		if first == nil {
			first = silent(address, err)
		}
	}

	return first
}
