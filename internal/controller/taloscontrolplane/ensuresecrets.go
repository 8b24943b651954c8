package taloscontrolplane

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/machineconfig/desired"
	"github.com/talos-operator/talos-operator/internal/talos"
	"github.com/talos-operator/talos-operator/internal/validation"
)

// ensureSecrets loads the PKI, or creates it: only if the API server confirms that there is no state Secret, and no
// machine of the cluster already runs under another CA.
func (r *Reconciler) ensureSecrets(ctx context.Context, s *scope) (ctrl.Result, error) {
	held, err := r.States.Load(ctx, s.key())

	var corrupt *clusterstate.CorruptError

	switch {
	case errors.As(err, &corrupt):
		return ctrl.Result{}, failure.Terminal(v1alpha1.ReasonStateSecretInvalid,
			corrupt.Error()+"; it was not changed: restore it from a copy", err)
	case errors.Is(err, clusterstate.ErrNotFound) && s.cp.Spec.Import != nil:
		held, err = r.importState(ctx, s)
	case errors.Is(err, clusterstate.ErrNotFound):
		held, err = r.makePKI(ctx, s)
	}

	if err != nil {
		return ctrl.Result{}, err
	}

	if err := held.State.CheckCluster(s.clusterName()); err != nil {
		return ctrl.Result{}, failure.Terminal(v1alpha1.ReasonStateSecretInvalid, fmt.Sprintf("Secret %s: %s; it was not "+
			"changed: put the Secret of this cluster in its place", clusterstate.SecretName(s.cp.Name), err), err)
	}

	if err := r.States.Protect(ctx, held); err != nil {
		return ctrl.Result{}, err
	}

	access, err := r.States.Access(s.key(), held.State.Bundle)
	if err != nil {
		return ctrl.Result{}, err
	}

	s.held = held
	s.creds = talos.Credentials{CA: access.Talos.CA, Cert: access.Talos.Cert, Key: access.Talos.Key}

	restoreStatus(s)

	return ctrl.Result{}, nil
}

// restoreStatus restores an empty status from the state, because kubectl apply never writes a status.
func restoreStatus(s *scope) {
	st, rt := &s.cp.Status, &s.held.State.Runtime

	if st.SecretBundle == nil && len(st.Conditions) == 0 {
		st.Conditions = rt.Conditions
	}

	st.SecretBundle = &v1alpha1.SecretBundleStatus{
		SecretRef:   v1alpha1.ObjectReference{Name: clusterstate.SecretName(s.cp.Name)},
		Fingerprint: s.held.State.Bundle.Fingerprint(),
		ClusterID:   s.held.State.Bundle.ClusterID(),
	}

	if key, err := s.held.State.Bundle.BackupVerificationKey(); err == nil { // a validated bundle has one
		st.BackupVerificationKey = key.String()
	}

	if st.ObservedKubeVersion == "" {
		st.ObservedKubeVersion = s.held.State.ObservedKubeVersion
	}

	st.Bootstrap = nil

	if b := rt.Bootstrap; b != nil {
		st.Bootstrap = &v1alpha1.BootstrapStatus{Machine: b.Machine, RequestedAt: metav1.NewTime(b.IntentAt)}
		if b.EstablishedAt != nil {
			at := metav1.NewTime(*b.EstablishedAt)
			st.Bootstrap.EstablishedAt = &at
		}
	}
}

func (r *Reconciler) makePKI(ctx context.Context, s *scope) (*clusterstate.Held, error) {
	if err := r.awaitRestore(ctx, s); err != nil {
		return nil, err
	}

	if s.cp.Status.SecretBundle != nil {
		return nil, failure.Terminal(v1alpha1.ReasonStateSecretInvalid, fmt.Sprintf("Secret %s is gone, and the cluster "+
			"was made with it; restore it from a copy: without it the nodes cannot be managed",
			clusterstate.SecretName(s.cp.Name)), nil)
	}

	// A spec that can never work gets no PKI either.
	made := desired.BundleConfig(s.cp)
	if err := checkSpec(s.cp, made, ""); err != nil {
		return nil, err
	}

	if err := r.refuseForeignNodes(ctx, s); err != nil {
		return nil, err
	}

	options := clusterstate.Options{TalosVersion: s.cp.Spec.TalosVersion, Now: r.Clock.Now()}
	if err := r.bootstrapSecrets(ctx, s, &options); err != nil {
		return nil, err
	}

	bundle, err := r.NewBundle(options)
	if err != nil {
		return nil, fmt.Errorf("making the PKI of %s: %w", s.cp.Name, err)
	}

	return r.States.Create(ctx, s.key(), clusterstate.NewState(bundle, made, string(s.cp.UID)))
}

// refuseForeignNodes prevents the creation of a new PKI for a cluster that already runs. Unreachable machines cannot be
// checked; if they turn out to be foreign later, they are not touched then.
func (r *Reconciler) refuseForeignNodes(ctx context.Context, s *scope) error {
	known := 0

	for _, entry := range s.cp.Spec.Machines {
		address, err := r.entryAddress(ctx, s, entry)
		if err != nil {
			return err
		}

		if address == "" {
			continue
		}

		known++

		if probe, _ := r.Nodes.Probe(ctx, address, nil); probe.State == talos.StateForeign {
			return failure.Terminal(v1alpha1.ReasonForeignNode, fmt.Sprintf("machine %s at %s is configured already, and "+
				"there is no Secret %s with its PKI; apply that Secret, correct the address, or reset the machine manually",
				entry.Name, address, clusterstate.SecretName(s.cp.Name)), nil)
		}
	}

	if known == 0 {
		return failure.Waiting(v1alpha1.ReasonWaitingForAddress,
			"waiting for a provider to give a control-plane machine an address", r.Resync)
	}

	return nil
}

// bootstrapSecrets reads the key material that the user provided for the PKI.
func (r *Reconciler) bootstrapSecrets(ctx context.Context, s *scope, o *clusterstate.Options) error {
	ref := s.cp.Spec.BootstrapSecretsRef
	if ref == nil {
		return nil
	}

	secret := &corev1.Secret{}

	err := r.Reader.Get(ctx, client.ObjectKey{Namespace: s.cp.Namespace, Name: ref.Name}, secret)
	if apierrors.IsNotFound(err) {
		return failure.Waiting(v1alpha1.ReasonBootstrapSecretsInvalid,
			fmt.Sprintf("waiting for Secret %s, named by spec.bootstrapSecretsRef", ref.Name), r.Resync)
	}

	if err != nil {
		return fmt.Errorf("reading Secret %s: %w", ref.Name, err)
	}

	crt, key := string(secret.Data["ca.crt"]), string(secret.Data["ca.key"])

	failures := validation.CertificateAuthority("ca", crt, key, r.Clock.Now())
	failures = append(failures, validation.MachineToken("token", string(secret.Data["token"]))...)

	if err := failures.Err(); err != nil {
		return failure.Terminal(v1alpha1.ReasonBootstrapSecretsInvalid,
			fmt.Sprintf("Secret %s: %s", ref.Name, err), nil)
	}

	o.Token = string(secret.Data["token"])

	if crt != "" {
		o.CACert, o.CAKey = validation.PEM(crt), validation.PEM(key)
	}

	return nil
}
