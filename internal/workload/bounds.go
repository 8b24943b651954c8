package workload

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
)

// ErrTooMuch ends a request whose response is larger than that of any genuine API server. A managed cluster is not
// trusted: its administrators may make it send an endless response, or one that takes far more memory once it is
// decoded than it has bytes.
var ErrTooMuch = errors.New("the response of the API server is too large")

// errEncoding rejects responses that cannot be counted before they are decoded.
var errEncoding = errors.New("the response of the API server is not JSON")

// errRedirect rejects redirects, which no API server sends for what the operator requests. One would lead the requests
// of the operator to an address that the administrators of the managed cluster choose.
var errRedirect = errors.New("the API server redirects the request, which is not followed")

const (
	// plainBody is the maximum response that is not a list, and the maximum of a list in addition to its objects. etcd
	// accepts objects of 1.5 MiB.
	plainBody = 4 << 20
	// objectBody is the maximum average size of the objects of a page: a Node with fifty images has 20 KiB.
	objectBody = 64 << 10
	// plainValues and objectValues are the same limits for JSON values. A Node with fifty images and its managed fields
	// has 500; a decoded value takes up to half a KiB.
	plainValues  = 20_000
	objectValues = 1000
	// bodyRate is the average number of bytes per second that an API server may send after the first bodyBurst bytes: a
	// list with endless pages must not fill the memory within the time of a reconciliation.
	bodyRate, bodyBurst = 16 << 20, 96 << 20
)

// bounded limits the responses of the API servers of a cluster.
type bounded struct {
	next http.RoundTripper
	pace *rate.Limiter
}

// boundAnswers makes a client request JSON, whose values are counted before they are decoded, and wraps its transport.
func boundAnswers(cfg *rest.Config) {
	cfg.ContentType, cfg.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	cfg.Wrap(boundTransport)
}

func boundTransport(next http.RoundTripper) http.RoundTripper {
	return &bounded{next: next, pace: rate.NewLimiter(bodyRate, bodyBurst)}
}

// RoundTrip implements http.RoundTripper. The body is counted after decompression.
func (b *bounded) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := b.next.RoundTrip(req)
	if err != nil || resp.Body == nil {
		return resp, err
	}

	if resp.Header.Get("Location") != "" && resp.StatusCode >= 300 && resp.StatusCode < 400 {
		_ = resp.Body.Close()

		return nil, errRedirect
	}

	counted, err := isCounted(resp.Header.Get("Content-Type"))
	if err != nil {
		_ = resp.Body.Close()

		return nil, err
	}

	// A server may ignore the limit of a list. The excess is not decoded.
	limit, _ := strconv.Atoi(req.URL.Query().Get("limit"))
	out := &body{ReadCloser: resp.Body, ctx: req.Context(), most: plainBody + int64(limit)*objectBody, pace: b.pace}
	out.left = out.most

	if counted {
		out.values = &counter{maxItems: limit, maxValues: plainValues + limit*objectValues}
	}

	resp.Body = out

	return resp, nil
}

// isCounted reports whether a response is JSON. Text is never decoded. The client would also decode protobuf, YAML and
// CBOR, although it does not request them.
func isCounted(contentType string) (bool, error) {
	if contentType == "" {
		return true, nil // the client assumes the requested encoding
	}

	media, _, err := mime.ParseMediaType(contentType)

	switch {
	case err == nil && media == runtime.ContentTypeJSON:
		return true, nil
	case err == nil && strings.HasPrefix(media, "text/"):
		return false, nil
	}

	return false, fmt.Errorf("%w: %.64q", errEncoding, contentType)
}

type body struct {
	io.ReadCloser

	ctx        context.Context //nolint:containedctx // that of the request that this is the answer to
	most, left int64
	values     *counter
	pace       *rate.Limiter
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	p = p[:min(len(p), bodyBurst)]

	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, fmt.Errorf("%w: more than %d bytes", ErrTooMuch, b.most)
	}

	if b.values != nil {
		if cerr := b.values.count(p[:n]); cerr != nil {
			return 0, cerr
		}
	}

	if werr := b.pace.WaitN(b.ctx, n); werr != nil {
		// A slow server, or the end of a reconciliation, is not an attack.
		if b.ctx.Err() != nil {
			return 0, context.Cause(b.ctx)
		}

		return 0, fmt.Errorf("%w: more than %d bytes a second", ErrTooMuch, bodyRate)
	}

	return n, err
}
