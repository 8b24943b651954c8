// Package server is about how metrics are served.
package server

import (
	"crypto/tls"
	"fmt"
	"path/filepath"

	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// The reviews are of no namespace, so they need a ClusterRole: of its own, because METRICS_SECURE=false does without.
// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create

// Options are those of the metrics server: metrics name every cluster and machine, so with secure only accounts that
// may get /metrics read them. The default of the address is :8443, or :8080 without secure. certDir has tls.crt and
// tls.key; when it is empty, the certificate is self-signed. A certificate that cannot be read is an error.
func Options(address string, secure bool, certDir string) (metricsserver.Options, error) {
	server := metricsserver.Options{BindAddress: address, SecureServing: secure}

	if !secure {
		if server.BindAddress == "" {
			server.BindAddress = ":8080"
		}

		return server, nil
	}

	if server.BindAddress == "" {
		server.BindAddress = ":8443"
	}

	if server.CertDir = certDir; server.CertDir != "" {
		// The server would take a self-signed certificate instead, and never look for this one again.
		_, err := tls.LoadX509KeyPair(filepath.Join(server.CertDir, "tls.crt"), filepath.Join(server.CertDir, "tls.key"))
		if err != nil {
			return server, fmt.Errorf("reading the certificate of the metrics server (METRICS_CERT_DIR): %w", err)
		}
	}

	server.FilterProvider = filters.WithAuthenticationAndAuthorization
	// Scrapes do not need HTTP/2, and it would be spoken before a client is authenticated: CVE-2023-44487.
	server.TLSOpts = []func(*tls.Config){func(c *tls.Config) { c.NextProtos = []string{"http/1.1"} }}

	return server, nil
}
