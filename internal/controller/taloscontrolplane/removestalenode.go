package taloscontrolplane

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/evidence"
	"github.com/talos-operator/talos-operator/internal/kube"
	"github.com/talos-operator/talos-operator/internal/safety"
	"github.com/talos-operator/talos-operator/internal/talos"
)

const (
	// nodesInterval is how often the Node objects of a cluster are checked while none of them is orphaned.
	nodesInterval = 5 * time.Minute
	// askAtOnce limits how many machines of one cluster are queried concurrently: there may be a thousand.
	askAtOnce = 16
)

// nodeLooks records when the Node objects of each cluster are checked next, and what was observed. A restart loses it,
// and orphaned Nodes have to be observed twice again, which only causes a delay.
type nodeLooks struct {
	mu    sync.Mutex
	looks map[types.NamespacedName]nodeLook
}

type nodeLook struct {
	next time.Time
	seen safety.NodeSightings
}

func (l *nodeLooks) get(key types.NamespacedName) nodeLook {
	l.mu.Lock()
	defer l.mu.Unlock()

	return l.looks[key]
}

func (l *nodeLooks) put(key types.NamespacedName, look nodeLook) {
	l.mu.Lock()
	defer l.mu.Unlock()

	if l.looks == nil {
		l.looks = map[types.NamespacedName]nodeLook{}
	}

	l.looks[key] = look
}

func (l *nodeLooks) forget(key types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()

	delete(l.looks, key)
}

// removeStaleNode removes one orphaned Node object of the cluster that was observed twice, a minute apart. It blocks
// nothing and returns no error: the next check finds what this one missed.
func (r *Reconciler) removeStaleNode(ctx context.Context, s *scope) (ctrl.Result, error) {
	now, look := r.Clock.Now(), r.nodes.get(s.key())
	if now.Before(look.next) {
		return ctrl.Result{}, nil
	}

	machines, err := r.settledMachines(ctx, s)
	if err != nil || machines == nil {
		r.nodes.forget(s.key())

		return ctrl.Result{}, err
	}

	next, err := r.lookAtNodes(ctx, s, machines, look.seen)
	if err != nil {
		ctrl.LoggerFrom(ctx).Info("Listing orphaned Nodes failed", "error", err.Error())

		return ctrl.Result{}, nil
	}

	pause := nodesInterval
	if len(next) > 0 {
		pause = safety.SecondLook * time.Second
	}

	r.nodes.put(s.key(), nodeLook{next: now.Add(pause), seen: next})

	return ctrl.Result{}, nil
}

// settledMachines returns all machines of the cluster. It returns none while any of them is missing, is being added or
// removed, or is not ready, and none if a user wants all Nodes to be kept: then the owner of a Node cannot be
// determined, or need not be.
func (r *Reconciler) settledMachines(ctx context.Context, s *scope) ([]v1alpha1.TalosMachine, error) {
	if kube.AnnotationTrue(s.cp, v1alpha1.KeepNodeAnnotation) || len(s.extra) > 0 || !s.etcd.Healthy ||
		s.held.State.Runtime.Disruption != nil || int(readyMachines(s)) < len(s.cp.Spec.Machines) {
		return nil, nil
	}

	workers, err := r.workersOf(ctx, s.cp)
	if err != nil {
		return nil, err
	}

	for i := range workers {
		w := &workers[i]
		if deleting(w) || w.Status.ObservedGeneration != w.Generation ||
			!meta.IsStatusConditionTrue(w.Status.Conditions, v1alpha1.ConditionReady) {
			return nil, nil
		}
	}

	list := &v1alpha1.TalosMachineList{}

	err = r.Client.List(ctx, list, client.InNamespace(s.cp.Namespace),
		client.MatchingLabels{v1alpha1.ControlPlaneLabel: s.cp.Name})
	if err != nil {
		return nil, fmt.Errorf("listing the machines of %s: %w", s.cp.Name, err)
	}

	return list.Items, nil
}

