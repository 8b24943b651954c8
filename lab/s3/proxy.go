package s3

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"time"
)

// Fault is what the proxy does to a request instead of passing it on. The zero value does nothing.
type Fault struct {
	// Status and Code answer with an S3 error.
	Status int
	Code   string
	// CutAfter breaks the connection once that many bytes of the request's body, or of the answer's, were passed on.
	CutAfter int64
	// Hang passes CutAfter bytes on and then nothing, until the client closes.
	Hang bool
	// Pause goes before each 64 KiB of the body.
	Pause time.Duration
	// Swallow answers 200 OK and stores nothing.
	Swallow bool
	// LoseAnswer passes the request on and breaks the connection instead of answering.
	LoseAnswer bool
}

// Proxy stands in front of the server, with a certificate of its own from the same CA, and makes trouble.
type Proxy struct {
	listener net.Listener
	server   *http.Server

	mu    sync.Mutex
	fault func(*http.Request) Fault
	seen  []string
}

// NewProxy listens on another loopback address, at the same port as the server.
func NewProxy(s *Server, address string) (*Proxy, error) {
	pair, err := s.Certificate(address)
	if err != nil {
		return nil, err
	}

	cert, err := tls.X509KeyPair(pair.Crt, pair.Key)
	if err != nil {
		return nil, fmt.Errorf("reading the certificate of the proxy: %w", err)
	}

	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", net.JoinHostPort(address, Port))
	if err != nil {
		return nil, fmt.Errorf("listening in front of the S3 server: %w", err)
	}

	target, err := url.Parse(s.Endpoint())
	if err != nil {
		return nil, fmt.Errorf("reading the address of the S3 server: %w", err)
	}

	p := &Proxy{listener: tls.NewListener(l, &tls.Config{
		Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12,
	})}
	quiet := log.New(io.Discard, "", 0)
	forward := &httputil.ReverseProxy{
		// The signature covers the host that the client asked for.
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Host = r.In.Host
		},
		Transport:      s.Transport(),
		ModifyResponse: p.answer,
		ErrorLog:       quiet,
	}
	p.server = &http.Server{
		Handler:           p.handler(forward),
		ReadHeaderTimeout: time.Minute,
		ErrorLog:          quiet,
	}

	go func() { _ = p.server.Serve(p.listener) }()

	return p, nil
}

// Endpoint is the URL of the proxy.
func (p *Proxy) Endpoint() string { return "https://" + p.listener.Addr().String() }

// Set decides about each request from now on; nil passes all.
func (p *Proxy) Set(fault func(*http.Request) Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()

	p.fault = fault
}

// Seen returns the requests so far, method and path.
func (p *Proxy) Seen() []string {
	p.mu.Lock()
	defer p.mu.Unlock()

	return append([]string(nil), p.seen...)
}

// Close ends the proxy.
func (p *Proxy) Close() { _ = p.server.Close() }

type faultKey struct{}

func (p *Proxy) handler(forward http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		p.seen = append(p.seen, r.Method+" "+r.URL.RequestURI())
		decide := p.fault
		p.mu.Unlock()

		var f Fault
		if decide != nil {
			f = decide(r)
		}

		switch {
		case f.Status != 0:
			w.Header().Set("Content-Type", "application/xml")
			w.WriteHeader(f.Status)
			fmt.Fprintf(w, "<Error><Code>%s</Code><Message>made by the lab</Message></Error>", f.Code)

			return
		case f.Swallow:
			_, _ = io.Copy(io.Discard, r.Body)

			w.Header().Set("ETag", `"d41d8cd98f00b204e9800998ecf8427e"`)

			return
		}

		if f.CutAfter > 0 || f.Hang || f.Pause > 0 {
			r.Body = &faulty{ReadCloser: r.Body, fault: f, done: r.Context().Done()}
		}

		forward.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), faultKey{}, f)))
	})
}

// answer applies the fault to the body of the answer.
func (p *Proxy) answer(resp *http.Response) error {
	f, _ := resp.Request.Context().Value(faultKey{}).(Fault)

	if f.LoseAnswer {
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()

		// The reverse proxy ends the connection without an answer.
		panic(http.ErrAbortHandler)
	}

	if f.CutAfter > 0 || f.Hang || f.Pause > 0 {
		resp.Body = &faulty{ReadCloser: resp.Body, fault: f, done: resp.Request.Context().Done()}
	}

	return nil
}

var errCut = errors.New("cut by the lab")

// faulty is a body that breaks, hangs or crawls.
type faulty struct {
	io.ReadCloser

	fault Fault
	done  <-chan struct{}
	read  int64
}

// Read implements io.Reader.
func (f *faulty) Read(p []byte) (int, error) {
	if f.fault.Pause > 0 {
		p = p[:min(len(p), 64<<10)]

		select {
		case <-time.After(f.fault.Pause):
		case <-f.done:
			return 0, errCut
		}
	}

	if left := f.fault.CutAfter - f.read; f.fault.CutAfter > 0 || f.fault.Hang {
		if left <= 0 {
			if f.fault.Hang {
				<-f.done
			}

			return 0, errCut
		}

		p = p[:min(int64(len(p)), left)]
	}

	n, err := f.ReadCloser.Read(p)
	f.read += int64(n)

	return n, err
}
