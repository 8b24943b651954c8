package clusterstate

import (
	"cmp"
	"crypto/tls"
	stdx509 "crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/siderolabs/crypto/x509"
	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"go.yaml.in/yaml/v4"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// CredentialTTL is the validity of the certificates in kubeconfigs and talosconfigs. They are renewed when a third of
// it is left, so that a copied file remains valid for at least four months.
const CredentialTTL = 365 * 24 * time.Hour

// RenewalWindow is how long before its expiry a client certificate is due for renewal.
const RenewalWindow = CredentialTTL / 3

// Subject of admin certificates, as Talos issues them.
const (
	adminUser  = "admin"
	adminGroup = "system:masters"
)

// TalosCredentials grant access to the Talos API of a cluster's nodes: PEM, ready for mutual TLS.
type TalosCredentials struct {
	CA, Cert, Key []byte
	NotAfter      time.Time
}

// TalosCredentials issues an admin client certificate for the Talos API.
func (b *Bundle) TalosCredentials(now time.Time, ttl time.Duration) (*TalosCredentials, error) {
	pair, err := secrets.NewAdminCertificateAndKey(
		now.Add(-clockSkew), b.secrets.Certs.OS, role.MakeSet(role.Admin), ttl+clockSkew,
	)
	if err != nil {
		return nil, fmt.Errorf("making Talos API client certificate: %w", err)
	}

	notAfter, err := certificateEnd(pair.Crt)
	if err != nil {
		return nil, err
	}

	ca := slices.Clone(b.secrets.Certs.OS.Crt)

	return &TalosCredentials{CA: ca, Cert: pair.Crt, Key: pair.Key, NotAfter: notAfter}, nil
}

// TalosconfigParams describe a talosconfig.
type TalosconfigParams struct {
	ClusterName string
	// Endpoints are the control-plane addresses to connect to; Nodes are the default targets.
	Endpoints, Nodes []string
	// TTL is the validity of the certificate. Default: CredentialTTL.
	TTL time.Duration
}

// Talosconfig renders an admin talosconfig; the context has the cluster's name.
func (b *Bundle) Talosconfig(p TalosconfigParams, now time.Time) ([]byte, error) {
	creds, err := b.TalosCredentials(now, cmp.Or(p.TTL, CredentialTTL))
	if err != nil {
		return nil, err
	}

	cfg := clientconfig.NewConfig(p.ClusterName, p.Endpoints, creds.CA,
		&x509.PEMEncodedCertificateAndKey{Crt: creds.Cert, Key: creds.Key})
	cfg.Contexts[p.ClusterName].Nodes = p.Nodes

	raw, err := cfg.Bytes()
	if err != nil {
		return nil, fmt.Errorf("rendering talosconfig: %w", err)
	}

	return raw, nil
}

// TalosconfigCurrent reports whether data is a talosconfig of this bundle with these parameters that does not expire
// soon. It is then kept: each new talosconfig contains a new certificate, so rendering it again would cause an
// unnecessary change.
func (b *Bundle) TalosconfigCurrent(data []byte, p TalosconfigParams, now time.Time) bool {
	ca := b.secrets.Certs.OS
	lists := strings.Join(p.Endpoints, ",") + "\n" + strings.Join(p.Nodes, ",")

	return isCurrent(now, about(data, "talosconfig", p.ClusterName, lists, string(ca.Crt)), func() (period, error) {
		return talosconfigFits(data, p, ca)
	})
}

func talosconfigFits(data []byte, p TalosconfigParams, ca *x509.PEMEncodedCertificateAndKey) (period, error) {
	ctx, err := talosContext(data)
	if err != nil {
		return period{}, err
	}

	cert, certErr := base64.StdEncoding.DecodeString(ctx.Crt)
	key, keyErr := base64.StdEncoding.DecodeString(ctx.Key)

	if certErr != nil || keyErr != nil {
		return period{}, errOther
	}

	cfg, err := ReadTalosconfig(data)
	if err != nil || cfg.Context != p.ClusterName ||
		!slices.Equal(ctx.Endpoints, p.Endpoints) || !slices.Equal(ctx.Nodes, p.Nodes) ||
		ctx.CA != base64.StdEncoding.EncodeToString(ca.Crt) {
		return period{}, errOther
	}

	return leaf{cert: cert, key: key, organization: string(role.Admin)}.period(ca)
}

// TalosconfigExpiry returns when the client certificate of a talosconfig expires.
func TalosconfigExpiry(data []byte) (time.Time, error) {
	return expiries.get(data, func() (time.Time, error) { return talosconfigExpiry(data) })
}

func talosconfigExpiry(data []byte) (time.Time, error) {
	ctx, err := talosContext(data)
	if err != nil {
		return time.Time{}, err
	}

	cert, err := base64.StdEncoding.DecodeString(ctx.Crt)
	if err != nil {
		return time.Time{}, errors.New("reading talosconfig: the certificate is not base64")
	}

	return certificateEnd(cert)
}

// ReadTalosconfig reads a talosconfig. The library's reader panics at a context that is null, and its errors quote what
// it reads.
func ReadTalosconfig(data []byte) (*clientconfig.Config, error) {
	var shape struct {
		Contexts map[string]*struct{} `yaml:"contexts"`
	}

	err := yaml.Unmarshal(data, &shape)

	for _, ctx := range shape.Contexts {
		if ctx == nil {
			return nil, errors.New("reading talosconfig: a context is empty")
		}
	}

	cfg := (*clientconfig.Config)(nil)
	if err == nil {
		cfg, err = clientconfig.FromBytes(data)
	}

	if err != nil || cfg == nil {
		return nil, errors.New("reading talosconfig: it does not parse")
	}

	return cfg, nil
}

func talosContext(data []byte) (*clientconfig.Context, error) {
	cfg, err := ReadTalosconfig(data)
	if err != nil {
		return nil, err
	}

	ctx := cfg.Contexts[cfg.Context]
	if ctx == nil {
		return nil, errors.New("reading talosconfig: it has no current context")
	}

	return ctx, nil
}

// KubeconfigParams describe an admin kubeconfig.
type KubeconfigParams struct {
	ClusterName string
	// Server is the URL of the Kubernetes API.
	Server string
}

func (p KubeconfigParams) context() string { return adminUser + "@" + p.ClusterName }

// Kubeconfig renders an admin kubeconfig that is valid for a year.
func (b *Bundle) Kubeconfig(p KubeconfigParams, now time.Time) ([]byte, error) {
	pair, err := b.kubernetesAdmin(now, CredentialTTL)
	if err != nil {
		return nil, err
	}

	cfg := clientcmdapi.NewConfig()
	cfg.Clusters[p.ClusterName] = &clientcmdapi.Cluster{
		Server: p.Server, CertificateAuthorityData: b.secrets.Certs.K8s.Crt,
	}
	cfg.AuthInfos[p.context()] = &clientcmdapi.AuthInfo{
		ClientCertificateData: pair.Crt, ClientKeyData: pair.Key,
	}
	cfg.Contexts[p.context()] = &clientcmdapi.Context{
		Cluster: p.ClusterName, AuthInfo: p.context(), Namespace: "default",
	}
	cfg.CurrentContext = p.context()

	raw, err := clientcmd.Write(*cfg)
	if err != nil {
		return nil, fmt.Errorf("rendering kubeconfig: %w", err)
	}

	return raw, nil
}

// KubeconfigCurrent reports whether data is a kubeconfig of this bundle with these parameters that does not expire
// soon.
func (b *Bundle) KubeconfigCurrent(data []byte, p KubeconfigParams, now time.Time) bool {
	ca := b.secrets.Certs.K8s

	return isCurrent(now, about(data, "kubeconfig", p.ClusterName, p.Server, string(ca.Crt)), func() (period, error) {
		return kubeconfigFits(data, p, ca)
	})
}

func kubeconfigFits(data []byte, p KubeconfigParams, ca *x509.PEMEncodedCertificateAndKey) (period, error) {
	cfg, err := clientcmd.Load(data)
	if err != nil || cfg.CurrentContext != p.context() {
		return period{}, errOther
	}

	ctx := cfg.Contexts[cfg.CurrentContext]
	if ctx == nil {
		return period{}, errOther
	}

	cluster, user := cfg.Clusters[ctx.Cluster], cfg.AuthInfos[ctx.AuthInfo]
	if ctx.Cluster != p.ClusterName || cluster == nil || user == nil || cluster.Server != p.Server ||
		!slices.Equal(cluster.CertificateAuthorityData, ca.Crt) {
		return period{}, errOther
	}

	return leaf{
		cert: user.ClientCertificateData, key: user.ClientKeyData, user: adminUser, organization: adminGroup,
	}.period(ca)
}

// KubeconfigExpiry returns when the client certificate of a kubeconfig expires.
func KubeconfigExpiry(data []byte) (time.Time, error) {
	return expiries.get(data, func() (time.Time, error) { return kubeconfigExpiry(data) })
}

func kubeconfigExpiry(data []byte) (time.Time, error) {
	cfg, err := clientcmd.Load(data)
	if err != nil {
		return time.Time{}, errors.New("reading kubeconfig: it does not parse")
	}

	ctx := cfg.Contexts[cfg.CurrentContext]
	if ctx == nil || cfg.AuthInfos[ctx.AuthInfo] == nil {
		return time.Time{}, errors.New("reading kubeconfig: it has no current context with a user")
	}

	return certificateEnd(cfg.AuthInfos[ctx.AuthInfo].ClientCertificateData)
}

// RESTConfig returns an admin client configuration for one API server, for example https://10.0.0.1:6443.
func (b *Bundle) RESTConfig(server string, now time.Time, ttl time.Duration) (*rest.Config, error) {
	pair, err := b.kubernetesAdmin(now, ttl)
	if err != nil {
		return nil, err
	}

	return &rest.Config{
		Host: server,
		TLSClientConfig: rest.TLSClientConfig{
			CAData: slices.Clone(b.secrets.Certs.K8s.Crt), CertData: pair.Crt, KeyData: pair.Key,
		},
	}, nil
}

func (b *Bundle) kubernetesAdmin(now time.Time, ttl time.Duration) (*x509.PEMEncodedCertificateAndKey, error) {
	ca, err := x509.NewCertificateAuthorityFromCertificateAndKey(b.secrets.Certs.K8s)
	if err != nil {
		return nil, fmt.Errorf("reading Kubernetes CA: %w", err)
	}

	pair, err := x509.NewKeyPair(ca,
		x509.CommonName(adminUser),
		x509.Organization(adminGroup),
		x509.NotBefore(now.Add(-clockSkew)),
		x509.NotAfter(now.Add(ttl)),
		x509.KeyUsage(stdx509.KeyUsageDigitalSignature|stdx509.KeyUsageKeyEncipherment),
		x509.ExtKeyUsage([]stdx509.ExtKeyUsage{stdx509.ExtKeyUsageClientAuth}),
	)
	if err != nil {
		return nil, fmt.Errorf("making Kubernetes client certificate: %w", err)
	}

	return x509.NewCertificateAndKeyFromKeyPair(pair), nil
}

// leaf describes the required contents of a client certificate.
type leaf struct {
	cert, key []byte
	// user is the common name; empty accepts any. The Talos API has no users.
	user string
	// organization contains the role.
	organization string
}

// errOther means that a file does not belong to the cluster, or does not have the required contents.
var errOther = errors.New("the file is not what it has to be")

// period is the validity of a certificate.
type period struct{ from, until time.Time }

// isCurrent reports whether a file fits and its certificate does not expire soon. Whether it fits is determined only
// once.
func isCurrent(now time.Time, about []byte, fits func() (period, error)) bool {
	p, err := fitting.get(about, fits)

	return err == nil && !now.Before(p.from) && !now.Add(RenewalWindow).After(p.until)
}

// about returns a text that identifies a file together with everything that it is compared with.
func about(data []byte, with ...string) []byte {
	var out []byte

	for _, w := range with {
		out = fmt.Appendf(out, "%d:%s", len(w), w)
	}

	return append(out, data...)
}

// period returns the validity of a certificate that was issued by this CA with its own key and the right role; an error
// for any other one.
func (l leaf) period(ca *x509.PEMEncodedCertificateAndKey) (period, error) {
	parsed, err := parseCertificate(l.cert)
	if err != nil {
		return period{}, err
	}

	if _, err := tls.X509KeyPair(l.cert, l.key); err != nil {
		return period{}, errOther
	}

	subject := parsed.Subject
	if !slices.Equal(subject.Organization, []string{l.organization}) || l.user != "" && subject.CommonName != l.user {
		return period{}, errOther
	}

	issuer, err := ca.GetCert()
	if err != nil || parsed.CheckSignatureFrom(issuer) != nil {
		return period{}, errOther
	}

	return period{from: parsed.NotBefore, until: parsed.NotAfter}, nil
}

func certificateEnd(cert []byte) (time.Time, error) {
	parsed, err := parseCertificate(cert)
	if err != nil {
		return time.Time{}, err
	}

	return parsed.NotAfter, nil
}

func parseCertificate(cert []byte) (*stdx509.Certificate, error) {
	block, _ := pem.Decode(cert)
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, errors.New("reading certificate: not a PEM certificate")
	}

	parsed, err := stdx509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("reading certificate: %w", err)
	}

	return parsed, nil
}
