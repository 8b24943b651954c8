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

// ErrTooMuch is what a request ends with whose answer is larger than that of any honest API server. A managed cluster
// is not trusted: its administrators may have it answer without an end, or with what takes far more memory once it is
// decoded than it has bytes.
var ErrTooMuch = errors.New("the response of the API server is too large")

// errEncoding refuses what cannot be counted before it is decoded.
var errEncoding = errors.New("the response of the API server is not JSON")

const (
	// plainBody is the largest answer that is no list, and what a list may have besides its objects. etcd takes objects of
	// 1.5 MiB.
	plainBody = 4 << 20
	// objectBody is what each object of a page may have on average: a Node with fifty images has 20 KiB.
	objectBody = 64 << 10
	// plainValues and objectValues are the same for JSON values. A Node with fifty images and its managed fields has 500;
	// decoded, one value takes up to half a KiB.
	plainValues  = 20_000
	objectValues = 1000
	// bodyRate is what an API server may send in a second, on average, once it has sent bodyBurst: a list whose pages
	// never end must not fill the memory within the time of a pass.
	bodyRate, bodyBurst = 16 << 20, 96 << 20
)

// bounded limits what the API servers of a cluster answer.
type bounded struct {
	next http.RoundTripper
	pace *rate.Limiter
}

// boundAnswers has a client ask for JSON, whose values are counted before they are decoded, and wraps its transport.
func boundAnswers(cfg *rest.Config) {
	cfg.ContentType, cfg.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	cfg.Wrap(boundTransport)
}

func boundTransport(next http.RoundTripper) http.RoundTripper {
	return &bounded{next: next, pace: rate.NewLimiter(bodyRate, bodyBurst)}
}

// RoundTrip implements http.RoundTripper. The body is counted as it is after decompression.
func (b *bounded) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := b.next.RoundTrip(req)
	if err != nil || resp.Body == nil {
		return resp, err
	}

	counted, err := isCounted(resp.Header.Get("Content-Type"))
	if err != nil {
		_ = resp.Body.Close()

		return nil, err
	}

	// A server may ignore the limit of a list. What it sends beyond is not decoded.
	limit, _ := strconv.Atoi(req.URL.Query().Get("limit"))
	out := &body{ReadCloser: resp.Body, ctx: req.Context(), most: plainBody + int64(limit)*objectBody, pace: b.pace}
	out.left = out.most

	if counted {
		out.values = &counter{maxItems: limit, maxValues: plainValues + limit*objectValues}
	}

	resp.Body = out

	return resp, nil
}

// isCounted tells whether an answer is JSON. Text is never decoded. The client would decode protobuf, YAML and CBOR as
// well, although it has not asked for them.
func isCounted(contentType string) (bool, error) {
	if contentType == "" {
		return true, nil // the client takes it for what it has asked for
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
		// A server that is slow, or a pass that ends, is not hostile.
		if b.ctx.Err() != nil {
			return 0, context.Cause(b.ctx)
		}

		return 0, fmt.Errorf("%w: more than %d bytes a second", ErrTooMuch, bodyRate)
	}

	return n, err
}
