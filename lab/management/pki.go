package management

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/siderolabs/crypto/x509"

	"github.com/talos-operator/talos-operator/lab/certificate"
)

const (
	// authorityLife outlives every lab; certificates are issued afresh at each start.
	authorityLife = 10 * 365 * 24 * time.Hour

	// groupMasters is the group that may do everything.
	groupMasters = "system:masters"
)

// pki issues the certificates of a management plane. The authorities and the key of service accounts stay over
// restarts, or nothing that was issued before would be valid any more.
type pki struct {
	dir     string
	address net.IP
	cluster *x509.PEMEncodedCertificateAndKey
	etcd    *x509.PEMEncodedCertificateAndKey
}

func openPKI(dir, address string) (*pki, error) {
	p := &pki{dir: dir, address: net.ParseIP(address)}

	if p.address == nil {
		return nil, fmt.Errorf("the address of the management plane, %q, is not an IP address", address)
	}

	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("creating the PKI of the management plane: %w", err)
	}

	var err error

	if p.cluster, err = p.authority("ca"); err != nil {
		return nil, err
	}

	if p.etcd, err = p.authority("etcd-ca"); err != nil {
		return nil, err
	}

	return p, p.serviceAccountKey()
}

func (p *pki) path(file string) string { return filepath.Join(p.dir, file) }

// authority loads a CA, or makes it the first time.
func (p *pki) authority(name string) (*x509.PEMEncodedCertificateAndKey, error) {
	pair, err := x509.NewCertificateAndKeyFromFiles(p.path(name+".crt"), p.path(name+".key"))
	if err == nil {
		return pair, nil
	}

	if !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("loading the CA %s of the management plane: %w", name, err)
	}

	if pair, err = certificate.Authority(name, authorityLife); err != nil {
		return nil, err
	}

	return pair, p.write(name, pair)
}

// serviceAccountKey makes the key that signs the tokens of service accounts.
func (p *pki) serviceAccountKey() error {
	if _, err := os.Stat(p.path("sa.key")); err == nil {
		return nil
	}

	key, err := x509.NewECDSAKey()
	if err != nil {
		return fmt.Errorf("making the key of service accounts: %w", err)
	}

	if err := os.WriteFile(p.path("sa.pub"), key.PublicKeyPEM, 0o600); err != nil {
		return fmt.Errorf("writing the key of service accounts: %w", err)
	}

	if err := os.WriteFile(p.path("sa.key"), key.KeyPEM, 0o600); err != nil {
		return fmt.Errorf("writing the key of service accounts: %w", err)
	}

	return nil
}

// server issues and writes a serving certificate that is a client certificate as well, as etcd peers need it.
func (p *pki) server(ca *x509.PEMEncodedCertificateAndKey, name string) error {
	pair, err := certificate.Issue(ca, certificate.Life,
		x509.CommonName(name),
		x509.DNSNames([]string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"}),
		x509.IPAddresses([]net.IP{p.address, net.IPv4(127, 0, 0, 1), net.IPv4(10, 0, 0, 1)}),
		certificate.For(certificate.Server, certificate.Client),
	)
	if err != nil {
		return err
	}

	return p.write(name, pair)
}

// client issues a client certificate.
func client(
	ca *x509.PEMEncodedCertificateAndKey, name string, groups ...string,
) (*x509.PEMEncodedCertificateAndKey, error) {
	return certificate.Issue(ca, certificate.Life,
		x509.CommonName(name),
		x509.Organization(groups...),
		certificate.For(certificate.Client),
	)
}

func (p *pki) write(name string, pair *x509.PEMEncodedCertificateAndKey) error {
	for file, content := range map[string][]byte{name + ".crt": pair.Crt, name + ".key": pair.Key} {
		if err := os.WriteFile(p.path(file), content, 0o600); err != nil {
			return fmt.Errorf("writing the certificate %s: %w", name, err)
		}
	}

	return nil
}
