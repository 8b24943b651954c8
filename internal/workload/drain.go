package workload

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/kubectl/pkg/drain"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/text"
)

// Cluster is the Kubernetes API of one managed cluster, at any API server that responds.
type Cluster struct {
	client kubernetes.Interface
	rest   *rest.Config
}

// Cluster connects to the first API server that is ready.
func (c *Clients) Cluster(ctx context.Context, b *clusterstate.Bundle, addresses []string) (*Cluster, error) {
	at, err := c.ready(ctx, b, addresses)
	if err != nil {
		return nil, err
	}

	have, err := c.client(b, at.address)
	if err != nil {
		return nil, err
	}

	client, err := have.kubernetes()
	if err != nil {
		return nil, err
	}

	return &Cluster{client: client, rest: have.rest}, nil
}

// DrainOptions determine how pods are evicted from a node.
type DrainOptions struct {
	// GracePeriodSeconds of the pods; their own when negative.
	GracePeriodSeconds int
	// Force deletes pods regardless of their PodDisruptionBudgets.
	Force bool
	// Running returns the pods that the machine runs, except static pods, as namespace/name. It is called if Kubernetes
	// has neither a Node nor pods of the machine: pods whose Node was deleted are deleted soon after, whether the kubelet
	// has ended them or not. If it is nil, such a machine counts as drained.
	Running func(context.Context) ([]string, error)
}

// NodeRef identifies the Node object of one machine.
type NodeRef struct {
	// Name that the machine's kubelet registers with.
	Name string
	// UUID of the machine's firmware. A Node with the name that was registered by another machine does not match.
	UUID string
	// BootID of the machine, if it is known. A Node with this boot ID is that of the machine, whatever its UUID is: the
	// kubelet reports the UUID of the firmware also where Talos was given another one, in its META partition.
	BootID string
	// Mark of what drains in place of the operator; empty for the operator. A Node that was cordoned with one mark is not
	// uncordoned with another: what drains does not undo what the operator, a user or another run has cordoned.
	Mark string
}

// ApplyMark is how the marks of the runs of talconfig apply begin.
const ApplyMark = "apply/"

// is reports whether the kubelet of the machine has reported a Node since it booted.
func (r NodeRef) is(n *corev1.Node) bool {
	return r.BootID != "" && strings.EqualFold(n.Status.NodeInfo.BootID, r.BootID)
}

// differs reports whether a Node has another UUID than the machine.
func (r NodeRef) differs(n *corev1.Node) bool {
	have := n.Status.NodeInfo.SystemUUID

	return have != "" && r.UUID != "" && !strings.EqualFold(have, r.UUID)
}

// contradicts reports whether a Node was registered by another machine.
func (r NodeRef) contradicts(n *corev1.Node) bool { return r.differs(n) && !r.is(n) }

// mark returns the value of CordonedAnnotation on the Node of the machine. After a reboot the boot ID no longer tells
// that it is the same one, so a UUID that differs is kept there.
func (r NodeRef) mark(n *corev1.Node) string {
	switch {
	case !r.differs(n):
		return cmp.Or(r.Mark, "true")
	case r.Mark == "":
		return r.UUID
	}

	return r.Mark + "/" + r.UUID
}

// node reads a Node object; nil if this machine has none.
func (c *Cluster) node(ctx context.Context, ref NodeRef) (*corev1.Node, error) {
	n, err := c.client.CoreV1().Nodes().Get(ctx, ref.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}

	if err != nil {
		return nil, fmt.Errorf("reading node %s: %w", ref.Name, err)
	}

	if ref.contradicts(n) {
		return nil, nil
	}

	return n, nil
}

// NodeUnclearError means that the cluster does not say which Node is that of a machine.
type NodeUnclearError struct {
	// Why is half a sentence, for people.
	Why string
	// Next is what a user can do about it, in the same form; empty if it depends on the Node that Why names.
	Next string

	cause error
}

// Error implements error.
func (e *NodeUnclearError) Error() string { return "the Node of the machine is unknown: " + e.Why }

// Unwrap returns the cause, if there is one.
func (e *NodeUnclearError) Unwrap() error { return e.cause }

