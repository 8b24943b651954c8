package taloscontrolplane

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterimport"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/evidence"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/machineconfig"
	"github.com/talos-operator/talos-operator/internal/machineconfig/desired"
	"github.com/talos-operator/talos-operator/internal/safety"
	"github.com/talos-operator/talos-operator/internal/talos"
)

// Keys of the Secret that a cluster is imported with.
const (
	importTalosconfig = "talosconfig"
	importBundle      = "secrets.yaml"
	importConfig      = "controlplane.yaml"
)

// pollImport is how soon nodes that are not ready for an import are queried again.
const pollImport = 15 * time.Second

// importState takes over the PKI of a running cluster. Every control-plane node has to respond over mutual TLS, to run
// under that PKI, and to be a healthy member of one etcd that all of them agree on. Nothing is written before that is
// proven.
func (r *Reconciler) importState(ctx context.Context, s *scope) (*clusterstate.Held, error) {
	if s.cp.Status.SecretBundle != nil {
		return nil, failure.Terminal(v1alpha1.ReasonStateSecretInvalid, fmt.Sprintf("Secret %s is gone, and the cluster was "+
			"imported into it; restore it from a copy", clusterstate.SecretName(s.cp.Name)), nil)
	}

	// A corrected Secret triggers no reconciliation, and nodes change without an event of the object.
	s.importing = true

	if s.cp.Spec.BootstrapSecretsRef != nil {
		return nil, failure.Terminal(v1alpha1.ReasonInvalidSpec, "set spec.import or spec.bootstrapSecretsRef, not both", nil)
	}

	if err := checkSpec(s.cp, desired.BundleConfig(s.cp), ""); err != nil {
		return nil, err
	}

	bundle, err := r.importedBundle(ctx, s)
	if err != nil {
		return nil, err
	}

	nodes, made, err := r.importedNodes(ctx, s, bundle)
	if err != nil {
		return nil, err
	}

	state := clusterimport.NewState(bundle, made, string(s.cp.UID), nodes, r.now())

	held, err := r.States.Create(ctx, s.key(), state)
	if err != nil {
		return nil, err
	}

	r.Recorder.Eventf(s.cp, nil, corev1.EventTypeNormal, v1alpha1.ReasonImported, "Import",
		"Took over the PKI of a cluster that runs already")

	return held, nil
}

// importedBundle reads the PKI from the Secret that the spec names.
func (r *Reconciler) importedBundle(ctx context.Context, s *scope) (*clusterstate.Bundle, error) {
	name := s.cp.Spec.Import.SecretRef.Name
	secret := &corev1.Secret{}

	err := r.Reader.Get(ctx, client.ObjectKey{Namespace: s.cp.Namespace, Name: name}, secret)
	if apierrors.IsNotFound(err) {
		return nil, failure.Waiting(v1alpha1.ReasonImportSecretInvalid,
			fmt.Sprintf("waiting for Secret %s, named by spec.import", name), pollImport)
	}

	if err != nil {
		return nil, fmt.Errorf("reading Secret %s: %w", name, err)
	}

	refuse := func(problem string) error {
		return failure.Terminal(v1alpha1.ReasonImportSecretInvalid,
			fmt.Sprintf("Secret %s: %s; no node was touched", name, problem), nil)
	}

	bundle, config := secret.Data[importBundle], secret.Data[importConfig]

	switch {
	case len(secret.Data[importTalosconfig]) == 0:
		return nil, refuse("the key " + importTalosconfig + " is missing")
	case len(bundle) > 0 == (len(config) > 0):
		return nil, refuse("it needs one of the keys " + importBundle + " and " + importConfig)
	}

	material, err := clusterimport.ReadMaterial(secret.Data[importTalosconfig], "", slices.Concat(bundle, config))
	if err != nil {
		return nil, refuse(err.Error())
	}

	return material.Bundle, nil
}

// importedNodes queries every control-plane node for its identity and its configuration. It also returns the parameters
// of the cluster.
func (r *Reconciler) importedNodes(ctx context.Context, s *scope, bundle *clusterstate.Bundle,
) (nodes []clusterimport.Node, made clusterstate.BundleConfig, err error) {
	access, err := r.States.Access(s.key(), bundle)
	if err != nil {
		return nil, made, err
	}

	made = desired.BundleConfig(s.cp)
	made.KubePrism = "" // patches may have given it another address before the import

	source := evidence.Source{
		Nodes: r.Nodes, State: clusterstate.NewState(bundle, made, ""),
		Credentials: talos.Credentials{CA: access.Talos.CA, Cert: access.Talos.Cert, Key: access.Talos.Key},
	}

	var machines []v1alpha1.TalosMachine

	for _, entry := range s.cp.Spec.Machines {
		address, err := r.entryAddress(ctx, s, entry)
		if err != nil {
			return nil, made, err
		}

		m := v1alpha1.TalosMachine{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.cp.Namespace, Name: entry.Name},
			Spec: v1alpha1.TalosMachineSpec{
				ControlPlaneRef: v1alpha1.ObjectReference{Name: s.cp.Name}, Role: v1alpha1.RoleControlPlane,
				Address: address, Network: entry.Network, Drain: entry.Drain, NodeOptions: entry.NodeOptions,
			},
		}

		node, err := r.importedNode(ctx, s, source, &m)
		if err != nil {
			return nil, made, err
		}

		nodes, machines = append(nodes, node), append(machines, m)
	}

	if err := establish(source.Collect(ctx, machines), nodes); err != nil {
		return nil, made, err
	}

	machines[0].Status.InstallDisk = nodes[0].Disk
	made.Contract, err = contractOf(s, source.State, &machines[0], nodes[0].Config)

	return nodes, made, err
}

