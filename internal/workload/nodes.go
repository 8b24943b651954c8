package workload

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/safety"
)

// Nodes lists the Node objects of the cluster with their current state in etcd.
func (c *Cluster) Nodes(ctx context.Context) ([]safety.ClusterNode, error) {
	var out []safety.ClusterNode

	all := lists{what: "listing the nodes", size: pageSize, most: maxNodes}

	err := all.each(ctx, func(ctx context.Context, page metav1.ListOptions) (string, error) {
		list, err := c.client.CoreV1().Nodes().List(ctx, page)
		if err != nil {
			return "", err
		}

		next := make([]safety.ClusterNode, len(list.Items))
		for i := range list.Items {
			if next[i] = clusterNode(&list.Items[i]); !fits(next[i]) {
				return "", fmt.Errorf("%w: a Node with a name that no API server takes", ErrTooMuch)
			}
		}

		out = append(out, next...)

		return list.Continue, nil
	})
	if err != nil {
		return nil, err
	}

	return out, nil
}

// Limits of the stored properties of a Node: no API server accepts longer names, and its UIDs and versions are shorter.
// An address may also be a name.
const (
	maxName, maxMark, maxAddresses = 253, 253, 64
)

// fits reports whether an API server could have accepted a Node.
func fits(n safety.ClusterNode) bool {
	marks := slices.Concat(n.Addresses, []string{n.UID, n.Version, n.SystemUUID, n.BootID})

	return len(n.Name) <= maxName && len(n.Addresses) <= maxAddresses &&
		!slices.ContainsFunc(marks, func(text string) bool { return len(text) > maxMark })
}

// Ready reports whether the cluster itself considers the node of a machine alive: a node whose kubelet has stopped
// reporting is not ready.
func (c *Cluster) Ready(ctx context.Context, ref NodeRef) (bool, error) {
	n, err := c.node(ctx, ref)
	if n == nil || err != nil {
		return false, err
	}

	return clusterNode(n).Ready, nil
}

// NodeStatus is what a cluster reports about the Node of a machine.
type NodeStatus struct {
	// Exists: there is a Node with the name, and no other machine has registered it.
	Exists bool
	// Ready according to the cluster, since the boot with the ID.
	Ready  bool
	BootID string
	// Cordoned: it is unschedulable. Marked: it was cordoned with the mark of the reference, so that Uncordon changes it.
	// Stale: it has that mark, and another client has uncordoned it since.
	Cordoned, Marked, Stale bool
}

// Status reads the Node of a machine.
func (c *Cluster) Status(ctx context.Context, ref NodeRef) (NodeStatus, error) {
	n, err := c.client.CoreV1().Nodes().Get(ctx, ref.Name, metav1.GetOptions{})

	switch {
	case apierrors.IsNotFound(err):
		return NodeStatus{}, nil
	case err != nil:
		return NodeStatus{}, fmt.Errorf("reading node %s: %w", ref.Name, err)
	}

	have, isMarked := clusterNode(n), n.Annotations[v1alpha1.CordonedAnnotation] == ref.mark(n)

	return NodeStatus{
		Exists: !ref.contradicts(n), Ready: have.Ready, BootID: have.BootID, Cordoned: n.Spec.Unschedulable,
		Marked: isMarked && n.Spec.Unschedulable, Stale: isMarked && !n.Spec.Unschedulable,
	}, nil
}

// ObserveNode queries the cluster whether the Node of a returned machine is ready, whichever machine registered it. If
// the query is not possible or fails, the state is unknown.
func ObserveNode(ctx context.Context, connect func(context.Context) (*Cluster, error), f *safety.Fencing) {
	f.Node = safety.NodeUnknown

	cluster, err := connect(ctx)
	if err != nil {
		f.NodeError = failure.Message(err)

		return
	}

	for _, name := range f.NodeNames() {
		ready, err := cluster.Ready(ctx, NodeRef{Name: name})
		if err != nil {
			f.NodeError = failure.Message(err)

			return
		}

		if f.NodeName = name; ready {
			f.Node = safety.NodeReady

			return
		}
	}

	name, err := cluster.ReadyWith(ctx, f.Found.UUID)

	switch {
	case err != nil:
		f.NodeError = failure.Message(err)
	case name != "":
		f.Node, f.NodeName = safety.NodeReady, name
	default:
		f.Node = safety.NodeNotReady
	}
}

// ReadyWith returns the name of a ready Node of a machine whose Node may have any name, by the UUID of its firmware;
// empty if there is none.
func (c *Cluster) ReadyWith(ctx context.Context, uuid string) (string, error) {
	if uuid == "" {
		return "", nil
	}

	all, err := c.Nodes(ctx)
	if err != nil {
		return "", err
	}

	for _, n := range all {
		if n.Ready && strings.EqualFold(n.SystemUUID, uuid) {
			return n.Name, nil
		}
	}

	return "", nil
}

func clusterNode(n *corev1.Node) safety.ClusterNode {
	out := safety.ClusterNode{
		Name: n.Name, UID: string(n.UID), Version: n.ResourceVersion, SystemUUID: n.Status.NodeInfo.SystemUUID,
		BootID: n.Status.NodeInfo.BootID,
		Talos:  strings.HasPrefix(n.Status.NodeInfo.OSImage, "Talos"),
		Kept:   n.Annotations[v1alpha1.KeepNodeAnnotation] == "true",
	}

	for _, a := range n.Status.Addresses {
		if a.Type == corev1.NodeInternalIP || a.Type == corev1.NodeExternalIP {
			out.Addresses = append(out.Addresses, a.Address)
		}
	}

	for _, cond := range n.Status.Conditions {
		if cond.Type == corev1.NodeReady {
			out.Ready, out.Silent = cond.Status == corev1.ConditionTrue, cond.Status == corev1.ConditionUnknown
		}
	}

	return out
}

// RemoveNode deletes a Node object as it was read. It returns false, and no error, if the object is already deleted or
// has changed since then.
func (c *Cluster) RemoveNode(ctx context.Context, n safety.ClusterNode) (bool, error) {
	uid := types.UID(n.UID)

	err := c.client.CoreV1().Nodes().Delete(ctx, n.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &n.Version},
	})

	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("deleting node %s: %w", n.Name, err)
	}

	return true, nil
}
