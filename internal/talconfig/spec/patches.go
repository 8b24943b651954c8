package spec

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/machineconfig"
	"github.com/talos-operator/talos-operator/internal/machineconfig/desired"
)

// Limits of the API: how many patches a list has, how many bytes a patch of a spec has, and one of a Secret.
const (
	mostPatches   = 64
	longestPatch  = 65536
	longestSource = 256 << 10
)

// derive finds the patches that the typed fields of a machine leave to do.
func (b *builder) derive(n *node) error {
	b.setInterfaces(n)

	base, err := machineconfig.Render(desired.Input(b.sources(n, desired.Patches{})))
	if err != nil {
		return n.failure(err)
	}

	patches, err := machineconfig.DerivePatches(base.Bytes, n.config)
	if err != nil {
		return n.failure(fmt.Errorf("the operator cannot run the machine as it is described: %w", err))
	}

	difference, err := machineconfig.Diff(base.Bytes, n.config)
	if err != nil {
		return n.failure(err)
	}

	n.patched = difference.Paths()
	open, secret := machineconfig.SplitSecrets(patches)

	for _, p := range open {
		switch {
		case len(p) > longestPatch:
			secret = append(secret, p)
		case strings.Contains(p, "kind: HostnameConfig"):
			n.names = append(n.names, p)
		default:
			n.open = append(n.open, p)
		}
	}

	n.secret = secret

	return nil
}

// levels are where patches of a cluster stand, by the name of the machine for its own.
type levels struct {
	cluster []string
	group   map[*v1alpha1.TalosWorker][]string
	machine map[string][]string
}

// spread puts what all machines share into the cluster, what those of a group share into the group.
func (b *builder) spread(patches func(*node) []string) levels {
	all := map[string][]string{}
	for _, n := range b.nodes {
		all[n.name] = patches(n)
	}

	out := levels{group: map[*v1alpha1.TalosWorker][]string{}, machine: map[string][]string{}}

	var own map[string][]string

	out.cluster, own = machineconfig.SharedPatches(all)

	groups := map[*v1alpha1.TalosWorker]map[string][]string{}

	for _, n := range b.nodes {
		if groups[n.worker] == nil {
			groups[n.worker] = map[string][]string{}
		}

		groups[n.worker][n.name] = own[n.name]
	}

	for worker, ofGroup := range groups {
		shared, alone := machineconfig.SharedPatches(ofGroup)
		out.group[worker] = shared

		for name, texts := range alone {
			out.machine[name] = texts
		}
	}

	return out
}

// apart leaves each machine its own patches.
func (b *builder) apart(patches func(*node) []string) levels {
	out := levels{group: map[*v1alpha1.TalosWorker][]string{}, machine: map[string][]string{}}
	for _, n := range b.nodes {
		out.machine[n.name] = patches(n)
	}

	return out
}

// share writes the patches into the objects: what machines share once, if they still result in the same. It fails for
// a machine that the objects do not describe.
func (b *builder) share() error {
	open := func(n *node) []string { return n.open }
	secret := func(n *node) []string { return n.secret }

	if err := b.put(b.spread(open), b.spread(secret)); err != nil {
		return err
	}

	if b.each(b.verify)() == nil {
		return nil
	}

	if err := b.put(b.apart(open), b.apart(secret)); err != nil {
		return err
	}

	return b.each(b.verify)()
}

