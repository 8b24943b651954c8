package etcd

import (
	"crypto/tls"
	stdx509 "crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/siderolabs/crypto/x509"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/talos-operator/talos-operator/lab/certificate"
)

const (
	caCert     = "ca.crt"
	serverCert = "server.crt"
	serverKey  = "server.key"
	peerCert   = "peer.crt"
	peerKey    = "peer.key"

	dialTimeout      = 5 * time.Second
	keepAliveTime    = 10 * time.Second
	keepAliveTimeout = 5 * time.Second
)

// reconnect is quick: members start within fractions of a second, the default pause after a refusal is a whole one.
var reconnect = grpc.ConnectParams{
	Backoff: backoff.Config{
		BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second,
	},
	MinConnectTimeout: dialTimeout,
}

var errNoPeers = errors.New("no etcd endpoint is known")

// pki is the path of one file of the member's certificates.
func (o Options) pki(file string) string {
	dir := o.PKI
	if dir == "" {
		dir = o.Dir + "-pki"
	}

	return filepath.Join(dir, file)
}

// writePKI issues the member's certificates from the cluster's etcd CA, afresh at each start.
func (o Options) writePKI() error {
	if o.CA == nil || len(o.CA.Key) == 0 {
		return errors.New("issuing etcd certificates: the machine config has no etcd CA key")
	}

	server, err := o.issue("talos")
	if err != nil {
		return err
	}

	peer, err := o.issue(o.Name)
	if err != nil {
		return err
	}

	if err := os.MkdirAll(filepath.Dir(o.pki(caCert)), 0o700); err != nil {
		return fmt.Errorf("creating the etcd PKI directory: %w", err)
	}

	for name, content := range map[string][]byte{
		caCert:     o.CA.Crt,
		serverCert: server.Crt, serverKey: server.Key,
		peerCert: peer.Crt, peerKey: peer.Key,
	} {
		if err := os.WriteFile(o.pki(name), content, 0o600); err != nil {
			return fmt.Errorf("writing etcd certificates: %w", err)
		}
	}

	return nil
}

// issue makes one certificate for this node.
func (o Options) issue(name string) (*x509.PEMEncodedCertificateAndKey, error) {
	return certificate.Issue(o.CA, certificate.Life,
		x509.CommonName(name),
		x509.DNSNames([]string{o.Name, "localhost"}),
		x509.IPAddresses([]net.IP{net.ParseIP(o.Address), net.IPv4(127, 0, 0, 1)}),
		certificate.For(certificate.Server, certificate.Client),
	)
}

// ClientCertificate issues a client certificate of the etcd CA: what a Talos node gives its own tools and its API
// server to reach etcd with.
func ClientCertificate(ca *x509.PEMEncodedCertificateAndKey, name string) (*x509.PEMEncodedCertificateAndKey, error) {
	return certificate.Issue(ca, certificate.Life, x509.CommonName(name), certificate.For(certificate.Client))
}

// Dial returns a client of the members at the given addresses. It does not wait for a connection; the caller closes
// it.
func Dial(ca *x509.PEMEncodedCertificateAndKey, addresses []string) (*clientv3.Client, error) {
	if len(addresses) == 0 {
		return nil, errNoPeers
	}

	pair, err := ClientCertificate(ca, "talos")
	if err != nil {
		return nil, err
	}

	cert, err := tls.X509KeyPair(pair.Crt, pair.Key)
	if err != nil {
		return nil, fmt.Errorf("loading the etcd client certificate: %w", err)
	}

	roots := stdx509.NewCertPool()
	roots.AppendCertsFromPEM(ca.Crt)

	endpoints := make([]string, 0, len(addresses))
	for _, a := range addresses {
		endpoints = append(endpoints, "https://"+net.JoinHostPort(a, clientPort))
	}

	client, err := clientv3.New(clientv3.Config{
		Endpoints:            endpoints,
		DialTimeout:          dialTimeout,
		DialKeepAliveTime:    keepAliveTime,
		DialKeepAliveTimeout: keepAliveTimeout,
		TLS: &tls.Config{
			Certificates: []tls.Certificate{cert}, RootCAs: roots, MinVersion: tls.VersionTLS12,
		},
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(reconnect)},
		// The client logs every refused connection on its own; callers report what matters.
		Logger: zap.NewNop(),
	})
	if err != nil {
		return nil, fmt.Errorf("making an etcd client: %w", err)
	}

	return client, nil
}
