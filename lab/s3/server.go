// Package s3 runs a real S3 server, versitygw, for the lab: TLS on a loopback address, buckets in a folder.
package s3

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	stdx509 "crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/siderolabs/crypto/x509"

	"github.com/talos-operator/talos-operator/lab/certificate"
	"github.com/talos-operator/talos-operator/lab/process"
)

const (
	// Port of the S3 API.
	Port = "9000"
	// Region that the server calls its own.
	Region = "us-east-1"

	healthPath = "/health"
	readyPause = 20 * time.Millisecond
)

// Options describe the server.
type Options struct {
	// Binary is the path of versitygw.
	Binary string
	// Dir is where the buckets are kept, and the certificates.
	Dir string
	// Address is a loopback IP address.
	Address string
	// VirtualDomain, when set, lets buckets be addressed as {bucket}.{VirtualDomain} too.
	VirtualDomain string
	// Log receives what the server prints; it may be nil.
	Log io.Writer
	// Plain serves HTTP instead of HTTPS.
	Plain bool
}

// Server is a running S3 server.
type Server struct {
	opts Options
	proc *process.Process
	ca   *x509.PEMEncodedCertificateAndKey

	// AccessKey and SecretKey may do everything.
	AccessKey, SecretKey string
}

// Start runs the server and returns once it serves. A folder that was used before keeps its buckets; keys and
// certificates are new each time.
func Start(ctx context.Context, o Options) (*Server, error) {
	s := &Server{opts: o, AccessKey: "lab" + rand.Text()[:13], SecretKey: rand.Text()}

	for _, dir := range []string{s.buckets(), s.path("versions"), s.path("sidecar"), s.path("iam")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("creating the folders of the S3 server: %w", err)
		}
	}

	if err := s.authority(); err != nil {
		return nil, err
	}

	if err := s.run(ctx); err != nil {
		return nil, err
	}

	return s, nil
}

func (s *Server) path(name string) string { return filepath.Join(s.opts.Dir, name) }

func (s *Server) buckets() string { return s.path("buckets") }

func (s *Server) args() []string {
	args := []string{
		"--port=" + s.Host(), "--region=" + Region, "--health=" + healthPath, "--keep-alive", "--quiet",
		"--iam-dir=" + s.path("iam"), "--iam-cache-disable",
	}

	if !s.opts.Plain {
		args = append(args, "--cert="+s.path("server.crt"), "--key="+s.path("server.key"))
	}

	if s.opts.VirtualDomain != "" {
		args = append(args, "--virtual-domain="+s.opts.VirtualDomain)
	}

	// Not every file system has extended attributes: metadata goes beside the objects.
	return append(args, "posix", "--sidecar="+s.path("sidecar"), "--versioning-dir="+s.path("versions"), s.buckets())
}

// run starts the process and waits until it serves.
func (s *Server) run(ctx context.Context) error {
	env := append(process.BaseEnv(), "ROOT_ACCESS_KEY_ID="+s.AccessKey, "ROOT_SECRET_ACCESS_KEY="+s.SecretKey)

	proc, err := process.Start("the S3 server", s.opts.Binary, s.args(), env, s.opts.Log)
	if err != nil {
		return err
	}

	s.proc = proc

	if err := s.ready(ctx); err != nil {
		proc.Kill()

		return err
	}

	return nil
}

func (s *Server) ready(ctx context.Context) error {
	transport := s.Transport()
	defer transport.CloseIdleConnections()

	c := &http.Client{Transport: transport, Timeout: time.Second}

	tick := time.NewTicker(readyPause)
	defer tick.Stop()

	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.Endpoint()+healthPath, nil)
		if err != nil {
			return fmt.Errorf("asking the S3 server: %w", err)
		}

		if resp, err := c.Do(req); err == nil {
			_ = resp.Body.Close()

			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}

		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for the S3 server: %w", ctx.Err())
		case <-s.proc.Done():
			return errors.Join(errors.New("the S3 server ended"), s.proc.Err())
		case <-tick.C:
		}
	}
}

// Host is the address and port.
func (s *Server) Host() string { return net.JoinHostPort(s.opts.Address, Port) }

// Endpoint is the URL.
func (s *Server) Endpoint() string {
	if s.opts.Plain {
		return "http://" + s.Host()
	}

	return "https://" + s.Host()
}

// CA is the certificate in PEM that the server's is signed by.
func (s *Server) CA() []byte { return s.ca.Crt }

// Transport trusts the server.
func (s *Server) Transport() *http.Transport {
	pool := stdx509.NewCertPool()
	pool.AppendCertsFromPEM(s.ca.Crt)

	return &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}
}

// Client may do everything.
func (s *Server) Client() (*minio.Client, error) {
	c, err := minio.New(s.Host(), &minio.Options{
		Creds:        credentials.NewStaticV4(s.AccessKey, s.SecretKey, ""),
		Secure:       !s.opts.Plain,
		Transport:    s.Transport(),
		Region:       Region,
		BucketLookup: minio.BucketLookupPath,
	})
	if err != nil {
		return nil, fmt.Errorf("making a client of the S3 server: %w", err)
	}

	return c, nil
}

// CreateBucket makes a bucket; with locking, its objects can be protected from deletion. One that exists is kept.
func (s *Server) CreateBucket(ctx context.Context, name string, locking bool) error {
	c, err := s.Client()
	if err != nil {
		return err
	}

	err = c.MakeBucket(ctx, name, minio.MakeBucketOptions{Region: Region, ObjectLocking: locking})
	if err != nil && !strings.HasPrefix(minio.ToErrorResponse(err).Code, "BucketAlready") {
		return fmt.Errorf("creating the bucket %s: %w", name, err)
	}

	return nil
}

// Restart ends the server at once and starts it again, with the same keys and buckets.
func (s *Server) Restart(ctx context.Context) error {
	s.proc.Kill()

	return s.run(ctx)
}

// Freeze halts the server: connections stay open and nothing responds.
func (s *Server) Freeze(frozen bool) error { return s.proc.Freeze(frozen) }

// Kill ends the server. The buckets stay.
func (s *Server) Kill() { s.proc.Kill() }

// Done is closed when the server is gone.
func (s *Server) Done() <-chan struct{} { return s.proc.Done() }

// PID is the process ID of the server.
func (s *Server) PID() int { return s.proc.PID() }

// authority makes a CA and the certificate of the server.
func (s *Server) authority() error {
	var err error
	if s.ca, err = certificate.Authority("s3", certificate.Life); err != nil {
		return err
	}

	pair, err := s.Certificate(s.opts.Address)
	if err != nil {
		return err
	}

	for name, content := range map[string][]byte{"ca.crt": s.ca.Crt, "server.crt": pair.Crt, "server.key": pair.Key} {
		if err := os.WriteFile(s.path(name), content, 0o600); err != nil {
			return fmt.Errorf("writing the certificates of the S3 server: %w", err)
		}
	}

	return nil
}

// Certificate issues one for another address, such as that of a proxy in front.
func (s *Server) Certificate(address string) (*x509.PEMEncodedCertificateAndKey, error) {
	names := []string{"localhost"}
	if d := s.opts.VirtualDomain; d != "" {
		names = append(names, d, "*."+d)
	}

	return certificate.Issue(s.ca, certificate.Life,
		x509.CommonName("s3"), x509.DNSNames(names), x509.IPAddresses([]net.IP{net.ParseIP(address)}),
		certificate.For(certificate.Server))
}
