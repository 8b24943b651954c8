package workload

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Name and keys of the ConfigMap in kube-system that says who manages a cluster.
const (
	OwnerConfigMap = "talos-operator-owner"
	ownerUID       = "controlPlaneUID"
	ownerName      = "controlPlane"
)

// Claim is what a control plane states about a cluster.
type Claim struct {
	// UID of the TalosControlPlane, and its namespace and name, for people.
	UID, Name string
	// Former is the UID of the one that it took the cluster over from; empty without one.
	Former string
}

// Own returns the UID of the TalosControlPlane that manages the cluster, as the cluster has it. Where it has none, or
// the former one, that is the claimant from then on. Of two claimants at once one gets an error. An error with the UID
// of the claimant says that no other owner is recorded, and that the claim cannot be.
func (c *Cluster) Own(ctx context.Context, claim Claim) (string, error) {
	maps := c.client.CoreV1().ConfigMaps(metav1.NamespaceSystem)

	have, err := maps.Get(ctx, OwnerConfigMap, metav1.GetOptions{})

	switch {
	case apierrors.IsNotFound(err):
		next := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: OwnerConfigMap}, Data: claim.data(),
		}

		_, err = maps.Create(ctx, next, metav1.CreateOptions{})
	case err != nil:
		return "", fmt.Errorf("reading the owner of the cluster: %w", err)
	case have.Data[ownerUID] == claim.UID:
		return claim.UID, nil
	case have.Data[ownerUID] != "" && shown(have.Data[ownerUID]) != claim.Former:
		return shown(have.Data[ownerUID]), nil
	default:
		have.Data = claim.data()
		_, err = maps.Update(ctx, have, metav1.UpdateOptions{})
	}

	switch {
	case err == nil:
		return claim.UID, nil
	case apierrors.IsAlreadyExists(err), apierrors.IsConflict(err):
		return "", fmt.Errorf("recording the owner of the cluster: %w", err)
	}

	return claim.UID, fmt.Errorf("recording the owner of the cluster: %w", err)
}

// Disown has the cluster forget an owner that lets go of it. One that is another's stays.
func (c *Cluster) Disown(ctx context.Context, uid string) error {
	maps := c.client.CoreV1().ConfigMaps(metav1.NamespaceSystem)

	have, err := maps.Get(ctx, OwnerConfigMap, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && have.Data[ownerUID] != uid {
		return nil
	}

	if err == nil {
		have.Data = map[string]string{}
		_, err = maps.Update(ctx, have, metav1.UpdateOptions{})
	}

	if err != nil {
		return fmt.Errorf("taking the owner from the cluster: %w", err)
	}

	return nil
}

// maxUID of an owner that is kept and shown; Kubernetes gives 36 characters.
const maxUID = 64

// shown is the UID of another owner. It is its record that counts, so one that no API server gives is cut and not
// refused.
func shown(uid string) string {
	return strings.ToValidUTF8(uid[:min(len(uid), maxUID)], "")
}

func (c Claim) data() map[string]string {
	return map[string]string{ownerUID: c.UID, ownerName: c.Name}
}
