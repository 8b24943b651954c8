package store

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/minio/minio-go/v7/pkg/encrypt"
	"github.com/minio/minio-go/v7/pkg/s3utils"

	"github.com/talos-operator/talos-operator/internal/endpoint"
	"github.com/talos-operator/talos-operator/internal/failure"
)

// Styles of addressing the bucket in a request.
const (
	// StylePath: https://endpoint/bucket/key.
	StylePath = "Path"
	// StyleVirtualHost: https://bucket.endpoint/key.
	StyleVirtualHost = "VirtualHost"
)

// Modes of object lock.
const (
	// LockGovernance: users with a special permission may still delete the object.
	LockGovernance = "GOVERNANCE"
	// LockCompliance: no user may delete the object.
	LockCompliance = "COMPLIANCE"
)

// Timeouts of a connection.
const (
	connectTimeout = 10 * time.Second
	// defaultStall is how long a connection may make no progress.
	defaultStall = time.Minute
	// answerTimeout is how long the response to a request may take; completing a large upload takes some time in some
	// stores.
	answerTimeout = 2 * time.Minute
	idleTimeout   = 90 * time.Second
	keepAlive     = 15 * time.Second
)

// Credentials of S3.
type Credentials struct {
	AccessKeyID     string
	SecretAccessKey string
	// SessionToken of temporary credentials.
	SessionToken string
}

// S3Settings describe a bucket and how to use it.
type S3Settings struct {
	// Endpoint is a URL with scheme and host, or a host, which means https; the AWS endpoint of the region when empty.
	Endpoint string
	// Region of the bucket; us-east-1 when empty, which most compatible stores accept.
	Region string
	// Bucket is the name of an existing bucket.
	Bucket string
	// Prefix of every key, without leading or trailing slashes.
	Prefix string
	// Style is StylePath or StyleVirtualHost. When empty: virtual hosts if the endpoint is AWS, otherwise paths.
	Style string
	// CA are PEM-encoded certificates that the certificate of the store is verified against, instead of those of the
	// system.
	CA []byte
	// Credentials is called before each request, so that new credentials are used immediately. It must be quick, and locks
	// that it needs must not be held for long. Nil means the standard environment: AWS_ACCESS_KEY_ID and so on, a web
	// identity token, the credentials file, the metadata services.
	Credentials func(ctx context.Context) (Credentials, error)
	// SSE is empty, AES256 or aws:kms; KMSKeyID applies to the latter.
	SSE, KMSKeyID string
	// Lock protects each object from deletion.
	Lock Lock
	// Stall is how long a connection may make no progress; a minute when zero.
	Stall time.Duration
	// Endpoints are those that may be connected to; all when nil.
	Endpoints *endpoint.List
}

// Lock is the object-lock retention of S3. The zero value requests none; the bucket may have a default of its own.
type Lock struct {
	// Mode is LockGovernance or LockCompliance.
	Mode string
	// For is the minimum time for which an object is kept.
	For time.Duration
}

// validate checks the settings, and returns the endpoint.
func (s *S3Settings) validate() (*url.URL, error) {
	u, err := s.endpoint()

	switch {
	case err != nil:
		return nil, invalid("the endpoint must be https://host[:port], http://host[:port] or host[:port]", err)
	case s.Bucket == "":
		return nil, invalid("the bucket is not set", nil)
	case s3utils.CheckValidBucketName(s.Bucket) != nil:
		return nil, invalid(fmt.Sprintf("the bucket name %.100q is not valid", s.Bucket), nil)
	case s.Prefix != "" && ValidKey(s.Prefix) != nil:
		return nil, invalid("the prefix may hold letters, digits and . _ - /, without a slash at its ends", nil)
	case s.Style != "" && s.Style != StylePath && s.Style != StyleVirtualHost:
		return nil, invalid("the style must be Path or VirtualHost", nil)
	case s.Lock.Mode != "" && s.Lock.Mode != LockGovernance && s.Lock.Mode != LockCompliance:
		return nil, invalid("the mode of the object lock must be GOVERNANCE or COMPLIANCE", nil)
	case s.Lock.Mode != "" && s.Lock.For <= 0:
		return nil, invalid("the object lock has no time", nil)
	}

	return u, s.checkAddress(u.Hostname())
}

// checkAddress refuses an address at once. A name is checked when its address is known.
func (s *S3Settings) checkAddress(host string) error {
	if _, err := netip.ParseAddr(host); err != nil {
		return nil //nolint:nilerr // it is a name
	}

	if err := s.Endpoints.Check(host); err != nil {
		return refused("s3://"+s.Bucket, err)
	}

	return nil
}

// refused tells an endpoint that the administrator of the operator does not allow.
func refused(where string, err error) error {
	return failure.Terminal(ReasonEndpoint, fmt.Sprintf("the endpoint of %s may not be used: its address is not one that "+
		"the operator may connect to (%s)", where, endpoint.Flag), err)
}

func invalid(message string, err error) error {
	return failure.Terminal(ReasonInvalid, "the S3 store cannot be used: "+message, err)
}

func (s *S3Settings) endpoint() (*url.URL, error) {
	raw := s.Endpoint
	if raw == "" {
		raw = "s3." + s.region() + ".amazonaws.com"
	}

	if !strings.Contains(raw, "://") {
		raw = "https://" + raw
	}

	u, err := url.Parse(raw)

	switch {
	case err != nil:
		return nil, errors.New("it is no URL") // the cause would quote it
	case u.Scheme != "https" && u.Scheme != "http":
		return nil, errors.New("its scheme is neither https nor http")
	case u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || path.Clean("/"+u.Path) != "/":
		return nil, errors.New("it has more or less than scheme, host and port")
	}

	return u, nil
}

