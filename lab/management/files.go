package management

import (
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/talos-operator/talos-operator/lab/node/disk"
)

// WriteKubeconfig writes access as a kubeconfig file, readable for its owner only.
func WriteKubeconfig(path string, cfg *rest.Config, namespace string) error {
	const name = "talos-lab"

	content, err := clientcmd.Write(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{
			name: {Server: cfg.Host, CertificateAuthorityData: cfg.CAData},
		},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{
			name: {ClientCertificateData: cfg.CertData, ClientKeyData: cfg.KeyData},
		},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name, Namespace: namespace}},
		CurrentContext: name,
	})
	if err != nil {
		return fmt.Errorf("encoding a kubeconfig: %w", err)
	}

	return disk.WriteFile(path, content)
}
