package talos

import (
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/siderolabs/crypto/x509"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/failure"
)

// MismatchError reports that a machine in maintenance mode presents another certificate than the expected one.
// Fingerprints are public: a machine prints its own on its console.
type MismatchError struct {
	// Expected and Shown are fingerprints: base64 of the SHA-256 of a public key.
	Expected, Shown string
}

// Error implements error.
func (e *MismatchError) Error() string {
	return fmt.Sprintf("the certificate has the fingerprint %s instead of %s", e.Shown, e.Expected)
}

// isPinned reports whether a certificate with the fingerprint satisfies the expectation. Without an expectation, every
// certificate does; an invalid expectation matches none.
func isPinned(expected string, shown x509.Fingerprint) bool {
	if expected == "" {
		return true
	}

	want, err := x509.ParseFingerprint(expected)

	return err == nil && len(shown) > 0 && subtle.ConstantTimeCompare(want, shown) == 1
}

// pin binds all connections of one client in maintenance mode to one certificate. A client reconnects by itself, so the
// check must be part of the handshake: data is sent only to a machine that has passed it.
type pin struct {
	expected string
	// mismatch is what ended the last handshake; nil if it succeeded, or failed earlier.
	mismatch atomic.Pointer[MismatchError]
}

// tls returns the TLS configuration for machines in maintenance mode, whose CA is unknown.
func (p *pin) tls() *tls.Config {
	return &tls.Config{
		// Maintenance mode only.
		MinVersion: tls.VersionTLS13, InsecureSkipVerify: true,
		VerifyConnection: p.verify,
	}
}

func (p *pin) verify(c tls.ConnectionState) error {
	p.mismatch.Store(nil)

	shown := shownBy(c)
	if isPinned(p.expected, shown) {
		return nil
	}

	e := &MismatchError{Expected: p.expected, Shown: shown.String()}
	p.mismatch.Store(e)

	return e
}

// shownBy returns the fingerprint of the certificate of the other side.
func shownBy(c tls.ConnectionState) x509.Fingerprint {
	if len(c.PeerCertificates) == 0 {
		return nil
	}

	return x509.SPKIFingerprint(c.PeerCertificates[0])
}

// classify classifies an error of a call over one of the connections. gRPC passes the cause of a failed handshake on
// only as text, so the mismatch is recorded here.
func (p *pin) classify(call, address string, err error) error {
	mismatch := p.mismatch.Load()
	if err == nil || mismatch == nil {
		return classify(call, address, err)
	}

	return failure.Transient(v1alpha1.ReasonMaintenanceCertificateMismatch, fmt.Sprintf("the machine at %s shows the "+
		"certificate fingerprint %s in maintenance mode; expected %s", address, mismatch.Shown, mismatch.Expected), mismatch)
}

// Mismatch returns the certificate mismatch that an error reports; nil if the error has another cause.
func Mismatch(err error) *MismatchError {
	var e *MismatchError
	if errors.As(err, &e) {
		return e
	}

	return nil
}

// Check compares the certificate that a machine in maintenance mode has presented with the expected one; nil if it
// matches, or if none is expected. Callers must check this before they draw conclusions about the machine.
func (p Probe) Check(expected string) *MismatchError {
	shown, err := x509.ParseFingerprint(p.Fingerprint)
	if err == nil && isPinned(expected, shown) {
		return nil
	}

	return &MismatchError{Expected: expected, Shown: p.Fingerprint}
}
