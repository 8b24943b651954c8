package apid

import (
	"crypto/tls"
	stdx509 "crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/role"
)

// certificateLifetime outlives every lab. Real nodes renew a one-day certificate in the background.
const certificateLifetime = 10 * 365 * 24 * time.Hour

// Identity is what a node shows to the network: its certificate and whom it trusts. It must not be changed once a
// Server has it.
type Identity struct {
	// Maintenance says that the node has no complete machine config: no client certificates, readers only.
	Maintenance bool
	// Hostname is accepted, beside the address, as a name of this node in the metadata keys "node" and "nodes".
	Hostname string
	// Certificate is the server certificate.
	Certificate tls.Certificate
	// Authorities are those whose certificates are trusted: the machine CA and the accepted CAs. Nil in maintenance mode.
	Authorities *stdx509.CertPool
	// Forwarding is the client certificate for calls to other nodes. Only control-plane nodes hold the CA key to
	// make one; without it requests are not forwarded.
	Forwarding *tls.Certificate
}

// Names are the subject names of a node's server certificate.
type Names struct {
	Hostname  string
	Addresses []netip.Addr
	// Extra are the certSANs of the machine config, addresses or names.
	Extra []string
}

// Fingerprint is that of the server certificate, as a node without a config prints it on its console.
func (id *Identity) Fingerprint() string {
	if len(id.Certificate.Certificate) == 0 {
		return ""
	}

	fingerprint, err := x509.SPKIFingerprintFromDER(id.Certificate.Certificate[0])
	if err != nil {
		return ""
	}

	return fingerprint.String()
}

// NewMaintenanceIdentity makes the identity of a node without a machine config.
func NewMaintenanceIdentity(names Names) (*Identity, error) {
	authority, err := x509.NewSelfSignedCertificateAuthority(x509.Organization("talos"), lifetime())
	if err != nil {
		return nil, fmt.Errorf("generating the maintenance CA: %w", err)
	}

	cert, err := NewServerCertificate(x509.NewCertificateAndKeyFromCertificateAuthority(authority), names)
	if err != nil {
		return nil, err
	}

	return &Identity{Maintenance: true, Hostname: names.Hostname, Certificate: cert}, nil
}

// NewControlPlaneIdentity makes the identity of a control-plane node from the CAs of its machine config.
func NewControlPlaneIdentity(
	names Names, ca *x509.PEMEncodedCertificateAndKey, accepted []*x509.PEMEncodedCertificate,
) (*Identity, error) {
	if ca == nil || len(ca.Key) == 0 {
		return nil, errors.New("a control-plane node needs the key of its machine CA")
	}

	cert, err := NewServerCertificate(ca, names)
	if err != nil {
		return nil, err
	}

	id, err := NewWorkerIdentity(names, cert, append([]*x509.PEMEncodedCertificate{{Crt: ca.Crt}}, accepted...))
	if err != nil {
		return nil, err
	}

	forwarding, err := issue(ca,
		x509.CommonName("apid"),
		x509.Organization(string(role.Impersonator)),
		x509.ExtKeyUsage([]stdx509.ExtKeyUsage{stdx509.ExtKeyUsageClientAuth}),
	)
	if err != nil {
		return nil, fmt.Errorf("issuing the certificate for forwarded calls: %w", err)
	}

	id.Forwarding = &forwarding

	return id, nil
}

// NewWorkerIdentity makes the identity of a node without a CA key. Its certificate comes from a control-plane node, as
// trustd issues it: NewServerCertificate with that node's CA.
func NewWorkerIdentity(names Names, cert tls.Certificate, accepted []*x509.PEMEncodedCertificate) (*Identity, error) {
	if len(accepted) == 0 {
		return nil, errors.New("a configured node needs at least one machine CA")
	}

	pool := stdx509.NewCertPool()

	for _, ca := range accepted {
		if !pool.AppendCertsFromPEM(ca.Crt) {
			return nil, errors.New("a machine CA holds no certificate")
		}
	}

	return &Identity{Hostname: names.Hostname, Certificate: cert, Authorities: pool}, nil
}

// NewServerCertificate issues a server certificate for a node.
func NewServerCertificate(ca *x509.PEMEncodedCertificateAndKey, names Names) (tls.Certificate, error) {
	var (
		ips []net.IP
		dns []string
	)

	for _, addr := range names.Addresses {
		ips = append(ips, addr.AsSlice())
	}

	for _, san := range append([]string{names.Hostname}, names.Extra...) {
		switch ip := net.ParseIP(san); {
		case ip != nil:
			ips = append(ips, ip)
		case san != "":
			dns = append(dns, san)
		}
	}

	cert, err := issue(ca,
		x509.CommonName(names.Hostname),
		x509.IPAddresses(ips),
		x509.DNSNames(dns),
		x509.ExtKeyUsage([]stdx509.ExtKeyUsage{stdx509.ExtKeyUsageServerAuth}),
	)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("issuing the server certificate of %s: %w", names.Hostname, err)
	}

	return cert, nil
}

func issue(ca *x509.PEMEncodedCertificateAndKey, options ...x509.Option) (tls.Certificate, error) {
	authority, err := x509.NewCertificateAuthorityFromCertificateAndKey(ca)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("reading the CA: %w", err)
	}

	pair, err := x509.NewKeyPair(authority, append(options, lifetime())...)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("signing with the CA: %w", err)
	}

	return *pair.Certificate, nil
}

func lifetime() x509.Option {
	return x509.NotAfter(time.Now().Add(certificateLifetime))
}

// serverTLS is the TLS side of the identity.
func (id *Identity) serverTLS() *tls.Config {
	cfg := &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{id.Certificate}}

	if !id.Maintenance {
		cfg.ClientAuth = tls.RequireAndVerifyClientCert
		cfg.ClientCAs = id.Authorities
		cfg.VerifyPeerCertificate = verifyClientUsage
	}

	return cfg
}

// clientTLS is what the node uses to call other nodes. Nil where it does not forward.
func (id *Identity) clientTLS() *tls.Config {
	if id.Maintenance || id.Forwarding == nil {
		return nil
	}

	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{*id.Forwarding},
		RootCAs:      id.Authorities,
	}
}

// verifyClientUsage refuses certificates that are anything but client certificates, as Talos does: otherwise the server
// certificate of any node would open the API of all others.
func verifyClientUsage(_ [][]byte, chains [][]*stdx509.Certificate) error {
	if len(chains) == 0 {
		return errors.New("no verified chains")
	}

	for _, cert := range chains[0] {
		if !cert.IsCA && !slices.Equal(cert.ExtKeyUsage, []stdx509.ExtKeyUsage{stdx509.ExtKeyUsageClientAuth}) {
			return fmt.Errorf("certificate %q is missing the client auth extended key usage", cert.Subject)
		}
	}

	return nil
}