func (b *builder) put(open, secret levels) error {
	b.out.Patches = nil
	cp := b.out.ControlPlane

	shared := b.newSecret(b.Name + "-talconfig")
	cp.Spec.ClusterConfigPatches = pack(open.cluster)
	cp.Spec.ClusterConfigPatchesFrom = addSource(shared, "cluster.yaml", secret.cluster)
	cp.Spec.ConfigPatches = pack(open.group[nil])
	cp.Spec.ConfigPatchesFrom = addSource(shared, "controlplane.yaml", secret.group[nil])

	for _, worker := range b.out.Workers {
		worker.Spec.ConfigPatches = pack(open.group[worker])
		worker.Spec.ConfigPatchesFrom = addSource(shared, worker.Name+".yaml", secret.group[worker])
	}

	b.keep(shared)

	for _, n := range b.nodes {
		n.entry.ConfigPatches = pack(slices.Concat(n.names, open.machine[n.name]))

		if len(n.entry.ConfigPatches) > mostPatches {
			return n.failure(fmt.Errorf("it needs more than %d patches", mostPatches))
		}

		own := b.newSecret(n.name + "-talconfig")
		n.entry.ConfigPatchesFrom = addSource(own, "machine.yaml", secret.machine[n.name])
		b.keep(own)
	}

	for _, s := range b.out.Patches {
		for key, value := range s.Data {
			if len(value) > longestSource {
				return fmt.Errorf("key %s of Secret %s would have %d bytes, and a patch has at most %d: make the inline "+
					"manifests or files of the machine config smaller", key, s.Name, len(value), longestSource)
			}
		}
	}

	return nil
}

// keep keeps a Secret that holds something.
func (b *builder) keep(s *corev1.Secret) {
	if len(s.Data) > 0 {
		b.out.Patches = append(b.out.Patches, s)
	}
}

// pack joins patches until a list can hold them.
func pack(patches []string) []string {
	if len(patches) <= mostPatches {
		return patches
	}

	var out []string

	for _, p := range patches {
		if last := len(out) - 1; last >= 0 && len(out[last])+len(p) < longestPatch {
			out[last] += separator + p
		} else {
			out = append(out, p)
		}
	}

	return out
}

const separator = "---\n"

// newSecret has no label of the operator: it takes no patches from Secrets of its own.
func (b *builder) newSecret(name string) *corev1.Secret {
	return &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: name},
		Type:       corev1.SecretTypeOpaque, Data: map[string][]byte{},
	}
}

// addSource puts patches into a Secret, and returns what refers to them.
func addSource(s *corev1.Secret, key string, patches []string) []v1alpha1.ConfigPatchSource {
	if len(patches) == 0 {
		return nil
	}

	s.Data[key] = []byte(strings.Join(patches, separator))

	return []v1alpha1.ConfigPatchSource{{Kind: v1alpha1.ConfigPatchFromSecret, Name: s.Name, Key: key}}
}

// From returns the patches that a machine takes from Secrets, as the operator would read them. worker is nil for a
// machine of the control plane.
func (c *Cluster) From(worker *v1alpha1.TalosWorker, entry *v1alpha1.MachineEntry) desired.Patches {
	read := func(sources []v1alpha1.ConfigPatchSource) []machineconfig.Sourced {
		var out []machineconfig.Sourced

		for _, source := range sources {
			for _, s := range c.Patches {
				if s.Name == source.Name {
					out = append(out, machineconfig.Sourced{
						Source: fmt.Sprintf("Secret %s, key %s", s.Name, source.Key), Secret: true, Text: string(s.Data[source.Key]),
					})
				}
			}
		}

		return out
	}

	group := &c.ControlPlane.Spec.NodeOptions
	if worker != nil {
		group = &worker.Spec.NodeOptions
	}

	return desired.Patches{
		Cluster: read(c.ControlPlane.Spec.ClusterConfigPatchesFrom), Group: read(group.ConfigPatchesFrom),
		Machine: read(entry.ConfigPatchesFrom),
	}
}

// verify renders a machine as the operator would, and compares it with what genconfig writes.
func (b *builder) verify(n *node) error {
	rendered, err := machineconfig.Render(desired.Input(b.sources(n, b.out.From(n.worker, n.entry))))
	if err != nil {
		return n.failure(err)
	}

	difference, err := machineconfig.Diff(rendered.Bytes, n.config)
	if err != nil {
		return n.failure(err)
	}

	if !difference.Equal() {
		return n.failure(fmt.Errorf("the objects of the operator cannot describe %s", strings.Join(difference.Paths(), ", ")))
	}

	n.hidden = rendered.Hidden

	return nil
}
