package process

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// assetsFolder is where `make kube` puts the binaries, under the root of the module.
const assetsFolder = ".bin/kube"

// Assets finds the folder that holds etcd, etcdutl and kube-apiserver: KUBEBUILDER_ASSETS, or .bin/kube of the
// module around the working directory.
func Assets() (string, error) {
	if dir := os.Getenv("KUBEBUILDER_ASSETS"); dir != "" {
		return dir, nil
	}

	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("finding the module: %w", err)
	}

	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}

		if dir == filepath.Dir(dir) {
			return "", errors.New("finding etcd and kube-apiserver: KUBEBUILDER_ASSETS is not set")
		}
	}

	assets := filepath.Join(dir, assetsFolder)
	if _, err := os.Stat(filepath.Join(assets, "etcd")); err != nil {
		return "", fmt.Errorf("finding etcd and kube-apiserver (make kube builds them): %w", err)
	}

	return assets, nil
}
