package workload

import (
	"context"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Contents is what a cluster's API reports about the contents of etcd.
type Contents struct {
	// Revision of etcd at the time of the query.
	Revision int64
	// Namespaces and Secrets are their numbers. All Secrets were read: encrypted ones could be decrypted.
	Namespaces, Secrets int
}

// Contents reads from etcd, not from a cache of the API server. None of the contents is stored.
func (c *Cluster) Contents(ctx context.Context) (Contents, error) {
	var out Contents

	count, revision, err := c.tally(ctx, "namespaces", lists{what: "listing the ", size: pageSize, most: maxNamespaces})
	if err != nil {
		return out, err
	}

	out.Namespaces = count

	if out.Revision, err = strconv.ParseInt(revision, 10, 64); err != nil {
		return out, fmt.Errorf("reading the revision of the cluster: %w", err)
	}

	out.Secrets, _, err = c.tally(ctx, "secrets", lists{what: "reading the ", size: pageSize, most: maxSecrets})

	return out, err
}

// Alive reports whether the kubelet of a node has renewed its lease after a time and the node is ready. The Node object
// alone may be as old as a backup.
func (c *Cluster) Alive(ctx context.Context, ref NodeRef, after time.Time) (bool, error) {
	n, err := c.node(ctx, ref)
	if n == nil || err != nil {
		return false, err
	}

	lease, err := c.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, n.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}

	if err != nil {
		return false, fmt.Errorf("reading the lease of node %s: %w", n.Name, err)
	}

	if lease.Spec.RenewTime == nil || !lease.Spec.RenewTime.After(after) {
		return false, nil
	}

	for _, cond := range n.Status.Conditions {
		if cond.Type == corev1.NodeReady {
			return cond.Status == corev1.ConditionTrue, nil
		}
	}

	return false, nil
}
