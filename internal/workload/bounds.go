package workload

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"golang.org/x/time/rate"
)

// ErrTooMuch is what a request ends with whose answer is larger than that of any honest API server. A managed cluster
// is not trusted: whoever runs it may answer without an end.
var ErrTooMuch = errors.New("the answer of the API server is too large")

const (
	// maxBody is the largest answer. The pages of lists are of 250 objects, which may have up to 1 MiB but have some KiB.
	maxBody = 64 << 20
	// maxPages of a list: 10,000 nodes, twice what Kubernetes supports.
	maxPages = 40
	// maxSecretPages of all Secrets, which are counted and not kept: half a million.
	maxSecretPages = 2000
	// bodyRate is what an API server may send in a second, on average, once it has sent bodyBurst: a list whose pages
	// never end must not fill the memory within the time of a pass.
	bodyRate, bodyBurst = 16 << 20, 96 << 20
)

// bounded limits what the API servers of a cluster answer.
type bounded struct {
	next http.RoundTripper
	pace *rate.Limiter
}

// boundAnswers wraps the transport of one client.
func boundAnswers(next http.RoundTripper) http.RoundTripper {
	return &bounded{next: next, pace: rate.NewLimiter(bodyRate, bodyBurst)}
}

// RoundTrip implements http.RoundTripper. The body is counted as it is after decompression.
func (b *bounded) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := b.next.RoundTrip(req)
	if err != nil || resp.Body == nil {
		return resp, err
	}

	resp.Body = &body{ReadCloser: resp.Body, ctx: req.Context(), left: maxBody, pace: b.pace}

	return resp, nil
}

type body struct {
	io.ReadCloser

	ctx  context.Context //nolint:containedctx // that of the request that this is the answer to
	left int64
	pace *rate.Limiter
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	p = p[:min(len(p), bodyBurst)]

	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, fmt.Errorf("%w: more than %d bytes", ErrTooMuch, maxBody)
	}

	if werr := b.pace.WaitN(b.ctx, n); werr != nil {
		return 0, fmt.Errorf("%w: more than %d bytes a second", ErrTooMuch, bodyRate)
	}

	return n, err
}
