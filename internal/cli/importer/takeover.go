package importer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/cli/access"
	"github.com/talos-operator/talos-operator/internal/cli/change"
	"github.com/talos-operator/talos-operator/internal/cli/session"
	"github.com/talos-operator/talos-operator/internal/clusterimport"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/talos"
)

// valueImporting is the value of the paused annotation until all objects of an import exist. It marks objects of the
// import.
const valueImporting = "importing"

// workersSuffix is appended to the name of the control plane for the name of its workers.
const workersSuffix = "-workers"

// takeover is one import.
type takeover struct {
	plane    *session.Plane
	name     string
	material *clusterimport.Material
	pool     *talos.Pool
	creds    talos.Credentials
	states   *clusterstate.Store
	now      time.Time

	nodes    []*runningNode
	made     clusterstate.BundleConfig
	cp       *v1alpha1.TalosControlPlane
	worker   *v1alpha1.TalosWorker
	kept     map[string][]string
	warnings []string
	// resumed: an earlier run created the control plane. done: it completed.
	resumed, done bool
}

func newTakeover(p *session.Plane, name string, material *clusterimport.Material) (*takeover, error) {
	t := &takeover{
		plane: p, name: name, material: material, pool: talos.NewPool(), now: clock.RealClock{}.Now(),
		states: &clusterstate.Store{Client: p, Reader: p, Clock: clock.RealClock{}},
	}

	// The certificate in the talosconfig may have expired, or may not permit reading configurations; the PKI issues one
	// that does.
	access, err := material.Bundle.TalosCredentials(t.now, access.TTL)
	if err != nil {
		return nil, err
	}

	t.creds = talos.Credentials{CA: access.CA, Cert: access.Cert, Key: access.Key}

	return t, nil
}

func (t *takeover) warn(format string, args ...any) {
	t.warnings = append(t.warnings, fmt.Sprintf(format, args...))
}

// prepare collects all evidence and changes nothing.
func (t *takeover) prepare(ctx context.Context, given []string) error {
	if err := t.checkNames(ctx); err != nil {
		return err
	}

	addresses, err := t.findNodes(ctx, given)
	if err != nil {
		return err
	}

	if err := t.readNodes(ctx, addresses); err != nil {
		return err
	}

	t.nameNodes()

	if err := t.establish(ctx); err != nil {
		return err
	}

	for _, step := range []func() error{t.describe, t.findContract, t.derivePatches, t.verify} {
		if err := step(); err != nil {
			return err
		}
	}

	t.warnOfImages()

	if t.done {
		return nil
	}

	if err := t.checkMachines(ctx); err != nil {
		return err
	}

	return t.rehearse(ctx)
}

// adopted waits until the operator has compared every machine to the spec and found nothing to change.
func (t *takeover) adopted(ctx context.Context, timeout time.Duration) error {
	if timeout <= 0 {
		return nil
	}

	var (
		c       *session.Cluster
		missing error
	)

	err := wait.PollUntilContextTimeout(ctx, change.PollPlan, timeout, true, func(ctx context.Context) (bool, error) {
		var err error
		if c, err = session.FindCluster(ctx, t.plane, t.name); err != nil {
			return false, err
		}

		missing = change.Incomplete(c)
		if len(c.Nodes) < len(t.nodes) {
			missing = fmt.Errorf("the operator has made %d of %d machines", len(c.Nodes), len(t.nodes))
		}

		return missing == nil, nil
	})
	if missing != nil {
		return fmt.Errorf("the objects of %s are there, and the operator has not taken every machine over yet; does it run? "+
			"%w", t.name, missing)
	}

	if err != nil {
		return err
	}

	for _, g := range change.PlanOf(c).Groups {
		for _, m := range g.Machines {
			return fmt.Errorf("the plan of %s is not empty: machine %s is %s; see talos-operator plan %s", t.name, m.Name,
				m.State, t.name)
		}
	}

	return nil
}

func (t *takeover) result(imported, adopted bool) *importResult {
	out := &importResult{
		Cluster: t.made.ClusterName, TalosVersion: t.made.TalosVersion, KubernetesVersion: t.made.KubernetesVersion,
		Contract: t.made.Contract, Endpoint: t.made.Endpoint, Fingerprint: t.material.Bundle.Fingerprint(),
		Objects: t.objects(), ControlPlane: t.cp, Worker: t.worker, Warnings: t.warnings,
		Imported: imported, Adopted: adopted,
	}

	for _, n := range t.nodes {
		out.Machines = append(out.Machines, importedMachine{
			Name: n.Name, Role: n.role, Address: n.Address, Schematic: n.extensions.Schematic,
			Extensions: n.extensions.Names, Differs: []string{}, Kept: t.kept[n.Name],
		})
	}

	return out
}

// objects returns the names of the objects that are created.
func (t *takeover) objects() []string {
	out := []string{"Secret/" + clusterstate.SecretName(t.name), "TalosControlPlane/" + t.name}
	if t.worker != nil {
		out = append(out, "TalosWorker/"+t.worker.Name)
	}

	return out
}

// state returns the state of the cluster, owned by the control plane that was created for it.
func (t *takeover) state() *clusterstate.State {
	var nodes []clusterimport.Node
	for _, n := range t.controlPlane() {
		nodes = append(nodes, n.Node)
	}

	st := clusterimport.NewState(t.material.Bundle, t.made, string(t.cp.UID), nodes, t.now)

	for _, n := range t.nodes {
		m := st.Runtime.Machines[n.Name]
		if m.ConfiguredAt == nil {
			st.Runtime.Machines[n.Name] = clusterstate.Machine{
				Address: n.Address, UUID: n.UUID, Role: string(n.role), ConfiguredAt: st.Runtime.ImportedAt,
				Imported: true,
			}
		}
	}

	return st
}

// errTaken reports that a name is used by another object.
func errTaken(kind, name string) error {
	return fmt.Errorf("%s %s exists already", kind, name)
}

// machineNames returns the names of the machines of the import.
func (t *takeover) machineNames() []string {
	names := map[string]bool{}
	for _, n := range t.nodes {
		names[n.Name] = true
	}

	return slices.Sorted(maps.Keys(names))
}

var errUnreadable = errors.New("the state Secret of an earlier import cannot be used")
