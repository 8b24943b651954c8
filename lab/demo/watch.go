// Package demo follows a cluster from its manifest to the proof that it responds, as a user would: through the
// management plane, the Secrets and the official client.
package demo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/lab/control"
)

// pollInterval is the pause between two observations of everything.
const pollInterval = 250 * time.Millisecond

// Cluster follows one KubernetesCluster.
type Cluster struct {
	// Key names it.
	Key ctrlclient.ObjectKey
	// Client reaches the management plane.
	Client ctrlclient.Client
	// Nodes lists the machines of the lab; nil when there is no lab to ask.
	Nodes func(context.Context) ([]control.Node, error)
}

// NewClient returns a client that knows the kinds of the operator.
func NewClient(cfg *rest.Config) (ctrlclient.Client, error) {
	scheme := runtime.NewScheme()

	err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme),
		vitistackv1alpha1.AddToScheme(scheme))
	if err != nil {
		return nil, fmt.Errorf("building the scheme: %w", err)
	}

	c, err := ctrlclient.New(cfg, ctrlclient.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("connecting to the management plane: %w", err)
	}

	return c, nil
}

// Progress is how far a cluster is.
type Progress struct {
	// Elapsed since the manifest was applied.
	Elapsed time.Duration
	// Phase and Message are what the KubernetesCluster says.
	Phase, Message string
	Ready          bool
	Machines       []MachineProgress
}

// MachineProgress is how far one machine is.
type MachineProgress struct {
	Name, Address string
	// Doing says what the machine is doing, in a few words.
	Doing string
	Ready bool
}

// Follow calls show with the progress until the cluster is ready or the context ends.
func (c *Cluster) Follow(ctx context.Context, began time.Time, show func(Progress)) error {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()

	for {
		p, err := c.look(ctx)
		if err == nil {
			p.Elapsed = time.Since(began)
			show(p)

			if p.Ready {
				return nil
			}
		}

		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("waiting for the cluster %s: %w", c.Key.Name, ctx.Err()), err)
		case <-tick.C:
		}
	}
}

func (c *Cluster) look(ctx context.Context) (Progress, error) {
	kc := &vitistackv1alpha1.KubernetesCluster{}
	if err := c.Client.Get(ctx, c.Key, kc); err != nil {
		return Progress{}, fmt.Errorf("reading the KubernetesCluster: %w", err)
	}

	machines := &vitistackv1alpha1.MachineList{}

	err := c.Client.List(ctx, machines, ctrlclient.InNamespace(c.Key.Namespace),
		ctrlclient.MatchingLabels{vitistackv1alpha1.ClusterNameLabel: clusterName(kc)})
	if err != nil {
		return Progress{}, fmt.Errorf("listing the machines: %w", err)
	}

	talosMachines := &v1alpha1.TalosMachineList{}
	if err := c.Client.List(ctx, talosMachines, ctrlclient.InNamespace(c.Key.Namespace)); err != nil {
		return Progress{}, fmt.Errorf("listing the Talos machines: %w", err)
	}

	nodes := map[string]control.Node{}

	if c.Nodes != nil {
		list, err := c.Nodes(ctx)
		if err != nil {
			return Progress{}, err
		}

		for _, n := range list {
			nodes[n.Name] = n
		}
	}

	p := Progress{Phase: string(kc.Status.Phase)}

	if ready := meta.FindStatusCondition(kc.Status.Conditions, vitistackv1alpha1.ConditionReady); ready != nil {
		p.Message = ready.Message
		p.Ready = ready.Status == metav1.ConditionTrue && ready.ObservedGeneration == kc.Generation &&
			kc.Status.Phase == vitistackv1alpha1.PhaseRunning
	}

	for i := range machines.Items {
		p.Machines = append(p.Machines, machineProgress(&machines.Items[i], talosMachines.Items, nodes))
	}

	return p, nil
}

// clusterName is the first part of the names of a cluster's machines.
func clusterName(kc *vitistackv1alpha1.KubernetesCluster) string {
	if kc.Spec.ClusterName != "" {
		return kc.Spec.ClusterName
	}

	return kc.Name
}

// machineProgress puts together what the Machine, the TalosMachine and the lab know.
func machineProgress(
	m *vitistackv1alpha1.Machine, all []v1alpha1.TalosMachine, nodes map[string]control.Node,
) MachineProgress {
	p := MachineProgress{Name: m.Name, Doing: "waiting for a machine"}

	if len(m.Status.Addresses) > 0 {
		p.Address, p.Doing = m.Status.Addresses[0].Address, "powering on"
	}

	for i := range all {
		if ref := all[i].Spec.MachineRef; ref == nil || ref.Name != m.Name {
			continue
		}

		if ready := meta.FindStatusCondition(all[i].Status.Conditions, v1alpha1.ConditionReady); ready != nil {
			p.Doing, p.Ready = ready.Message, ready.Status == metav1.ConditionTrue
		}
	}

	if n, ok := nodes[m.Namespace+"/"+m.Name]; ok {
		p.Doing = doing(n, p.Doing)
	}

	return p
}
