package taloscontrolplane

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/kube"
)

// Keys of the Secrets that users and tools read.
const (
	kubeconfigKey  = "value"
	talosconfigKey = "talosconfig"
)

func (r *Reconciler) entryAddress(ctx context.Context, s *scope, entry v1alpha1.MachineEntry) (string, error) {
	if entry.MachineRef == nil {
		return entry.Address, nil
	}

	m := &vitistackv1alpha1.Machine{}

	err := r.Client.Get(ctx, client.ObjectKey{Namespace: s.cp.Namespace, Name: entry.MachineRef.Name}, m)
	if err != nil {
		return "", client.IgnoreNotFound(err)
	}

	for _, a := range m.Status.Addresses {
		if a.Type != vitistackv1alpha1.AddressHostname {
			return a.Address, nil
		}
	}

	return "", nil
}

// credentials is one file in a Secret {cluster}-{kind}.
type credentials struct {
	kind, key string
	// current reports whether a file may be kept, render creates a new one, end returns when its certificate expires.
	current func([]byte) bool
	render  func() ([]byte, error)
	end     func([]byte) (time.Time, error)
}

// ensureCredentials writes a Secret if it is missing or outdated, once per reconciliation. A Secret of the same name
// that is controlled by another owner is not touched.
func (r *Reconciler) ensureCredentials(ctx context.Context, s *scope, c credentials) error {
	if err, done := s.kept[c.kind]; done {
		return err
	}

	err := r.keepCredentials(ctx, s, c)
	s.kept[c.kind] = err

	return err
}

func (r *Reconciler) keepCredentials(ctx context.Context, s *scope, c credentials) error {
	secret, name := &corev1.Secret{}, s.clusterName()+"-"+c.kind

	err := r.Reader.Get(ctx, client.ObjectKey{Namespace: s.cp.Namespace, Name: name}, secret)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading Secret %s: %w", name, err)
	}

	exists := err == nil
	earlier := exists && kube.EarlierLife(secret, s.cp, "TalosControlPlane")

	if exists && !earlier && !metav1.IsControlledBy(secret, s.cp) {
		return failure.Terminal(v1alpha1.ReasonNameConflict, fmt.Sprintf("Secret %s exists and is controlled by another "+
			"owner; remove it or choose another cluster name", name), nil)
	}

	s.seeCertificate(c, secret.Data[c.key])

	if exists && !earlier && c.current(secret.Data[c.key]) {
		return nil
	}

	data, err := c.render()
	if err != nil {
		return fmt.Errorf("rendering Secret %s: %w", name, err)
	}

	if err := r.writeCredentials(ctx, s, secret, name, map[string][]byte{c.key: data}, exists); err != nil {
		return err
	}

	s.seeCertificate(c, data)

	return nil
}

func (r *Reconciler) writeCredentials(ctx context.Context, s *scope, secret *corev1.Secret, name string,
	data map[string][]byte, exists bool,
) error {
	secret.Namespace, secret.Name = s.cp.Namespace, name
	secret.Labels = map[string]string{
		v1alpha1.ControlPlaneLabel:      s.cp.Name,
		"cluster.x-k8s.io/cluster-name": s.clusterName(),
	}
	secret.Data = data
	secret.OwnerReferences = nil

	if err := controllerutil.SetControllerReference(s.cp, secret, r.Client.Scheme()); err != nil {
		return fmt.Errorf("setting the owner of Secret %s: %w", name, err)
	}

	if exists {
		if err := r.Client.Update(ctx, secret); err != nil {
			return fmt.Errorf("writing Secret %s: %w", name, err)
		}

		return nil
	}

	secret.Type = corev1.SecretTypeOpaque

	if err := r.Client.Create(ctx, secret); err != nil {
		return fmt.Errorf("creating Secret %s: %w", name, err)
	}

	return nil
}
