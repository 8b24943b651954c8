package clusterstate

import (
	"bytes"
	"crypto"
	"crypto/hmac"
	"crypto/sha256"
	stdx509 "crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"go.yaml.in/yaml/v4"

	"github.com/talos-operator/talos-operator/internal/machineconfig"
)

// clockSkew is how far certificates are backdated: the clocks of nodes without a battery run behind until they reach a
// time server, and these nodes would reject a certificate that starts now.
const clockSkew = time.Hour

// Bundle contains the PKI and the tokens of one cluster. It is immutable.
type Bundle struct {
	secrets *secrets.Bundle
	// source is the hash of the text that the bundle was parsed from; zero if it was generated.
	source [sha256.Size]byte
}

// Options for a new bundle.
type Options struct {
	// TalosVersion determines the version contract.
	TalosVersion string
	// Now is the start time of the certificates.
	Now time.Time
	// Token is the machine token (trustd). Generated if empty.
	Token string
	// CACert and CAKey are the CA of the Talos API, in PEM format. Generated if both are empty.
	CACert, CAKey []byte
}

// NewBundle creates the PKI of a new cluster.
func NewBundle(o Options) (*Bundle, error) {
	contract, err := config.ParseContractFromVersion(o.TalosVersion)
	if err != nil {
		return nil, fmt.Errorf("making secrets bundle: Talos version %q is not a version like v1.13.9", o.TalosVersion)
	}

	ca, err := givenCA(o.CACert, o.CAKey, o.Now)
	if err != nil {
		return nil, fmt.Errorf("making secrets bundle: %w", err)
	}

	made, err := secrets.NewBundle(secrets.NewFixedClock(o.Now.Add(-clockSkew)), contract)
	if err != nil {
		return nil, fmt.Errorf("making secrets bundle: %w", err)
	}

	if ca != nil {
		made.Certs.OS = ca
	}

	if o.Token != "" {
		if !machineTokenPattern.MatchString(o.Token) {
			return nil, errors.New("making secrets bundle: the given token is not 8 to 128 printable characters without blanks")
		}

		made.TrustdInfo.Token = o.Token
	}

	b := &Bundle{secrets: made}
	if err := b.validate(); err != nil {
		return nil, fmt.Errorf("making secrets bundle: %w", err)
	}

	return b, nil
}

// givenCA checks a CA that the user provides.
func givenCA(cert, key []byte, now time.Time) (*x509.PEMEncodedCertificateAndKey, error) {
	switch {
	case len(cert) == 0 && len(key) == 0:
		return nil, nil
	case len(key) == 0:
		return nil, errors.New("a CA certificate is given without its private key")
	case len(cert) == 0:
		return nil, errors.New("a CA private key is given without its certificate")
	}

	pair := &x509.PEMEncodedCertificateAndKey{Crt: bytes.Clone(cert), Key: bytes.Clone(key)}

	if err := checkCA(pair); err != nil {
		return nil, err
	}

	if parsed, err := pair.GetCert(); err != nil || now.After(parsed.NotAfter) {
		return nil, errors.New("the CA certificate has expired")
	}

	return pair, nil
}

// ParseBundle parses a bundle that Marshal or talosctl gen secrets wrote, and checks that it is complete and
// consistent.
func ParseBundle(data []byte) (*Bundle, error) {
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, errors.New("the secrets bundle is empty")
	}

	decoded := &secrets.Bundle{Clock: secrets.NewClock()}

	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true)

	if err := decode(dec, decoded); err != nil {
		return nil, err
	}

	b := &Bundle{secrets: decoded, source: sha256.Sum256(data)}

	if _, err := checkedBundles.get(data, func() (struct{}, error) { return struct{}{}, b.validate() }); err != nil {
		return nil, err
	}

	return b, nil
}

// decode never returns the library's error, because it quotes the invalid values.
func decode(dec *yaml.Decoder, into *secrets.Bundle) (err error) {
	defer func() {
		if recover() != nil {
			err = errors.New("the secrets bundle is malformed YAML")
		}
	}()

	if err := dec.Decode(into); err != nil {
		return errors.New("the secrets bundle is not YAML of a secrets bundle, or has unknown or repeated fields")
	}

	if err := dec.Decode(&yaml.Node{}); err == nil {
		return errors.New("the secrets bundle has more than one document")
	}

	return nil
}

// Marshal encodes the bundle in the format of talosctl gen secrets. The encoding is deterministic.
func (b *Bundle) Marshal() ([]byte, error) {
	raw, err := yaml.Marshal(b.secrets)
	if err != nil {
		return nil, errors.New("rendering the secrets bundle failed")
	}

	return raw, nil
}

// Secrets returns the bundle for rendering machine configurations. It must not be modified.
func (b *Bundle) Secrets() *secrets.Bundle { return b.secrets }

// ClusterID returns the ID that all nodes of the cluster share.
func (b *Bundle) ClusterID() string { return b.secrets.Cluster.ID }

// Mark returns a hash of a text that is the same for the same text of the cluster, and reveals nothing of the text to
// those who do not have the secret of the cluster. It is empty if the cluster has none.
func (b *Bundle) Mark(text string) string {
	if b.secrets.Cluster.Secret == "" {
		return ""
	}

	sum := hmac.New(sha256.New, []byte(b.secrets.Cluster.Secret))
	sum.Write([]byte(text))

	return hex.EncodeToString(sum.Sum(nil))
}

