package taloscontrolplane

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/condition"
	"github.com/talos-operator/talos-operator/internal/controller/frame"
	"github.com/talos-operator/talos-operator/internal/controller/machineset"
	"github.com/talos-operator/talos-operator/internal/metrics"
)

// Kinds of credentials; each is in the Secret {cluster}-{kind}.
const (
	certificateKubeconfig  = "kubeconfig"
	certificateTalosconfig = "talosconfig"
)

// authorityWarning is how long before its expiry a CA is reported: replacing a CA changes every node.
const authorityWarning = 180 * 24 * time.Hour

// renewCredentials renews the credentials of an established cluster. It runs before all phases that may stall for
// months, for example because of a rejected spec or a lost node. Its errors are reported by the later phases that write
// the Secrets.
func (r *Reconciler) renewCredentials(ctx context.Context, s *scope) (ctrl.Result, error) {
	s.seeAuthorities(r.Clock.Now())

	if b := s.held.State.Runtime.Bootstrap; b == nil || b.EstablishedAt == nil {
		return ctrl.Result{}, nil
	}

	machines, err := machineset.List(ctx, r.Client, s.cp)
	if err != nil {
		return ctrl.Result{}, err
	}

	s.machines = machines

	for _, keep := range []frame.Phase[*scope]{r.ensureTalosconfig, r.ensureKubeconfig} {
		if _, err := keep(ctx, s); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Keeping credentials failed")
		}
	}

	return ctrl.Result{}, nil
}

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

func (s *scope) seeAuthorities(now time.Time) {
	s.now = now
	s.certificates = s.held.State.Bundle.Authorities()
}

// seeCertificate records when a file's certificate expires; the last observation counts.
func (s *scope) seeCertificate(c credentials, file []byte) {
	end, err := c.end(file)
	if err != nil {
		return
	}

	s.certificates = slices.DeleteFunc(s.certificates, func(e clusterstate.Expiry) bool { return e.Certificate == c.kind })
	s.certificates = append(s.certificates, clusterstate.Expiry{Certificate: c.kind, NotAfter: end})
}

// setCertificates is pure. The message contains dates, which change only when a certificate does.
func setCertificates(s *scope, set condition.Set) {
	if len(s.certificates) == 0 {
		return
	}

	all := slices.Clone(s.certificates)
	slices.SortStableFunc(all, func(a, b clusterstate.Expiry) int { return a.NotAfter.Compare(b.NotAfter) })

	var ended, ending, due []string

	for _, e := range all {
		left := e.NotAfter.Sub(s.now)

		switch {
		case left <= 0:
			ended = append(ended, e.Certificate+" ended on "+day(e))
		case e.Authority && left < authorityWarning:
			ending = append(ending, e.Certificate+" ends on "+day(e))
		case !e.Authority && left < clusterstate.RenewalWindow:
			due = append(due, e.Certificate+" ends on "+day(e)+" and is not renewed")
		}
	}

	problems := strings.Join(slices.Concat(ended, ending, due), ", ")

	switch {
	case len(ended) > 0:
		set.False(v1alpha1.ConditionCertificatesValid, v1alpha1.ReasonCertificateExpired, problems)
	case len(ending) > 0:
		set.False(v1alpha1.ConditionCertificatesValid, v1alpha1.ReasonAuthorityEnding,
			problems+"; replace the CA before that day")
	case len(due) > 0:
		set.False(v1alpha1.ConditionCertificatesValid, v1alpha1.ReasonCertificateDue, problems)
	default:
		set.True(v1alpha1.ConditionCertificatesValid, v1alpha1.ReasonCertificatesValid, validMessage(all))
	}
}

func validMessage(sorted []clusterstate.Expiry) string {
	var parts []string

	for _, e := range sorted {
		if e.Authority {
			parts = append(parts, e.Certificate+", the first CA to end, does so on "+day(e))

			break
		}

		parts = append(parts, e.Certificate+" renews before "+day(e))
	}

	return strings.Join(parts, "; ")
}

func day(e clusterstate.Expiry) string { return e.NotAfter.UTC().Format(time.DateOnly) }

func (r *Reconciler) measureCertificates(s *scope) {
	for _, e := range s.certificates {
		metrics.Certificate(r, s.cp.Namespace, s.cp.Name, e.Certificate, e.NotAfter)
	}
}