// lookAtNodes performs one check. Its result is kept for the next check; it is empty once a Node was removed, so that
// the next orphaned Node has to be observed twice again.
func (r *Reconciler) lookAtNodes(ctx context.Context, s *scope, machines []v1alpha1.TalosMachine,
	seen safety.NodeSightings,
) (safety.NodeSightings, error) {
	cluster, err := r.Workloads.Cluster(ctx, s.held.State.Bundle, s.addresses())
	if err != nil {
		return nil, err
	}

	nodes, err := cluster.Nodes(ctx)
	if err != nil {
		return nil, err
	}

	now := r.Clock.Now().Unix()

	next, stale := safety.StaleNode(r.shown(s, machines), nodes, seen, now)
	if stale == nil {
		return next, nil
	}

	// The statuses may be outdated: a removal requires what the machines themselves report now.
	live, err := r.askMachines(ctx, s, machines)
	if err != nil {
		return nil, err
	}

	if nodes, err = cluster.Nodes(ctx); err != nil {
		return nil, err
	}

	if next, stale = safety.StaleNode(live, nodes, seen, now); stale == nil {
		return next, nil
	}

	removed, err := cluster.RemoveNode(ctx, *stale)
	if err != nil || !removed {
		return nil, err
	}

	related := &corev1.ObjectReference{Kind: "Node", Name: stale.Name}
	r.Recorder.Eventf(s.cp, related, corev1.EventTypeWarning, v1alpha1.ReasonStaleNode, "RemoveNode",
		"Removed the orphaned Node %s: it belongs to no machine, and its kubelet does not report", stale.Name)

	return nil, nil
}

// shown returns the machines according to their statuses, and those that are only recorded.
func (r *Reconciler) shown(s *scope, machines []v1alpha1.TalosMachine) []safety.ClusterMachine {
	out := make([]safety.ClusterMachine, 0, len(machines))

	for i := range machines {
		m := &machines[i]
		st := &m.Status
		out = append(out, safety.ClusterMachine{
			Names: []string{m.Name, st.Hostname, st.NodeName}, UUID: st.UUID,
			Addresses: append(st.Addresses, evidence.Address(m)),
			Well:      !deleting(m) && meta.IsStatusConditionTrue(st.Conditions, v1alpha1.ConditionReady),
		})
	}

	return append(out, onlyRemembered(s, machines)...)
}

// onlyRemembered returns machines that were configured once and have no object now: they may run nevertheless.
func onlyRemembered(s *scope, machines []v1alpha1.TalosMachine) []safety.ClusterMachine {
	listed := map[string]bool{}
	for i := range machines {
		listed[machines[i].Name] = true
	}

	var out []safety.ClusterMachine

	for name, m := range s.held.State.Runtime.Machines {
		if !listed[name] {
			out = append(out, safety.ClusterMachine{
				Names: []string{name}, UUID: m.UUID, Addresses: []string{m.Address}, Remembered: true,
			})
		}
	}

	return out
}

// askMachines queries the hostname and the health of every machine.
func (r *Reconciler) askMachines(ctx context.Context, s *scope, machines []v1alpha1.TalosMachine,
) ([]safety.ClusterMachine, error) {
	out := make([]safety.ClusterMachine, len(machines))
	source := r.source(s)

	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(askAtOnce)

	for i := range machines {
		g.Go(func() (err error) {
			out[i], err = r.askMachine(ctx, source.Ref(&machines[i]), machines[i].Name)

			return err
		})
	}

	if err := g.Wait(); err != nil {
		return nil, err
	}

	return append(out, onlyRemembered(s, machines)...), nil
}

func (r *Reconciler) askMachine(ctx context.Context, ref talos.NodeRef, name string) (safety.ClusterMachine, error) {
	if _, err := r.Nodes.Meet(ctx, ref); err != nil {
		return safety.ClusterMachine{}, err
	}

	node, err := r.Nodes.Node(ctx, ref)
	if err != nil {
		return safety.ClusterMachine{}, err
	}

	f, err := node.Facts(ctx)
	if err != nil {
		return safety.ClusterMachine{}, err
	}

	return safety.ClusterMachine{
		Names: []string{name, f.Hostname, f.NodeName}, UUID: f.UUID,
		Addresses: append(f.Addresses, ref.Address), Well: f.Ready,
	}, nil
}
