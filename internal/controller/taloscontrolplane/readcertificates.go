package taloscontrolplane

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/internal/clusterstate"
)

// readCertificates reads when the certificates of a paused cluster expire, and writes nothing.
func (r *Reconciler) readCertificates(ctx context.Context, s *scope) (ctrl.Result, error) {
	s.seeAuthorities(r.Clock.Now())

	for _, c := range []credentials{
		{kind: certificateTalosconfig, key: talosconfigKey, end: clusterstate.TalosconfigExpiry},
		{kind: certificateKubeconfig, key: kubeconfigKey, end: clusterstate.KubeconfigExpiry},
	} {
		secret := &corev1.Secret{}
		name := s.clusterName() + "-" + c.kind

		err := r.Reader.Get(ctx, client.ObjectKey{Namespace: s.cp.Namespace, Name: name}, secret)
		if client.IgnoreNotFound(err) != nil {
			return ctrl.Result{}, fmt.Errorf("reading Secret %s: %w", name, err)
		}

		s.seeCertificate(c, secret.Data[c.key])
	}

	return ctrl.Result{}, nil
}
