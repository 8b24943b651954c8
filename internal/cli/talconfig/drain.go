package talconfig

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/decide/change"
	"github.com/talos-operator/talos-operator/internal/talos"
	"github.com/talos-operator/talos-operator/internal/workload"
)

// drainer moves the pods off the nodes that reboot.
type drainer struct {
	// mark of the Nodes that are cordoned. All runs for a cluster have the same one, so that a run ends what an
	// interrupted one has begun.
	mark string
	// isOff: nodes reboot with their pods. What an earlier run has cordoned is uncordoned all the same.
	isOff     bool
	timeout   time.Duration
	onTimeout v1alpha1.DrainTimeout
	now       func() time.Time
}

// drainTimeouts are the values of --on-drain-timeout.
var drainTimeouts = []v1alpha1.DrainTimeout{v1alpha1.DrainHold, v1alpha1.DrainForce, v1alpha1.DrainSkip}

func (a *applier) drainer(fleet fleetFile) (*drainer, error) {
	onTimeout := v1alpha1.DrainTimeout(a.onDrainTimeout)

	if !slices.Contains(drainTimeouts, onTimeout) {
		return nil, fmt.Errorf("--on-drain-timeout is Hold, Force or Skip, not %q", a.onDrainTimeout)
	}

	return &drainer{
		isOff: a.noDrain, mark: workload.ApplyMark + fleet.Config.ClusterName,
		timeout: a.drainTimeout, onTimeout: onTimeout, now: a.now,
	}, nil
}

// kubernetesAPI is the Kubernetes API of the cluster.
type kubernetesAPI struct {
	// open connects to it, anew for each step: the API server that responded may be on the node that reboots.
	open func(ctx context.Context, addresses []string) (*workload.Cluster, error)
	// isGiven: it is that of a kubeconfig, and nothing but its Nodes proves that it is the API of this cluster.
	isGiven bool
}

func (a *applier) kubernetes(bundle *clusterstate.Bundle) (kubernetesAPI, error) {
	if a.kubeconfig == "" {
		clients := &workload.Clients{Clock: clock.RealClock{}}

		return kubernetesAPI{open: func(ctx context.Context, addresses []string) (*workload.Cluster, error) {
			return clients.Cluster(ctx, bundle, addresses)
		}}, nil
	}

	cfg, err := clientcmd.BuildConfigFromFlags("", a.kubeconfig)
	if err != nil {
		return kubernetesAPI{}, fmt.Errorf("reading --kubeconfig: %w", err)
	}

	return kubernetesAPI{isGiven: true, open: func(ctx context.Context, _ []string) (*workload.Cluster, error) {
		return workload.Open(ctx, cfg)
	}}, nil
}

func (d *drive) planes() []*target {
	return slices.DeleteFunc(slices.Clone(d.nodes), func(t *target) bool { return !t.ControlPlane })
}

// kubernetes connects to the Kubernetes API of the cluster.
func (d *drive) kubernetes(ctx context.Context) (*workload.Cluster, error) {
	var addresses []string
	for _, t := range d.planes() {
		if t.bare == nil || t.isConfigured {
			addresses = append(addresses, t.address)
		}
	}

	return d.api.open(ctx, addresses)
}

// identify reads what identifies the Node of a machine.
func (d *drive) identify(ctx context.Context, t *target, node *talos.Node) error {
	facts, err := node.Facts(ctx)
	t.ref = workload.NodeRef{Name: facts.NodeName, UUID: facts.UUID, BootID: facts.BootID, Mark: d.drain.mark}
	t.hostname, t.wasReady = facts.Hostname, err == nil && isReady(facts)

	return err
}

