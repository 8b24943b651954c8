// Package spec describes the cluster of a talconfig.yaml in the objects of the operator: typed fields where they mean
// exactly the same, patches for the rest, and Secrets for what may be secret. The machine configs that the operator
// would render from the objects are compared with those that package render writes: a difference is an error, and never
// a loss. It is pure.
package spec

import (
	"errors"
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/machineconfig/desired"
	"github.com/talos-operator/talos-operator/internal/talconfig"
	"github.com/talos-operator/talos-operator/internal/talconfig/render"
)

// Options say what the objects are made of.
type Options struct {
	// Name of the TalosControlPlane. Default: the name of the cluster.
	Name string
	// Namespace of all objects.
	Namespace string
	// Files are the machine configs, as render.Nodes returned them for the same talconfig.yaml.
	Files []render.File
	// Bundle is the PKI of the cluster.
	Bundle *clusterstate.Bundle
	// IsNew: the machines wait in maintenance mode for their first machine config. Default: they run with what genconfig
	// wrote, and the cluster is taken over.
	IsNew bool
	// Now is when certificates begin.
	Now time.Time
}

// Cluster are the objects of one talconfig.yaml.
type Cluster struct {
	ControlPlane *v1alpha1.TalosControlPlane
	// Workers are groups of at most 600 machines.
	Workers []*v1alpha1.TalosWorker
	// PKI is the Secret with the PKI: the one that spec.import names, or the state Secret of a new cluster.
	PKI *corev1.Secret
	// Patches are Secrets with patches that may hold secrets.
	Patches []*corev1.Secret
	// Machines in the order of the talconfig.yaml.
	Machines []Machine
	// Notes tell what the talconfig.yaml has beside machine configs, and no object has. They have no secrets.
	Notes []string
}

// Machine is one machine of the cluster.
type Machine struct {
	Name    string
	Role    v1alpha1.Role
	Address string
	// Patched are the fields that patches of the spec set, Hidden those that patches from Secrets set.
	Patched, Hidden []string
}

// node is a machine, and what its objects have to result in.
type node struct {
	*talconfig.Machine
	settings

	name string
	// config is the machine config that genconfig writes.
	config []byte
	entry  *v1alpha1.MachineEntry
	worker *v1alpha1.TalosWorker
	// open and secret are the patches that the typed fields leave to do; names are those of the host name, which no two
	// nodes share.
	open, secret, names []string
	// patched are the fields that patches set, hidden those of them that patches from Secrets set.
	patched, hidden []string
}

func (n *node) role() v1alpha1.Role {
	if n.ControlPlane {
		return v1alpha1.RoleControlPlane
	}

	return v1alpha1.RoleWorker
}

// failure names the node and its field.
func (n *node) failure(err error) error { return fmt.Errorf("%s (%s): %w", n.Field, n.Hostname, err) }

type builder struct {
	Options

	fleet *talconfig.Fleet
	nodes []*node
	out   *Cluster
	state *clusterstate.State
}

// Make describes a cluster. An error names the node and the fields that no object can describe, and has no secrets.
func Make(f *talconfig.Fleet, o Options) (*Cluster, error) {
	b := &builder{Options: o, fleet: f, out: &Cluster{}}

	for _, step := range []func() error{
		b.read, b.name, b.describe, b.group, b.each(b.derive), b.share, b.secretsOfCluster,
	} {
		if err := step(); err != nil {
			return nil, err
		}
	}

	b.note()

	return b.out, nil
}

// each works on all nodes, on all processors.
func (b *builder) each(do func(*node) error) func() error {
	return func() error {
		errs := make([]error, len(b.nodes))

		var group errgroup.Group

		group.SetLimit(runtime.GOMAXPROCS(0))

		for i, n := range b.nodes {
			group.Go(func() error {
				errs[i] = do(n)

				return nil
			})
		}

		_ = group.Wait()

		return errors.Join(errs...)
	}
}

// read takes the machine configs apart.
func (b *builder) read() error {
	for i := range b.fleet.Nodes {
		n := &node{Machine: &b.fleet.Nodes[i], config: b.Files[i].Content}

		var err error
		if n.settings, err = readSettings(n.config, b.fleet.HasDocuments()); err != nil {
			return n.failure(err)
		}

		b.nodes = append(b.nodes, n)
	}

	return nil
}

// sources are the objects that decide the machine config of a node.
func (b *builder) sources(n *node, from desired.Patches) desired.Sources {
	m := &v1alpha1.TalosMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: n.name},
		Spec: v1alpha1.TalosMachineSpec{
			ControlPlaneRef: v1alpha1.ObjectReference{Name: b.out.ControlPlane.Name}, Role: n.role(),
			Address: n.entry.Address, Network: n.entry.Network, NodeOptions: n.entry.NodeOptions,
		},
	}

	return desired.Sources{
		ControlPlane: b.out.ControlPlane, Worker: n.worker, Machine: m, State: b.state, Disk: n.disk(), From: from,
	}
}

// someDisk stands for the disk that the operator chooses on a machine whose machine config leaves it to Talos.
const someDisk = "/dev/chosen"

func (s *settings) disk() string {
	if d := s.install().InstallDisk; d != "" {
		return d
	}

	return someDisk
}
