package workload

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Name and keys of the ConfigMap in kube-system that records who manages a cluster.
const (
	OwnerConfigMap = "talos-operator-owner"
	ownerUID       = "controlPlaneUID"
	ownerName      = "controlPlane"
)

// Claim is the claim of a control plane to own a cluster.
type Claim struct {
	// UID of the TalosControlPlane, and its namespace and name, for users.
	UID, Name string
	// Former is the UID of the previous owner; empty if there is none.
	Former string
}

// Own returns the UID of the TalosControlPlane that the cluster records as its owner. If it records none, or the former
// one, the claimant becomes the owner. Of two concurrent claimants, one gets an error. An error with the UID of the
// claimant means that no other owner is recorded, and that the claim cannot be recorded.
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

// Disown removes the record of an owner that releases the cluster. The record of another owner is kept.
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

// maxUID is the maximum length of an owner's UID that is stored and shown; Kubernetes uses 36 characters.
const maxUID = 64

// shown returns the UID of another owner. The existence of the record matters, so an invalid UID is shortened and not
// rejected.
func shown(uid string) string {
	return strings.ToValidUTF8(uid[:min(len(uid), maxUID)], "")
}

func (c Claim) data() map[string]string {
	return map[string]string{ownerUID: c.UID, ownerName: c.Name}
}
