package app

import (
	"crypto/tls"
	"fmt"
	"path/filepath"

	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// MetricsServer is how metrics are served: they name every cluster and machine, so by default only to accounts that may
// read them.
func (o *Options) MetricsServer() (metricsserver.Options, error) {
	server := metricsserver.Options{BindAddress: o.MetricsBindAddress, SecureServing: o.MetricsSecure}

	if !o.MetricsSecure {
		if server.BindAddress == "" {
			server.BindAddress = ":8080"
		}

		return server, nil
	}

	if server.BindAddress == "" {
		server.BindAddress = ":8443"
	}

	if server.CertDir = o.MetricsCertDir; server.CertDir != "" {
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
