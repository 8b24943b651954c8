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
	"github.com/talos-operator/talos-operator/internal/controller/evidence"
	"github.com/talos-operator/talos-operator/internal/kube"
	"github.com/talos-operator/talos-operator/internal/safety"
	"github.com/talos-operator/talos-operator/internal/talos"
)

const (
	// nodesInterval is how often the Node objects of a cluster are looked at while all of them belong to somebody.
	nodesInterval = 5 * time.Minute
	// askAtOnce bounds how many machines of one cluster are asked at the same time: there may be a thousand.
	askAtOnce = 16
)

// nodeLooks remembers when the Node objects of each cluster are looked at next, and what was seen. A restart forgets
// it, and they are looked at twice again: that only takes longer.
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

// removeStaleNode removes one Node object of the cluster that belongs to no machine, after two looks a minute apart.
// It holds nothing up and fails nothing: the next look finds what this one missed.
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

// settledMachines are all machines of the cluster. It returns none while any of them is missing, on its way in or out,
// or not ready, and none when a person wants all Nodes kept: then nobody can tell whose a Node is, or need not.
func (r *Reconciler) settledMachines(ctx context.Context, s *scope) ([]v1alpha1.TalosMachine, error) {
	if kube.AnnotationTrue(s.cp, v1alpha1.KeepNodeAnnotation) || len(s.extra) > 0 || !s.etcd.Healthy ||
		s.held.State.Runtime.Disruption != nil || int(readyMachines(s)) < len(s.cp.Spec.Machines) {
		return nil, nil
	}

	workers := &v1alpha1.TalosWorkerList{}
	if err := r.Client.List(ctx, workers, client.InNamespace(s.cp.Namespace), kube.Shared); err != nil {
		return nil, fmt.Errorf("listing the worker groups of %s: %w", s.cp.Name, err)
	}

	for i := range workers.Items {
		w := &workers.Items[i]
		if w.Spec.ControlPlaneRef.Name == s.cp.Name && (deleting(w) || w.Status.ObservedGeneration != w.Generation ||
			!meta.IsStatusConditionTrue(w.Status.Conditions, v1alpha1.ConditionReady)) {
			return nil, nil
		}
	}

	list := &v1alpha1.TalosMachineList{}

	err := r.Client.List(ctx, list, client.InNamespace(s.cp.Namespace),
		client.MatchingLabels{v1alpha1.ControlPlaneLabel: s.cp.Name})
	if err != nil {
		return nil, fmt.Errorf("listing the machines of %s: %w", s.cp.Name, err)
	}

	return list.Items, nil
}

// lookAtNodes takes one look. What it returns is kept for the next one; nothing once a Node was removed, so that the
// next one is seen twice again.
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

	// The statuses may be old: only what the machines say themselves, now, counts for a removal.
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

// shown are the machines as their statuses show them, and those that are only remembered.
func (r *Reconciler) shown(s *scope, machines []v1alpha1.TalosMachine) []safety.ClusterMachine {
	out := make([]safety.ClusterMachine, 0, len(machines))

	for i := range machines {
		m := &machines[i]
		st := &m.Status
		out = append(out, safety.ClusterMachine{
			Names: []string{m.Name, st.Hostname}, UUID: st.UUID, Addresses: append(st.Addresses, evidence.Address(m)),
			Well: !deleting(m) && meta.IsStatusConditionTrue(st.Conditions, v1alpha1.ConditionReady),
		})
	}

	return append(out, onlyRemembered(s, machines)...)
}

// onlyRemembered are machines that got a config once and have no object now: they may run all the same.
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

// askMachines asks every machine what it is called, and whether it is well.
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
		Names: []string{name, f.Hostname}, UUID: f.UUID, Addresses: append(f.Addresses, ref.Address), Well: f.Ready,
	}, nil
}
