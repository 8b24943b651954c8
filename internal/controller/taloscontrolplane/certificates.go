package taloscontrolplane

import (
	"slices"
	"strings"
	"time"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/condition"
	"github.com/talos-operator/talos-operator/internal/metrics"
)

// Kinds of credentials; each is in the Secret {cluster}-{kind}.
const (
	certificateKubeconfig  = "kubeconfig"
	certificateTalosconfig = "talosconfig"
)

// authorityWarning is how long before its expiry a CA is reported: replacing a CA changes every node.
const authorityWarning = 180 * 24 * time.Hour

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
