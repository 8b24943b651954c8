package clusterstate

import (
	"bytes"
	"errors"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"go.yaml.in/yaml/v4"
)

// foreignConfig is the part of a control-plane machine configuration that describes its cluster. It is decoded without
// the library's types, which reject the fields of newer Talos releases.
type foreignConfig struct {
	Machine *struct {
		Type     string                            `yaml:"type"`
		Token    string                            `yaml:"token"`
		CA       *x509.PEMEncodedCertificateAndKey `yaml:"ca"`
		CertSANs []string                          `yaml:"certSANs"`
		Kubelet  struct {
			Image string `yaml:"image"`
		} `yaml:"kubelet"`
	} `yaml:"machine"`
	Cluster struct {
		ID                        string                            `yaml:"id"`
		Secret                    string                            `yaml:"secret"`
		ClusterName               string                            `yaml:"clusterName"`
		Token                     string                            `yaml:"token"`
		SecretboxEncryptionSecret string                            `yaml:"secretboxEncryptionSecret"`
		AESCBCEncryptionSecret    string                            `yaml:"aescbcEncryptionSecret"`
		CA                        *x509.PEMEncodedCertificateAndKey `yaml:"ca"`
		AggregatorCA              *x509.PEMEncodedCertificateAndKey `yaml:"aggregatorCA"`
		ServiceAccount            *x509.PEMEncodedKey               `yaml:"serviceAccount"`
		ControlPlane              struct {
			Endpoint string `yaml:"endpoint"`
		} `yaml:"controlPlane"`
		Network struct {
			DNSDomain      string   `yaml:"dnsDomain"`
			PodSubnets     []string `yaml:"podSubnets"`
			ServiceSubnets []string `yaml:"serviceSubnets"`
		} `yaml:"network"`
		APIServer struct {
			CertSANs []string `yaml:"certSANs"`
		} `yaml:"apiServer"`
		Etcd struct {
			CA *x509.PEMEncodedCertificateAndKey `yaml:"ca"`
		} `yaml:"etcd"`
	} `yaml:"cluster"`
}

// ImportBundle reads the PKI of a cluster that was created elsewhere: from a secrets bundle as written by talosctl gen
// secrets, or from the machine configuration of one of its control-plane nodes. The error says what is missing or
// inconsistent, and contains no secrets.
func ImportBundle(data []byte) (*Bundle, error) {
	if isConfig.Match(data) {
		return BundleFromConfig(data)
	}

	return ParseBundle(data)
}

// isConfig distinguishes a machine configuration, even an invalid one, from a bundle.
var isConfig = regexp.MustCompile(`(?m)^(machine|"machine")\s*:`)

// BundleFromConfig reads the PKI from the machine configuration of a control-plane node.
func BundleFromConfig(config []byte) (*Bundle, error) {
	cfg, err := readForeign(config)
	if err != nil {
		return nil, err
	}

	if cfg == nil {
		return nil, errors.New("the machine config has no machine section")
	}

	return cfg.bundle()
}

// BundleConfigOf reads the parameters of a cluster from the machine configuration of a control-plane node, as far as it
// contains them: neither the Talos version nor the contract that the configuration was generated with. The Kubernetes
// version is that of the kubelet, empty if its image has no tag. CertSANs are those that both APIs have; the SANs of
// only one API are no parameter of the cluster.
func BundleConfigOf(config []byte) (BundleConfig, error) {
	cfg, err := readForeign(config)
	if err != nil {
		return BundleConfig{}, err
	}

	if cfg == nil {
		return BundleConfig{}, errors.New("the machine config has no machine section")
	}

	c := cfg.Cluster
	out := BundleConfig{
		ClusterName:    c.ClusterName,
		Endpoint:       c.ControlPlane.Endpoint,
		PodSubnets:     c.Network.PodSubnets,
		ServiceSubnets: c.Network.ServiceSubnets,
		DNSDomain:      c.Network.DNSDomain,
	}

	for _, name := range cfg.Machine.CertSANs {
		if slices.Contains(c.APIServer.CertSANs, name) {
			out.CertSANs = append(out.CertSANs, name)
		}
	}

	if version := imageVersion.FindStringSubmatch(cfg.Machine.Kubelet.Image); version != nil {
		out.KubernetesVersion = "v" + version[1]
	}

	return out, nil
}

// imageVersion matches the tag of an image, without the variant that may follow the version.
var imageVersion = regexp.MustCompile(`:v?(\d+\.\d+\.\d+(-(alpha|beta|rc)\.\d+)?)[^/]*$`)