// importedNode queries one node, and rejects a node that is no member of this cluster or runs with other parameters.
func (r *Reconciler) importedNode(ctx context.Context, s *scope, source evidence.Source, m *v1alpha1.TalosMachine,
) (clusterimport.Node, error) {
	out := clusterimport.Node{Name: m.Name, Address: m.Spec.Address}

	if out.Address == "" {
		return out, failure.Waiting(v1alpha1.ReasonWaitingForAddress, "waiting for the address of "+m.Name, pollImport)
	}

	if err := r.checkMember(ctx, source, m); err != nil {
		return out, err
	}

	node, err := r.Nodes.Node(ctx, source.Ref(m))
	if err != nil {
		return out, err
	}

	facts, err := node.Facts(ctx)
	if err != nil {
		return out, err
	}

	if out.Config, err = node.MachineConfig(ctx); err != nil {
		return out, err
	}

	out.UUID = facts.UUID

	if out.Disk, err = machineconfig.InstallDisk(out.Config); err != nil {
		return out, err
	}

	out.Disk = cmp.Or(out.Disk, facts.SystemDisk)

	return out, checkImported(s, source.State, m, facts, out.Config)
}

// checkMember verifies the identity of a node by mutual TLS.
func (r *Reconciler) checkMember(ctx context.Context, source evidence.Source, m *v1alpha1.TalosMachine) error {
	address := m.Spec.Address

	probe, err := r.Nodes.Probe(ctx, address, &source.Credentials)

	switch probe.State {
	case talos.StateMember:
		return nil
	case talos.StateForeign:
		return failure.Terminal(v1alpha1.ReasonForeignNode, fmt.Sprintf("machine %s at %s runs under another CA than that "+
			"of the Secret named by spec.import; no node was touched", m.Name, address), err)
	case talos.StateMaintenance:
		return failure.Terminal(v1alpha1.ReasonImportRefused, fmt.Sprintf("machine %s at %s is in maintenance mode: it is "+
			"no member of the cluster that is imported; no node was touched", m.Name, address), nil)
	case talos.StateUnreachable:
	}

	if failure.ClassOf(err) == failure.ClassAuth {
		return err
	}

	return failure.Waiting(v1alpha1.ReasonNodeUnreachable, fmt.Sprintf("machine %s at %s is unreachable; nothing is "+
		"imported until every control-plane node responds", m.Name, address), pollImport)
}

// checkImported compares what a node runs to the PKI and the spec. It is pure.
func checkImported(s *scope, state *clusterstate.State, m *v1alpha1.TalosMachine, facts talos.Facts, config []byte,
) error {
	refuse := func(problem string) error {
		return failure.Terminal(v1alpha1.ReasonImportRefused,
			fmt.Sprintf("machine %s: %s; no node was touched", m.Name, problem), nil)
	}

	theirs, err := clusterstate.BundleFromConfig(config)
	if err != nil {
		return refuse(err.Error())
	}

	if theirs.Fingerprint() != state.Bundle.Fingerprint() || theirs.ClusterID() != state.Bundle.ClusterID() {
		return refuse("its config has other CAs, or another cluster ID, than the Secret named by spec.import")
	}

	if fields := state.Bundle.Differs(theirs); len(fields) > 0 {
		return refuse("its config has another " + strings.Join(fields, ", ") + " than the Secret named by spec.import")
	}

	live, err := clusterimport.Describe(config, facts.TalosVersion)
	if err != nil {
		return refuse(err.Error())
	}

	live.KubernetesVersion = clusterimport.KubernetesVersion(facts.KubeletVersion, config)

	if conflicts := clusterimport.Conflicts(desired.BundleConfig(s.cp), live.BundleConfig); len(conflicts) > 0 {
		return refuse(strings.Join(conflicts, "; ") + ": write what runs, and change it after the import")
	}

	return nil
}

// establish demands complete evidence about etcd: a member that belongs to no listed machine would later be treated as
// orphaned. It sets the IDs of the members. It is pure.
func establish(seen []safety.Node, nodes []clusterimport.Node) error {
	health := safety.AssessEtcd(seen)
	if !health.Healthy {
		return failure.Waiting(health.Reason, "nothing is imported until etcd is healthy and every member is listed in "+
			"spec.machines: "+health.Message, pollImport)
	}

	for i := range nodes {
		nodes[i].MemberID = seen[i].MemberID
	}

	return nil
}

// contractOf determines the version contract that the configurations of the cluster were generated with.
func contractOf(s *scope, state *clusterstate.State, m *v1alpha1.TalosMachine, live []byte) (string, error) {
	found, err := clusterimport.Contract(desired.Input(desired.Sources{
		ControlPlane: s.cp, Machine: m, State: state, Disk: m.Status.InstallDisk,
	}), live)
	if err != nil {
		return "", failure.Terminal(v1alpha1.ReasonInvalidSpec, err.Error(), err)
	}

	return found, nil
}