func (s *S3Settings) region() string {
	if s.Region == "" {
		return "us-east-1"
	}

	return s.Region
}

func (s *S3Settings) lookup() minio.BucketLookupType {
	switch s.Style {
	case StylePath:
		return minio.BucketLookupPath
	case StyleVirtualHost:
		return minio.BucketLookupDNS
	}

	return minio.BucketLookupAuto
}

func (s *S3Settings) sse() (encrypt.ServerSide, error) {
	switch s.SSE {
	case "":
		return nil, nil // none is asked for
	case "AES256":
		return encrypt.NewSSE(), nil
	case "aws:kms":
		sse, err := encrypt.NewSSEKMS(s.KMSKeyID, nil)
		if err != nil {
			return nil, invalid("the KMS key cannot be used", err)
		}

		return sse, nil
	}

	return nil, invalid("the server-side encryption must be AES256 or aws:kms", nil)
}

// transport uses HTTP/1.1 only: with one connection per request, the progress of each request is monitored separately.
func (s *S3Settings) transport() (*http.Transport, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}

	if len(s.CA) > 0 {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(s.CA) {
			return nil, invalid("the CA holds no certificate in PEM", nil)
		}
	}

	stall := s.Stall
	if stall <= 0 {
		stall = defaultStall
	}

	t := &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		TLSClientConfig:       config,
		TLSHandshakeTimeout:   connectTimeout,
		ResponseHeaderTimeout: max(answerTimeout, stall),
		ExpectContinueTimeout: time.Second,
		MaxIdleConnsPerHost:   uploadsAtOnce + 1,
		IdleConnTimeout:       idleTimeout,
		DisableCompression:    true,
		WriteBufferSize:       64 << 10,
		ReadBufferSize:        64 << 10,
	}
	s.Endpoints.Restrict(t, &net.Dialer{Timeout: connectTimeout, KeepAlive: keepAlive})

	dial := t.DialContext
	t.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}

		return &watchedConn{Conn: c, stall: stall}, nil
	}

	return t, nil
}

// watchedConn fails if the other side neither accepts nor sends data for too long.
type watchedConn struct {
	net.Conn

	stall time.Duration
}

// Read implements net.Conn.
func (c *watchedConn) Read(p []byte) (int, error) {
	if err := c.SetReadDeadline(time.Now().Add(c.stall)); err != nil {
		return 0, err
	}

	return c.Conn.Read(p)
}

// Write implements net.Conn. The read of the response has been waiting since before the request, so its timeout starts
// again.
func (c *watchedConn) Write(p []byte) (int, error) {
	now := time.Now()
	if err := errors.Join(
		c.SetWriteDeadline(now.Add(c.stall)), c.SetReadDeadline(now.Add(max(answerTimeout, c.stall))),
	); err != nil {
		return 0, err
	}

	return c.Conn.Write(p)
}

// provider returns the source of the credentials for requests.
func (s *S3Settings) provider() *credentials.Credentials {
	if s.Credentials == nil {
		return credentials.NewChainCredentials([]credentials.Provider{
			&credentials.EnvAWS{},
			&credentials.FileAWSCredentials{},
			&credentials.IAM{Client: &http.Client{Transport: http.DefaultTransport, Timeout: connectTimeout}},
		})
	}

	return credentials.New(&dynamic{ask: s.Credentials})
}

// EnvironmentCredentials returns the credentials of AWS_ACCESS_KEY_ID and so on, or of the credentials file, to pass
// them on. The error has ReasonCredentials if there are none.
func EnvironmentCredentials() (Credentials, error) {
	v, err := credentials.NewChainCredentials([]credentials.Provider{
		&credentials.EnvAWS{}, &credentials.FileAWSCredentials{},
	}).GetWithContext(nil)
	if err != nil || v.AccessKeyID == "" || v.SecretAccessKey == "" {
		// The cause would quote the file.
		return Credentials{}, failure.Auth(ReasonCredentials, "the environment holds no credentials for S3", nil)
	}

	return Credentials{
		AccessKeyID: v.AccessKeyID, SecretAccessKey: v.SecretAccessKey, SessionToken: v.SessionToken,
	}, nil
}

// dynamic retrieves credentials before each request.
type dynamic struct {
	ask func(ctx context.Context) (Credentials, error)
}

// credentialsError reports missing credentials, as opposed to credentials that the store rejects.
type credentialsError struct{ err error }

// Error implements error.
func (e *credentialsError) Error() string { return "getting credentials: " + e.err.Error() }

// Unwrap returns the cause.
func (e *credentialsError) Unwrap() error { return e.err }

// RetrieveWithCredContext implements credentials.Provider.
func (d *dynamic) RetrieveWithCredContext(cc *credentials.CredContext) (credentials.Value, error) {
	ctx := context.Background()
	if cc != nil && cc.Context != nil {
		ctx = cc.Context
	}

	c, err := d.ask(ctx)
	if err == nil && (c.AccessKeyID == "" || c.SecretAccessKey == "") {
		err = errors.New("the access key or the secret key is empty")
	}

	if err != nil {
		return credentials.Value{}, &credentialsError{err}
	}

	return credentials.Value{
		AccessKeyID: c.AccessKeyID, SecretAccessKey: c.SecretAccessKey, SessionToken: c.SessionToken,
		SignerType: credentials.SignatureV4,
	}, nil
}

// Retrieve implements credentials.Provider.
func (d *dynamic) Retrieve() (credentials.Value, error) { return d.RetrieveWithCredContext(nil) }

// IsExpired implements credentials.Provider: credentials are never cached.
func (d *dynamic) IsExpired() bool { return true }