// lookUp asks Kubernetes about the Nodes of the selected machines. It changes nothing. Without Kubernetes, no node can
// be drained, and so none that reboots is changed.
func (d *drive) lookUp(ctx context.Context) error {
	runs := func(t *target) bool { return t.isSelected && t.bare == nil }
	if d.isNew || !slices.ContainsFunc(d.nodes, runs) {
		return nil
	}

	err := d.observe(ctx)
	reboots := slices.DeleteFunc(slices.Clone(d.nodes), func(t *target) bool { return !t.reboots })

	switch {
	case err == nil:
		return nil
	case len(reboots) == 0, d.drain.isOff:
		d.warn("Warning: it is unknown whether an earlier run has left nodes cordoned: %v", err)

		return nil
	}

	names := make([]string, len(reboots))
	for i, t := range reboots {
		names[i] = t.Hostname
	}

	return fmt.Errorf("%s cannot be drained before the reboot: %w; repair the Kubernetes API, name its kubeconfig by "+
		"--kubeconfig, or reboot the nodes with their pods by --no-drain; nothing was changed", change.List(names), err)
}

func (d *drive) observe(ctx context.Context) error {
	cluster, err := d.kubernetes(ctx)
	if err != nil {
		return err
	}

	for _, t := range d.nodes {
		if !t.isSelected || t.ref.Name == "" {
			continue // without a name, the drain tells what is missing
		}

		status, err := cluster.Status(ctx, t.ref)
		if err != nil {
			return err
		}

		// Another cluster may have a Node of this name.
		if d.api.isGiven && status.Exists && !strings.EqualFold(status.BootID, t.ref.BootID) {
			return fmt.Errorf("the Node %s was not reported by the machine at %s since it booted: check --kubeconfig",
				t.ref.Name, t.address)
		}

		t.status = status
	}

	return nil
}

// empty cordons a node and evicts its pods. It returns nil once all of them have left, or once the node may reboot with
// those that remain.
func (d *drive) empty(ctx context.Context, t *target) error {
	d.say("%s: draining.", t.Hostname)

	began, told, before := d.drain.now(), "", []string(nil)

	err := wait.PollUntilContextCancel(ctx, poll, true, func(ctx context.Context) (bool, error) {
		took := d.drain.now().Sub(began)

		left, err := d.evict(ctx, t, took)
		if err == nil {
			d.tellGone(t, before, left)

			before = left
		}

		if text := waitsFor(left, err); text != told {
			told = text
			if text != "" {
				d.say("%s: waiting for %s.", t.Hostname, text)
			}
		}

		return d.drain.judge(left, err, took, d.timeout)
	})

	switch {
	case err != nil:
		return fmt.Errorf("draining: %w", err)
	case told != "":
		d.say("%s: reboots regardless of %s, after %s.", t.Hostname, told, d.drain.timeout)
	default:
		d.say("%s: drained.", t.Hostname)
	}

	return nil
}

// evict takes one step of a drain. The machine may have rebooted since the plan was made.
func (d *drive) evict(ctx context.Context, t *target, took time.Duration) ([]string, error) {
	node, err := d.pool.Node(ctx, d.ref(t))
	if err != nil {
		return nil, err
	}

	if err := d.identify(ctx, t, node); err != nil {
		return nil, err
	}

	if t.ref.Name == "" {
		return nil, &workload.NodeUnclearError{
			Why: "Talos does not report yet which name its kubelet registers with",
		}
	}

	cluster, err := d.kubernetes(ctx)
	if err != nil {
		return nil, err
	}

	// From here on the node may be cordoned, whatever comes back.
	before := t.drained
	t.drained = true

	left, err := cluster.Drain(ctx, t.ref, workload.DrainOptions{
		GracePeriodSeconds: -1, Force: d.drain.isForced(took),
		Running: node.RunningPods,
	})

	// Of a machine whose Node is unclear, none was.
	if unclear := (*workload.NodeUnclearError)(nil); errors.As(err, &unclear) {
		t.drained = before
	}

	return left, err
}

func (dr *drainer) isForced(took time.Duration) bool {
	return took >= dr.timeout && dr.onTimeout == v1alpha1.DrainForce
}

