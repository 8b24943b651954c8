package kubernetes

import (
	"fmt"
	"net"

	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/config/config"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/talos-operator/talos-operator/lab/certificate"
)

// apiPort is where an API server of Talos listens on its own node.
const apiPort = "6443"

// The lab is no place for the client-side limits of client-go: a slow kubelet would look like a broken one.
const (
	clientQPS   = 200
	clientBurst = 400
)

// adminCertificate issues the certificate that the machine config describes for administrators.
func adminCertificate(cfg config.Config) (*x509.PEMEncodedCertificateAndKey, error) {
	admin := cfg.Cluster().AdminKubeconfig()

	return issue(cfg.Cluster().IssuingCA(), admin.CertLifetime(), certificate.For(certificate.Client),
		x509.CommonName(admin.CommonName()), x509.Organization(admin.CertOrganization()))
}

// AdminKubeconfig renders the kubeconfig that the Kubeconfig call of a node packs.
func AdminKubeconfig(cfg config.Config, endpoint string) ([]byte, error) {
	cert, err := adminCertificate(cfg)
	if err != nil {
		return nil, fmt.Errorf("rendering the admin kubeconfig: %w", err)
	}

	cluster := cfg.Cluster().Name()
	user := "admin@" + cluster

	out, err := clientcmd.Write(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{
			cluster: {Server: endpoint, CertificateAuthorityData: authorities(cfg)},
		},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{
			user: {ClientCertificateData: cert.Crt, ClientKeyData: cert.Key},
		},
		Contexts: map[string]*clientcmdapi.Context{
			user: {Cluster: cluster, AuthInfo: user, Namespace: "default"},
		},
		CurrentContext: user,
	})
	if err != nil {
		return nil, fmt.Errorf("rendering the admin kubeconfig: %w", err)
	}

	return out, nil
}

// AdminConfig reaches the API server of the node at address directly, as cluster admin.
func AdminConfig(cfg config.Config, address string) (*rest.Config, error) {
	cert, err := adminCertificate(cfg)
	if err != nil {
		return nil, fmt.Errorf("making an admin client: %w", err)
	}

	return &rest.Config{
		Host: "https://" + net.JoinHostPort(address, apiPort),
		TLSClientConfig: rest.TLSClientConfig{
			CAData: authorities(cfg), CertData: cert.Crt, KeyData: cert.Key,
		},
		QPS: clientQPS, Burst: clientBurst,
	}, nil
}