// drained returns the Node to drain; nil if the machine has none: it never registered, or its Node was deleted. A Node
// that another machine registered under its name, or that it registered under another name, is an error: pods may run
// on the machine that a drain of this name does not find.
func (c *Cluster) drained(ctx context.Context, ref NodeRef) (*corev1.Node, error) {
	n, err := c.client.CoreV1().Nodes().Get(ctx, ref.Name, metav1.GetOptions{})

	switch {
	case apierrors.IsNotFound(err):
		return nil, c.elsewhere(ctx, ref)
	case err != nil:
		return nil, fmt.Errorf("reading node %s: %w", ref.Name, err)
	}

	if ref.contradicts(n) {
		return nil, &NodeUnclearError{Why: fmt.Sprintf("the Node %s has the system UUID %s, and the machine %s",
			ref.Name, text.Name(text.Cut(n.Status.NodeInfo.SystemUUID, maxShownUUID)), ref.UUID)}
	}

	return n, nil
}

// elsewhere returns an error if the machine has registered under another name than the one that is missing.
func (c *Cluster) elsewhere(ctx context.Context, ref NodeRef) error {
	all, err := c.Nodes(ctx)
	if err != nil {
		return err
	}

	for _, n := range all {
		for _, same := range []struct{ what, have, want string }{
			{"boot ID", n.BootID, ref.BootID}, {"system UUID", n.SystemUUID, ref.UUID},
		} {
			if same.want != "" && strings.EqualFold(same.have, same.want) {
				return &NodeUnclearError{Why: fmt.Sprintf("there is no Node %s, and the Node %s has the %s of the machine",
					ref.Name, text.Name(n.Name), same.what)}
			}
		}
	}

	return nil
}

// Drain takes one step of a drain: it cordons the node and evicts every pod that has to leave. It returns the remaining
// pods as namespace/name, with the reason if it is known; none means that the node is drained. Pods of DaemonSets and
// static pods remain. Pods whose Node was deleted have to leave too: the kubelet may still run them. A machine of which
// it is unknown which Node is its own is a NodeUnclearError.
func (c *Cluster) Drain(ctx context.Context, ref NodeRef, o DrainOptions) ([]string, error) {
	node := ref.Name

	n, err := c.drained(ctx, ref)
	if err != nil {
		return nil, err
	}

	if n != nil {
		if err := c.cordon(ctx, n, ref.mark(n)); err != nil {
			return nil, err
		}
	}

	pods, err := c.podsOn(ctx, node)
	if err != nil {
		return nil, err
	}

	// The helper would list pods for as long as the API server returns further pages.
	h := &drain.Helper{
		Ctx: ctx, Client: listed{Interface: c.client, pods: pods}, Force: true, GracePeriodSeconds: o.GracePeriodSeconds,
		IgnoreAllDaemonSets: true, DeleteEmptyDirData: true, DisableEviction: o.Force, Out: io.Discard, ErrOut: io.Discard,
	}

	list, errs := h.GetPodsForDeletion(node)
	if len(errs) > 0 {
		return nil, fmt.Errorf("finding the pods of node %s: %w", node, errs[0])
	}

	var left []string

	for _, pod := range list.Pods() {
		left = append(left, c.evict(ctx, h, pod))
	}

	slices.Sort(left)

	if n == nil && len(left) == 0 && o.Running != nil {
		return nil, outlived(ctx, ref, o)
	}

	return left, nil
}

// outlived returns an error if a machine without a Node runs pods although Kubernetes has none of it, or does not say
// whether it does: its kubelet could not be told that they were deleted, or has not ended them yet.
func outlived(ctx context.Context, ref NodeRef, o DrainOptions) error {
	left, err := o.Running(ctx)

	switch {
	case ctx.Err() != nil:
		return ctx.Err() // a list of pods that came at the last moment is no reason to go on
	case err != nil:
		return &NodeUnclearError{Why: fmt.Sprintf("there is no Node %s, and it is unknown which pods the machine runs (%s)",
			ref.Name, failure.Message(err)), Next: "repair or reboot the machine", cause: err}
	case len(left) > 0:
		return &NodeUnclearError{Why: fmt.Sprintf("there is no Node %s, and the machine still runs %s", ref.Name,
			text.Cut(strings.Join(left, ", "), maxName)), Next: "restart its kubelet, so that it registers and ends them"}
	}

	return nil
}

