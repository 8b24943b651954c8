package kubernetes

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/constants"

	"github.com/talos-operator/talos-operator/lab/certificate"
	"github.com/talos-operator/talos-operator/lab/etcd"
)

var errNoCA = errors.New("the machine config has no CA key: it is none of a control-plane node")

// issue makes a certificate, for which a config has to have the key of a CA.
func issue(ca *x509.PEMEncodedCertificateAndKey, life time.Duration, opts ...x509.Option) (
	*x509.PEMEncodedCertificateAndKey, error,
) {
	if ca == nil || len(ca.Key) == 0 {
		return nil, errNoCA
	}

	return certificate.Issue(ca, life, opts...)
}

// serving issues the certificate of the API server with every name that Talos gives it.
func (o APIServerOptions) serving() (*x509.PEMEncodedCertificateAndKey, error) {
	cluster := o.Config.Cluster()

	serviceIPs, err := cluster.Network().APIServerIPs()
	if err != nil {
		return nil, fmt.Errorf("reading the service subnets: %w", err)
	}

	names := []string{
		"kubernetes", "kubernetes.default", "kubernetes.default.svc",
		"kubernetes.default.svc." + cluster.Network().DNSDomain(), "localhost",
	}
	ips := []net.IP{net.ParseIP(o.Address), net.IPv4(127, 0, 0, 1)}

	for _, ip := range serviceIPs {
		ips = append(ips, ip.AsSlice())
	}

	for _, san := range append([]string{cluster.Endpoint().Hostname(), o.Name}, cluster.CertSANs()...) {
		switch ip := net.ParseIP(san); {
		case ip != nil:
			ips = append(ips, ip)
		case san != "":
			names = append(names, san)
		}
	}

	slices.Sort(names)

	return issue(cluster.IssuingCA(), certificate.Life,
		x509.CommonName("kube-apiserver"),
		x509.Organization("kube-master"),
		x509.DNSNames(slices.Compact(names)),
		x509.IPAddresses(ips),
		certificate.For(certificate.Server),
	)
}

// pki returns the files that the flags of the API server name.
func (o APIServerOptions) pki() (map[string][]byte, error) {
	cluster := o.Config.Cluster()
	etcdCA := cluster.Etcd().CA()

	if cluster.ServiceAccount() == nil || etcdCA == nil || cluster.AggregatorCA() == nil {
		return nil, errNoCA
	}

	account, err := cluster.ServiceAccount().GetKey()
	if err != nil {
		return nil, fmt.Errorf("reading the service account key: %w", err)
	}

	serving, err := o.serving()
	if err != nil {
		return nil, err
	}

	kubelet, err := issue(cluster.IssuingCA(), certificate.Life, certificate.For(certificate.Client),
		x509.CommonName(constants.KubernetesAPIServerKubeletClientCommonName),
		x509.Organization(constants.KubernetesAdminCertOrganization))
	if err != nil {
		return nil, err
	}

	proxy, err := issue(cluster.AggregatorCA(), certificate.Life, certificate.For(certificate.Client),
		x509.CommonName("front-proxy-client"))
	if err != nil {
		return nil, err
	}

	storage, err := etcd.ClientCertificate(etcdCA, "kube-apiserver")
	if err != nil {
		return nil, err
	}

	return map[string][]byte{
		"ca.crt":            authorities(o.Config),
		"aggregator-ca.crt": cluster.AggregatorCA().Crt,
		"apiserver.crt":     serving.Crt, "apiserver.key": serving.Key,
		"apiserver-kubelet-client.crt": kubelet.Crt, "apiserver-kubelet-client.key": kubelet.Key,
		"front-proxy-client.crt": proxy.Crt, "front-proxy-client.key": proxy.Key,
		"etcd-client-ca.crt": etcdCA.Crt,
		"etcd-client.crt":    storage.Crt, "etcd-client.key": storage.Key,
		"service-account.pub": account.GetPublicKeyPEM(),
		"service-account.key": cluster.ServiceAccount().Key,
	}, nil
}

// authorities are the issuing CA and those that are still accepted during a rotation.
func authorities(cfg config.Config) []byte {
	var all []byte

	if ca := cfg.Cluster().IssuingCA(); ca != nil {
		all = append(all, ca.Crt...)
	}

	for _, ca := range cfg.Cluster().AcceptedCAs() {
		if len(all) > 0 && all[len(all)-1] != '\n' {
			all = append(all, '\n')
		}

		all = append(all, ca.Crt...)
	}

	return all
}
