package spec

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/machineconfig"
)

// Keys of the Secret that spec.import names.
const (
	keyTalosconfig = "talosconfig"
	keyBundle      = "secrets.yaml"
)

// secretsOfCluster writes the PKI: for the import of a cluster that runs, or as the state of a new one.
func (b *builder) secretsOfCluster() error {
	if b.IsNew {
		data, err := b.state.Encode()
		if err != nil {
			return fmt.Errorf("writing the state of the cluster: %w", err)
		}

		b.out.PKI = b.newSecret(clusterstate.SecretName(b.Name))
		b.out.PKI.Labels = map[string]string{v1alpha1.ControlPlaneLabel: b.Name}
		b.out.PKI.Data = data

		return nil
	}

	params := clusterstate.TalosconfigParams{ClusterName: b.fleet.Config.ClusterName}
	for i := range b.out.ControlPlane.Spec.Machines {
		params.Endpoints = append(params.Endpoints, b.out.ControlPlane.Spec.Machines[i].Address)
	}

	talosconfig, err := b.Bundle.Talosconfig(params, b.Now)
	if err != nil {
		return err
	}

	bundle, err := b.Bundle.Marshal()
	if err != nil {
		return err
	}

	b.out.PKI = b.newSecret(b.Name + "-import")
	b.out.PKI.Data = map[string][]byte{keyTalosconfig: talosconfig, keyBundle: bundle}
	b.out.ControlPlane.Spec.Import = &v1alpha1.ImportSource{SecretRef: v1alpha1.ObjectReference{Name: b.out.PKI.Name}}

	return nil
}

// Objects are all objects in the order in which they are created: nothing refers to one that does not exist yet.
func (c *Cluster) Objects() []runtime.Object {
	out := []runtime.Object{c.PKI}
	for _, s := range c.Patches {
		out = append(out, s)
	}

	out = append(out, c.ControlPlane)
	for _, w := range c.Workers {
		out = append(out, w)
	}

	return out
}

// note lists the machines, and what no object has.
func (b *builder) note() {
	for _, n := range b.nodes {
		b.out.Machines = append(b.out.Machines, Machine{
			Name: n.name, Role: n.role(), Address: n.entry.Address, Hidden: n.hidden,
			Patched: slices.DeleteFunc(n.patched, func(field string) bool {
				return slices.ContainsFunc(n.hidden, func(hidden string) bool { return isUnder(field, hidden) })
			}),
		})

		others := slices.DeleteFunc(n.Addresses(), func(a string) bool { return a == n.entry.Address })
		if len(others) > 0 {
			b.add("machine %s is managed at %s; the other addresses of its ipAddress are not in the objects: %s", n.name,
				n.entry.Address, strings.Join(others, ", "))
		}

		if n.entry.Name != n.Hostname {
			b.add("host %s is called %s here: the name of a TalosMachine has no dots, and no two are the same", n.Hostname,
				n.entry.Name)
		}
	}

	b.noteImages()
}

// isUnder is true for the field itself and everything below it.
func isUnder(field, of string) bool {
	rest, found := strings.CutPrefix(field, of)

	return found && (rest == "" || strings.ContainsAny(rest[:1], ".[:"))
}

func (b *builder) add(format string, args ...any) {
	b.out.Notes = append(b.out.Notes, fmt.Sprintf(format, args...))
}

// noteImages names the settings of boot images, and schematics that only their ID names.
func (b *builder) noteImages() {
	byID, boots := map[string]bool{}, false

	for _, n := range b.nodes {
		image := n.install().InstallImage

		if n.Schematic != nil && !b.isInline(n) {
			byID[machineconfig.Schematic(image)] = true
		}

		boots = boots || n.ImageSchematic != nil || n.MachineSpec != nil && n.MachineSpec.BootMethod+n.MachineSpec.Arch != ""
	}

	delete(byID, "")

	if len(byID) > 0 {
		ids := make([]string, 0, len(byID))
		for id := range byID {
			ids = append(ids, id)
		}

		slices.Sort(ids)
		b.add("a spec does not show all settings of these schematics, so that their IDs stand there: %s; keep the "+
			"schematics, and send them to the image factory before the next installation", strings.Join(ids, ", "))
	}

	if boots {
		b.add("imageSchematic, and bootMethod and arch of machineSpec, are of boot images: talos-operator talconfig genurl " +
			"image prints their addresses")
	}
}

func (b *builder) isInline(n *node) bool {
	options := b.sources(n, b.out.From(n.worker, n.entry)).Install()

	return options.Schematic == nil || options.Schematic.ID == ""
}