// Uncordon makes a node schedulable again if it was cordoned by Drain for this machine. It does nothing for a node that
// does not exist.
func (c *Cluster) Uncordon(ctx context.Context, ref NodeRef) error {
	n, err := c.client.CoreV1().Nodes().Get(ctx, ref.Name, metav1.GetOptions{})

	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("reading node %s: %w", ref.Name, err)
	case n.Annotations[v1alpha1.CordonedAnnotation] != ref.mark(n):
		return nil
	}

	return c.schedule(ctx, n, "uncordoning", nil, nil)
}

// Unmark removes the mark of the reference from a node that another client has uncordoned. If it stayed, the next
// manual cordon of this node would count as that of Drain, and be undone.
func (c *Cluster) Unmark(ctx context.Context, ref NodeRef) error {
	n, err := c.client.CoreV1().Nodes().Get(ctx, ref.Name, metav1.GetOptions{})

	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("reading node %s: %w", ref.Name, err)
	case n.Spec.Unschedulable || n.Annotations[v1alpha1.CordonedAnnotation] != ref.mark(n):
		return nil
	}

	return c.schedule(ctx, n, "removing the mark of", nil, nil)
}

// cordon makes a node unschedulable, and marks it as cordoned by the operator.
func (c *Cluster) cordon(ctx context.Context, n *corev1.Node, mark string) error {
	if n.Spec.Unschedulable {
		return nil
	}

	return c.schedule(ctx, n, "cordoning", mark, true)
}

// schedule changes whether pods are put on a node, and its mark. It fails if the Node has changed since it was read:
// another client may have cordoned it in the meantime.
func (c *Cluster) schedule(ctx context.Context, n *corev1.Node, doing string, mark, unschedulable any) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{
			"resourceVersion": n.ResourceVersion, "annotations": map[string]any{v1alpha1.CordonedAnnotation: mark},
		},
		"spec": map[string]any{"unschedulable": unschedulable},
	})
	if err == nil {
		_, err = c.client.CoreV1().Nodes().Patch(ctx, n.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	}

	if err != nil {
		return fmt.Errorf("%s node %s: %w", doing, n.Name, err)
	}

	return nil
}

// evict requests the eviction of one pod, unless it is already terminating, and returns its state.
func (c *Cluster) evict(ctx context.Context, h *drain.Helper, pod corev1.Pod) string {
	name := pod.Namespace + "/" + pod.Name
	if pod.DeletionTimestamp != nil {
		return name + " (is ending)"
	}

	var err error
	if h.DisableEviction {
		err = h.DeletePod(pod)
	} else {
		err = h.EvictPod(pod, policyv1.SchemeGroupVersion)
	}

	switch {
	case err == nil, apierrors.IsNotFound(err):
		return name
	case apierrors.IsTooManyRequests(err):
		return name + " (held by " + c.budgets(ctx, pod) + ")"
	}

	return fmt.Sprintf("%s (not evicted: %s)", name, cmp.Or(string(apierrors.ReasonForError(err)), "no answer"))
}

// budgets returns the names of the PodDisruptionBudgets of a pod. The response to an eviction contains one only in a
// human-readable text.
func (c *Cluster) budgets(ctx context.Context, pod corev1.Pod) string {
	var names []string

	all := lists{what: "listing the PodDisruptionBudgets", size: pageSize, most: maxBudgets}

	err := all.each(ctx, func(ctx context.Context, page metav1.ListOptions) (string, error) {
		list, err := c.client.PolicyV1().PodDisruptionBudgets(pod.Namespace).List(ctx, page)
		if err != nil {
			return "", err
		}

		for i := range list.Items {
			b := &list.Items[i]

			selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
			if err == nil && len(names) < maxShown && len(b.Name) <= maxName && selector.Matches(labels.Set(pod.Labels)) {
				names = append(names, b.Name)
			}
		}

		return list.Continue, nil
	})
	if err != nil {
		return "its PodDisruptionBudget"
	}

	// A webhook may send the same response.
	if len(names) == 0 {
		return "a response that asks to retry later"
	}

	slices.Sort(names)

	return "PodDisruptionBudget " + strings.Join(names, ", ")
}

// DeleteNode removes a Node object; a missing one is no error.
func (c *Cluster) DeleteNode(ctx context.Context, ref NodeRef) error {
	n, err := c.node(ctx, ref)
	if n == nil || err != nil {
		return err
	}

	err = c.client.CoreV1().Nodes().Delete(ctx, n.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &n.UID},
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting node %s: %w", n.Name, err)
	}

	return nil
}