// Fingerprint returns the SHA-256 over the public CA certificates, in hexadecimal. It is no secret.
func (b *Bundle) Fingerprint() string {
	sum := sha256.New()

	for _, ca := range b.authorities() {
		block, _ := pem.Decode(ca.pair.Crt)
		// Each certificate is hashed with its length, so that different lists never result in the same bytes.
		fmt.Fprintf(sum, "%s %d\n", ca.name, len(block.Bytes))
		sum.Write(block.Bytes)
	}

	return hex.EncodeToString(sum.Sum(nil))
}

// CAFingerprint returns the SHA-256 of the Talos API CA certificate, as in machineconfig.Identity.
func (b *Bundle) CAFingerprint() string {
	block, _ := pem.Decode(b.secrets.Certs.OS.Crt)
	sum := sha256.Sum256(block.Bytes)

	return hex.EncodeToString(sum[:])
}

// Identity returns the identity that a machine configuration of this cluster has.
func (b *Bundle) Identity() machineconfig.Identity {
	return machineconfig.Identity{ClusterID: b.ClusterID(), CAFingerprint: b.CAFingerprint()}
}

// Equal reports whether both bundles contain the same secrets.
func (b *Bundle) Equal(other *Bundle) bool {
	if b == nil || other == nil {
		return b == other
	}

	mine, err := b.Marshal()
	if err != nil {
		return false
	}

	theirs, err := other.Marshal()

	return err == nil && bytes.Equal(mine, theirs)
}

type authority struct {
	name string
	pair *x509.PEMEncodedCertificateAndKey
}

func (b *Bundle) authorities() []authority {
	certs := b.secrets.Certs

	return []authority{
		{"certs.etcd", certs.Etcd},
		{"certs.k8s", certs.K8s},
		{"certs.k8saggregator", certs.K8sAggregator},
		{"certs.os", certs.OS},
	}
}

var (
	tokenPattern = regexp.MustCompile(`^[a-z0-9]{6}\.[a-z0-9]{16}$`)
	// Talos accepts any text as a machine token.
	machineTokenPattern = regexp.MustCompile(`^[!-~]{8,128}$`)
	clusterIDPattern    = regexp.MustCompile(`^[A-Za-z0-9_=-]{8,128}$`)
)

// validate checks what Talos checks, and that certificates match their keys.
func (b *Bundle) validate() error {
	if err := b.secrets.Validate(); err != nil {
		return errors.New("the secrets bundle is incomplete: " + problemsOf(err))
	}

	var problems []string

	for _, ca := range b.authorities() {
		if err := checkCA(ca.pair); err != nil {
			problems = append(problems, ca.name+": "+err.Error())
		}
	}

	if !clusterIDPattern.MatchString(b.secrets.Cluster.ID) {
		problems = append(problems, "cluster.id has an unusual form")
	}

	if secret, err := base64.StdEncoding.DecodeString(b.secrets.Cluster.Secret); err != nil || len(secret) != 32 {
		problems = append(problems, "cluster.secret is not 32 bytes in base64")
	}

	if !tokenPattern.MatchString(b.secrets.Secrets.BootstrapToken) {
		problems = append(problems, "secrets.bootstraptoken does not look like abcdef.0123456789abcdef")
	}

	if len(problems) > 0 {
		return errors.New("the secrets bundle is inconsistent: " + strings.Join(problems, "; "))
	}

	return nil
}

// problemsOf returns the lines of the library's error that name a field. None of them quotes a value.
func problemsOf(err error) string {
	var out []string

	for line := range strings.Lines(err.Error()) {
		if line = strings.TrimLeft(strings.TrimSpace(line), "* "); strings.Contains(line, "required") ||
			strings.Contains(line, "allowed") {
			out = append(out, line)
		} else if field, _, found := strings.Cut(line, " is invalid"); found {
			out = append(out, field+" is invalid")
		}
	}

	slices.Sort(out)

	return strings.Join(slices.Compact(out), "; ")
}

// checkCA checks that a pair is a CA and that its key matches its certificate.
func checkCA(pair *x509.PEMEncodedCertificateAndKey) error {
	cert, err := pair.GetCert()
	if err != nil {
		return errors.New("the CA certificate is not a PEM certificate")
	}

	if !cert.IsCA || (cert.KeyUsage != 0 && cert.KeyUsage&stdx509.KeyUsageCertSign == 0) {
		return errors.New("the certificate is not that of a CA")
	}

	key, err := pair.GetKey()
	if err != nil {
		return errors.New("the CA private key is not a PEM private key")
	}

	signer, isSigner := key.(crypto.Signer)
	public, isComparable := cert.PublicKey.(interface{ Equal(x crypto.PublicKey) bool })

	if !isSigner || !isComparable || !public.Equal(signer.Public()) {
		return errors.New("the CA private key does not belong to the certificate")
	}

	return nil
}

// CheckCA checks a CA that the user provides: it must be a CA certificate with its own key, and not be expired.
func CheckCA(cert, key []byte, now time.Time) error {
	_, err := givenCA(cert, key, now)

	return err
}

// IsMachineToken reports whether a text is a valid machine token.
func IsMachineToken(token string) bool { return machineTokenPattern.MatchString(token) }