// judge decides from one step of a drain whether it is over. What it took is compared with the timeout of the drain,
// and where pods are deleted after that, they get as long as a node gets to become healthy.
func (dr *drainer) judge(left []string, err error, took, health time.Duration) (bool, error) {
	var unclear *workload.NodeUnclearError

	isUnclear := errors.As(err, &unclear)

	switch {
	case err == nil && len(left) == 0:
		return true, nil
	case took < dr.timeout:
		return false, nil
	case dr.onTimeout == v1alpha1.DrainSkip && (err == nil || isUnclear):
		return true, nil
	case dr.onTimeout == v1alpha1.DrainForce && !isUnclear && took < dr.timeout+health:
		return false, nil
	case isUnclear:
		return false, fmt.Errorf("it is not drained after %s: %s; %s, or use --on-drain-timeout Skip", dr.timeout,
			unclear.Why, cmp.Or(unclear.Next, "let its kubelet register, delete the named Node if no machine runs under that "+
				"name"))
	case err != nil:
		return false, fmt.Errorf("it is not drained after %s: %w", dr.timeout, err)
	case dr.onTimeout == v1alpha1.DrainForce:
		return false, fmt.Errorf("its pods were deleted, and have not ended: %s", change.List(left))
	}

	return false, fmt.Errorf("it is not drained after %s, because of %s; move these pods, or use --on-drain-timeout "+
		"Force or Skip", dr.timeout, change.List(left))
}

// waitsFor says what a drain waits for; empty if it waits for nothing.
func waitsFor(left []string, err error) string {
	var unclear *workload.NodeUnclearError

	switch {
	case errors.As(err, &unclear):
		return "a Node to drain: " + unclear.Why
	case err != nil:
		return "a response: " + err.Error()
	}

	return change.List(left)
}

// tellGone tells which pods have left since the last step.
func (d *drive) tellGone(t *target, before, left []string) {
	names := func(pods []string) []string {
		out := make([]string, len(pods))
		for i, pod := range pods {
			out[i], _, _ = strings.Cut(pod, " ") // what follows is its state
		}

		return out
	}

	remain := names(left)
	for _, pod := range names(before) {
		if !slices.Contains(remain, pod) {
			d.say("%s: %s has left.", t.Hostname, pod)
		}
	}
}

// registered reports what Kubernetes lacks to call a node that was drained ready in this boot: pods have to find room
// there before the next node is drained.
func (d *drive) registered(ctx context.Context, t *target, boot string) error {
	if !t.drained || !t.status.Exists {
		return nil
	}

	cluster, err := d.kubernetes(ctx)
	if err != nil {
		return err
	}

	status, err := cluster.Status(ctx, t.ref)
	if err != nil {
		return err
	}

	if !status.Ready || !strings.EqualFold(status.BootID, boot) {
		return fmt.Errorf("its Node %s is not ready since the reboot", t.ref.Name)
	}

	return nil
}

// release uncordons a node that this run has cordoned, or an earlier one. One that was cordoned by another client keeps
// that, and the mark of one that was uncordoned by another client goes.
func (d *drive) release(ctx context.Context, t *target) error {
	if !t.drained && !t.status.Marked && !t.status.Stale {
		return nil
	}

	t.begin("uncordoning it", "it is healthy with its config")

	was := false

	err := d.until(ctx, "it is not uncordoned", 1, func(ctx context.Context) error {
		cluster, err := d.kubernetes(ctx)
		if err != nil {
			return err
		}

		status, err := cluster.Status(ctx, t.ref)

		switch {
		case err != nil:
			return err
		case status.Stale:
			return cluster.Unmark(ctx, t.ref)
		case !status.Marked:
			return nil
		}

		was = true

		return cluster.Uncordon(ctx, t.ref)
	})
	if err == nil && was {
		d.say("%s: uncordoned.", t.Hostname)
	}

	return err
}

// left says what an interrupted run leaves behind.
func (t *target) left() string {
	if t.drained && !t.status.Cordoned || t.status.Marked {
		return "; the node stays cordoned until then"
	}

	return ""
}
