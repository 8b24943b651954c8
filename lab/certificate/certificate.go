// Package certificate makes the authorities of a lab, and what they sign.
package certificate

import (
	stdx509 "crypto/x509"
	"fmt"
	"time"

	"github.com/siderolabs/crypto/x509"
)

const (
	// Life is how long certificates hold that are issued afresh at each start: long enough for any rehearsal.
	Life = 365 * 24 * time.Hour
	// clockSkew lets certificates hold on a node whose clock runs behind.
	clockSkew = 10 * time.Minute
)

// For is what a certificate may be used for.
func For(usage ...stdx509.ExtKeyUsage) x509.Option { return x509.ExtKeyUsage(usage) }

// Uses of certificates.
const (
	Server = stdx509.ExtKeyUsageServerAuth
	Client = stdx509.ExtKeyUsageClientAuth
)

// Authority makes a CA.
func Authority(name string, life time.Duration) (*x509.PEMEncodedCertificateAndKey, error) {
	now := time.Now()

	ca, err := x509.NewSelfSignedCertificateAuthority(
		x509.ECDSA(true), x509.CommonName("talos-lab-"+name), x509.Organization("talos-lab"),
		x509.NotBefore(now.Add(-clockSkew)), x509.NotAfter(now.Add(life)),
	)
	if err != nil {
		return nil, fmt.Errorf("making the CA %s: %w", name, err)
	}

	return x509.NewCertificateAndKeyFromCertificateAuthority(ca), nil
}

// Issue makes a certificate.
func Issue(
	ca *x509.PEMEncodedCertificateAndKey, life time.Duration, opts ...x509.Option,
) (*x509.PEMEncodedCertificateAndKey, error) {
	authority, err := x509.NewCertificateAuthorityFromCertificateAndKey(ca)
	if err != nil {
		return nil, fmt.Errorf("reading the CA: %w", err)
	}

	now := time.Now()
	opts = append(opts,
		x509.NotBefore(now.Add(-clockSkew)), x509.NotAfter(now.Add(life)),
		x509.KeyUsage(stdx509.KeyUsageDigitalSignature|stdx509.KeyUsageKeyEncipherment),
	)

	pair, err := x509.NewKeyPair(authority, opts...)
	if err != nil {
		return nil, fmt.Errorf("issuing a certificate: %w", err)
	}

	return x509.NewCertificateAndKeyFromKeyPair(pair), nil
}