// readForeign finds the main document of a machine configuration; nil if there is none. It never returns the library's
// error, because that quotes the invalid values.
func readForeign(data []byte) (found *foreignConfig, err error) {
	defer func() {
		if recover() != nil {
			found, err = nil, errors.New("the machine config is malformed YAML")
		}
	}()

	dec := yaml.NewDecoder(bytes.NewReader(data))

	for {
		var node yaml.Node

		switch err := dec.Decode(&node); {
		case errors.Is(err, io.EOF):
			return found, nil
		case err != nil:
			return nil, errors.New("the machine config is malformed YAML")
		}

		var cfg foreignConfig

		if err := node.Decode(&cfg); err != nil {
			return nil, errors.New("the machine config has fields of another form than those of Talos")
		}

		switch {
		case cfg.Machine == nil:
		case found != nil:
			return nil, errors.New("the machine config has more than one machine section")
		default:
			found = &cfg
		}
	}
}

func (c *foreignConfig) bundle() (*Bundle, error) {
	// Only these types contain the private keys.
	if c.Machine.Type != "controlplane" && c.Machine.Type != "init" {
		return nil, errors.New("the machine config is not one of a control-plane node: others do not hold the PKI")
	}

	if c.isRedacted() {
		return nil, errors.New("the machine config is redacted: it does not hold the PKI any more")
	}

	b := &Bundle{secrets: &secrets.Bundle{
		Clock:   secrets.NewClock(),
		Cluster: &secrets.Cluster{ID: c.Cluster.ID, Secret: c.Cluster.Secret},
		Secrets: &secrets.Secrets{
			BootstrapToken:            c.Cluster.Token,
			AESCBCEncryptionSecret:    c.Cluster.AESCBCEncryptionSecret,
			SecretboxEncryptionSecret: c.Cluster.SecretboxEncryptionSecret,
		},
		TrustdInfo: &secrets.TrustdInfo{Token: c.Machine.Token},
		Certs: &secrets.Certs{
			Etcd: c.Cluster.Etcd.CA, K8s: c.Cluster.CA, K8sAggregator: c.Cluster.AggregatorCA,
			K8sServiceAccount: c.Cluster.ServiceAccount, OS: c.Machine.CA,
		},
	}}

	if err := b.validate(); err != nil {
		return nil, errors.New(configNames.Replace(err.Error()))
	}

	return b, nil
}

// configNames maps the parts of a bundle to their fields in a machine configuration.
var configNames = strings.NewReplacer(
	"the secrets bundle", "the machine config",
	"certs.etcd", "cluster.etcd.ca",
	"certs.k8saggregator", "cluster.aggregatorCA",
	"certs.k8sserviceaccount", "cluster.serviceAccount",
	"certs.k8s", "cluster.ca",
	"certs.os", "machine.ca",
	"trustdinfo.token", "machine.token",
	"secrets.bootstraptoken", "cluster.token",
	"secrets.secretboxencryptionsecret", "cluster.secretboxEncryptionSecret",
	"secrets.aescbcencryptionsecret", "cluster.aescbcEncryptionSecret",
)

// Differs returns the fields of the machine config of a control-plane node, read as a bundle, that hold other secrets
// than the bundle, apart from the CAs. With them, new nodes could not read what the old ones have encrypted, or would
// not accept their tokens.
func (b *Bundle) Differs(node *Bundle) []string {
	mine, theirs := b.secrets, node.secrets

	var out []string

	for _, f := range []struct{ name, mine, theirs string }{
		{"cluster.secret", mine.Cluster.Secret, theirs.Cluster.Secret},
		{"cluster.token", mine.Secrets.BootstrapToken, theirs.Secrets.BootstrapToken},
		{
			"cluster.secretboxEncryptionSecret", mine.Secrets.SecretboxEncryptionSecret,
			theirs.Secrets.SecretboxEncryptionSecret,
		},
		{"cluster.aescbcEncryptionSecret", mine.Secrets.AESCBCEncryptionSecret, theirs.Secrets.AESCBCEncryptionSecret},
		{"cluster.serviceAccount", serviceAccount(mine), serviceAccount(theirs)},
		{"machine.token", mine.TrustdInfo.Token, theirs.TrustdInfo.Token},
	} {
		if f.mine != f.theirs {
			out = append(out, f.name)
		}
	}

	return out
}

func serviceAccount(b *secrets.Bundle) string {
	if b.Certs.K8sServiceAccount == nil {
		return ""
	}

	return strings.TrimSpace(string(b.Certs.K8sServiceAccount.Key))
}

func (c *foreignConfig) isRedacted() bool {
	texts := []string{
		c.Machine.Token, c.Cluster.Secret, c.Cluster.Token, c.Cluster.SecretboxEncryptionSecret,
		c.Cluster.AESCBCEncryptionSecret,
	}

	for _, pair := range []*x509.PEMEncodedCertificateAndKey{
		c.Machine.CA, c.Cluster.CA, c.Cluster.AggregatorCA, c.Cluster.Etcd.CA,
	} {
		if pair != nil {
			texts = append(texts, string(pair.Key))
		}
	}

	if account := c.Cluster.ServiceAccount; account != nil {
		texts = append(texts, string(account.Key))
	}

	return slices.Contains(texts, x509.Redacted)
}
