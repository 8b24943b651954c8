// Package webhook sends notifications to addresses that are secrets, and to receivers that are not trusted: an outcome
// tells nothing of the address, and a receiver can neither send the request elsewhere nor occupy memory or time.
package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"syscall"
	"time"

	"github.com/talos-operator/talos-operator/internal/decide/notification"
	"github.com/talos-operator/talos-operator/internal/endpoint"
)

const (
	// defaultTimeout is how long a request may take from its beginning to the headers of the answer.
	defaultTimeout = 10 * time.Second
	// longestAnswer is how much of a body is read. Nothing of it is used.
	longestAnswer = 4 << 10
	// longestHeader is how long the headers of an answer may be together.
	longestHeader = 16 << 10
)

// Sender sends notifications. Its zero value sends to every host.
type Sender struct {
	// Hosts where webhooks may be.
	Hosts Hosts
	// Endpoints are those that may be connected to; all when nil.
	Endpoints *endpoint.List
	// Timeout of a request; default: 10 s.
	Timeout time.Duration
}

// Check returns why an address cannot be used; nil if it can.
func (s *Sender) Check(address string) error {
	_, err := s.check(address)

	return err
}

// check returns an address if it may be used. What a name resolves to is checked when a notification is sent.
func (s *Sender) check(address string) (*url.URL, error) {
	u, err := s.Hosts.Check(address)
	if err == nil && s.Endpoints.Check(u.Hostname()) != nil {
		return nil, ErrEndpoint // the text of the cause has the address
	}

	return u, err
}

// Send sends a body, once. The ID is that of the notification: a repetition has the same.
func (s *Sender) Send(ctx context.Context, address, id string, body []byte) notification.Outcome {
	u, err := s.check(address)
	if err != nil {
		return notification.Outcome{Why: err.Error()}
	}

	timeout := s.Timeout
	if timeout == 0 {
		timeout = defaultTimeout
	}

	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()

	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), bytes.NewReader(body))
	if err != nil {
		return notification.Outcome{Why: ErrAddress.Error()}
	}

	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "talos-operator")
	req.Header.Set("Idempotency-Key", id)

	res, err := s.client().Do(req)
	if err != nil {
		return notification.Outcome{Why: whyOf(err)} // the text of the error has the address
	}
	defer res.Body.Close()

	// A receiver that is cut off in the middle of a short answer may take that for a failure. That it could not be read
	// does not matter: the status is known.
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, longestAnswer))

	return outcomeOf(res.StatusCode, res.Header.Get("Retry-After"))
}

// client is one of a single request: notifications are rare, and an idle connection would be one more that a receiver
// could occupy.
func (s *Sender) client() *http.Client {
	t := &http.Transport{
		Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true, DisableCompression: true, ForceAttemptHTTP2: true,
		MaxResponseHeaderBytes: longestHeader, TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12},
	}
	s.Endpoints.Restrict(t, &net.Dialer{})

	return &http.Client{
		Transport: t,
		// Where it leads was not checked, and the address would be in the Referer.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// outcomeOf returns what the answer of a receiver means.
func outcomeOf(status int, retryAfter string) notification.Outcome {
	why := fmt.Sprintf("the receiver responded with HTTP status %d", status)

	switch {
	case status >= 200 && status < 300:
		return notification.Outcome{Verdict: notification.Accepted}
	case status >= 300 && status < 400:
		return notification.Outcome{Verdict: notification.Refused, Why: why + "; redirects are not followed"}
	case status == http.StatusTooManyRequests, status == http.StatusRequestTimeout, status >= 500:
		return notification.Outcome{Why: why, After: pauseOf(retryAfter)}
	}

	return notification.Outcome{Verdict: notification.Refused, Why: why}
}

// pauseOf returns how long a receiver asks to wait; 0 if it does not.
func pauseOf(retryAfter string) time.Duration {
	if seconds, err := strconv.ParseInt(retryAfter, 10, 32); err == nil {
		return time.Duration(max(0, seconds)) * time.Second
	}

	if at, err := http.ParseTime(retryAfter); err == nil {
		return max(0, time.Until(at))
	}

	return 0
}

// whyOf says why no answer was received, without the text of the error: it holds the address.
func whyOf(err error) string {
	var (
		names *net.DNSError
		chain *tls.CertificateVerificationError
		slow  net.Error
	)

	switch {
	case errors.Is(err, endpoint.ErrRefused):
		return ErrEndpoint.Error()
	case errors.As(err, &names):
		return "the host name of the receiver cannot be resolved"
	case errors.As(err, &chain):
		return "the certificate of the receiver is not trusted"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "the receiver refused the connection"
	case errors.As(err, &slow) && slow.Timeout():
		return "the receiver did not respond in time"
	}

	return "the connection to the receiver failed"
}
