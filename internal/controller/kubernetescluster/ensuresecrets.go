package kubernetescluster

import (
	"bytes"
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/kube"
)

// ensureSecrets moves key material from the spec into a Secret.
func (r *Reconciler) ensureSecrets(ctx context.Context, s *scope) error {
	data := s.bootstrapSecrets()
	if data == nil {
		return nil
	}

	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: s.cluster.Namespace, Name: s.bootstrapSecretsName()}

	err := r.Reader.Get(ctx, key, secret)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading Secret %s: %w", key.Name, err)
	}

	exists := err == nil
	earlier := exists && kube.EarlierLife(secret, s.cluster, "KubernetesCluster")

	if exists && !earlier && !metav1.IsControlledBy(secret, s.cluster) {
		return failure.Terminal(vitistackv1alpha1.ReasonOwnerReferenceError,
			"Secret "+key.Name+" exists and is controlled by another owner; it "+
				"was not changed", nil)
	}

	if exists && !earlier && maps.EqualFunc(secret.Data, data, bytes.Equal) {
		return nil
	}

	secret.Namespace, secret.Name = key.Namespace, key.Name
	secret.Labels = map[string]string{vitistackv1alpha1.ClusterNameLabel: s.name}
	secret.Data = data
	secret.OwnerReferences = nil

	if err := controllerutil.SetControllerReference(s.cluster, secret, r.Client.Scheme()); err != nil {
		return failure.Terminal(vitistackv1alpha1.ReasonOwnerReferenceError, "setting the owner of Secret "+key.Name, err)
	}

	if exists {
		return r.Client.Update(ctx, secret)
	}

	return r.Client.Create(ctx, secret)
}
