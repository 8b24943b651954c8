package relocate

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/cli/session"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/kube"
	"github.com/talos-operator/talos-operator/internal/pause"
)

// rootOf returns the top-level object, which pauses everything below it.
func rootOf(c *session.Cluster) client.Object {
	if c.Top != nil {
		return c.Top
	}

	return c.ControlPlane
}

// busy returns what a move would interrupt, which must finish where it began: nil if there is nothing. state is nil for
// a cluster without a PKI.
func busy(p *session.Plane, c *session.Cluster, state *clusterstate.State, b *backups) error {
	if err := restoring(state, b); err != nil {
		return err
	}

	if state != nil && state.Runtime.Disruption != nil {
		d := state.Runtime.Disruption

		return fmt.Errorf("machine %s is being worked on (%s); wait until that is done", d.Machine, d.Act)
	}

	objects := []client.Object{c.ControlPlane}
	if c.Top != nil {
		objects = append(objects, c.Top)
	}

	for i := range c.Workers {
		objects = append(objects, &c.Workers[i])
	}

	for i := range c.Machines {
		objects = append(objects, &c.Machines[i])
	}

	for i := range c.Nodes {
		if c.Nodes[i].Status.Intent != nil {
			return fmt.Errorf("machine %s is being worked on (%s); wait until that is done", c.Nodes[i].Name,
				c.Nodes[i].Status.Intent.Step)
		}

		objects = append(objects, &c.Nodes[i])
	}

	for _, o := range append(objects, b.objects()...) {
		if !o.GetDeletionTimestamp().IsZero() {
			return fmt.Errorf("%s %s is being deleted; wait until it is gone", kube.KindOf(p, o), o.GetName())
		}
	}

	return nil
}

// restoring returns the restore that is in progress, or about to begin: a move would interrupt it between two steps.
func restoring(state *clusterstate.State, b *backups) error {
	if state != nil && state.Runtime.Restore != nil {
		return fmt.Errorf("TalosEtcdRestore %s is restoring the cluster; wait until it is complete",
			state.Runtime.Restore.Name)
	}

	for i := range b.restores {
		switch r := &b.restores[i]; r.Status.Step {
		case v1alpha1.RestoreComplete, v1alpha1.RestoreStopped:
		default:
			return fmt.Errorf("TalosEtcdRestore %s is not complete; wait until it is, or delete it", r.Name)
		}
	}

	return nil
}

// unpaused returns the objects that do not report the pause with an ID yet. That they report another one is no sign
// that what began before this one has ended.
func unpaused(ctx context.Context, p *session.Plane, name, id string) ([]string, error) {
	c, err := session.FindCluster(ctx, p, name)
	if err != nil {
		return nil, err
	}

	return reported(c, func(_ string, conditions []metav1.Condition) bool {
		return !pause.Shown(id, conditions)
	}), nil
}

// reported returns the names of the objects that report pauses, and of which this is so.
func reported(c *session.Cluster, is func(name string, conditions []metav1.Condition) bool) []string {
	var out []string

	see := func(kind, name string, conditions []metav1.Condition) {
		if name = kind + "/" + name; is(name, conditions) {
			out = append(out, name)
		}
	}

	if c.Top != nil {
		see(session.KindCluster.Kind, c.Top.Name, c.Top.Status.Conditions)
	}

	see(session.KindControlPlane.Kind, c.ControlPlane.Name, c.ControlPlane.Status.Conditions)

	for i := range c.Workers {
		see(session.KindWorker.Kind, c.Workers[i].Name, c.Workers[i].Status.Conditions)
	}

	for i := range c.Nodes {
		see(session.KindTalosMachine.Kind, c.Nodes[i].Name, c.Nodes[i].Status.Conditions)
	}

	return out
}
