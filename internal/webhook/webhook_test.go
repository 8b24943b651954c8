package webhook_test

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/talos-operator/talos-operator/internal/decide/notification"
	"github.com/talos-operator/talos-operator/internal/endpoint"
	"github.com/talos-operator/talos-operator/internal/webhook"
	"github.com/talos-operator/talos-operator/test/wait"
)

// The certificate of the servers of httptest is that of a CA of the system here: there is no way to have a Sender trust
// another one.
func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "webhook")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)

	s := httptest.NewTLSServer(nil)
	file := filepath.Join(dir, "ca.pem")
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	s.Close()

	if err := os.WriteFile(file, ca, 0o600); err != nil {
		panic(err)
	}

	os.Setenv("SSL_CERT_FILE", file)
	os.Setenv("SSL_CERT_DIR", dir)

	return m.Run()
}

// secret is part of each address, and must not show anywhere.
const secret = "T0p53cr3t"

// serve starts a receiver, and returns its address.
func serve(t *testing.T, handle http.HandlerFunc) string {
	t.Helper()

	s := httptest.NewUnstartedServer(handle)
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // of connections that a client has had enough of
	s.StartTLS()
	t.Cleanup(s.Close)

	return s.URL + "/" + secret + "?token=" + secret
}

// send sends once, and checks that nothing of the address shows.
func send(t *testing.T, s webhook.Sender, address string) notification.Outcome {
	t.Helper()

	out := s.Send(t.Context(), address, "id-1", []byte(`{"text":"x"}`))

	for _, part := range []string{secret, "127.0.0.1", "example.invalid"} {
		if strings.Contains(out.Why, part) {
			t.Errorf("the outcome shows %q: %s", part, out.Why)
		}
	}

	return out
}

// TestSend: what a receiver gets.
func TestSend(t *testing.T) {
	t.Parallel()

	got := make(chan string, 1)
	address := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		got <- fmt.Sprint(r.Method, " ", r.URL, " ", r.Header.Get("Content-Type"), " ", r.Header.Get("Idempotency-Key"), " ", string(b))
	})

	if out := send(t, webhook.Sender{}, " "+address+"\n"); out.Verdict != notification.Accepted || out.Why != "" {
		t.Errorf("%+v", out)
	}

	want := "POST /" + secret + "?token=" + secret + ` application/json id-1 {"text":"x"}`
	if text := wait.Done(t, "the request", got); text != want {
		t.Errorf("%s", text)
	}
}

// TestAnswers: what the responses of receivers mean.
func TestAnswers(t *testing.T) {
	t.Parallel()

	const retry, accepted, refused = notification.Retry, notification.Accepted, notification.Refused

	for name, c := range map[string]struct {
		status  int
		after   string
		verdict notification.Verdict
		pause   time.Duration
	}{
		"ok":             {200, "", accepted, 0},
		"no content":     {204, "5", accepted, 0},
		"not found":      {404, "5", refused, 0},
		"gone":           {410, "", refused, 0},
		"timeout":        {408, "", retry, 0},
		"too many":       {429, "120", retry, 2 * time.Minute},
		"in the past":    {429, "Mon, 02 Jan 2006 15:04:05 GMT", retry, 0},
		"nonsense":       {429, "soon", retry, 0},
		"negative":       {429, "-5", retry, 0},
		"error":          {500, "", retry, 0},
		"unavailable":    {503, "7", retry, 7 * time.Second},
		"not modified":   {304, "", refused, 0},
		"of the future":  {700, "", retry, 0},
		"only to itself": {451, "", refused, 0},
	} {
		address := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", c.after)
			w.WriteHeader(c.status)
		})

		out := send(t, webhook.Sender{}, address)
		if out.Verdict != c.verdict || out.After != c.pause || c.verdict != accepted && !strings.Contains(out.Why, fmt.Sprint(c.status)) {
			t.Errorf("%s: %+v", name, out)
		}
	}

	// A date that is later than any pause that is granted.
	address := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", wait.Now().Add(48*time.Hour).UTC().Format(http.TimeFormat))
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	if out := send(t, webhook.Sender{}, address); out.After < 24*time.Hour {
		t.Errorf("%+v", out)
	}
}

// TestRedirect: a receiver cannot send the request elsewhere.
func TestRedirect(t *testing.T) {
	t.Parallel()

	var elsewhere atomic.Int32

	other := serve(t, func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) })

	for _, status := range []int{301, 302, 303, 307, 308} {
		address := serve(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, other, status) })
		if out := send(t, webhook.Sender{}, address); out.Verdict != notification.Refused {
			t.Errorf("%d: %+v", status, out)
		}
	}

	if n := elsewhere.Load(); n > 0 {
		t.Errorf("%d requests were sent elsewhere", n)
	}
}

// TestHostile: a receiver occupies neither memory nor time.
func TestHostile(t *testing.T) {
	t.Parallel()

	over := make(chan struct{})

	// Without a deadline that could end a request, the answer has to: an endless body is not read to its end.
	endless := serve(t, func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			if _, err := w.Write(bytes.Repeat([]byte("x"), 1<<16)); err != nil {
				return
			}
		}
	})
	if out := send(t, webhook.Sender{Timeout: time.Hour}, endless); out.Verdict != notification.Accepted {
		t.Errorf("an endless body: %+v", out)
	}

	headers := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X", strings.Repeat("x", 1<<20))
	})
	if out := send(t, webhook.Sender{Timeout: time.Hour}, headers); out.Verdict != notification.Retry || out.Why == "" {
		t.Errorf("long headers: %+v", out)
	}

	hanging := serve(t, func(http.ResponseWriter, *http.Request) { <-over })
	if out := send(t, webhook.Sender{Timeout: 100 * time.Millisecond}, hanging); out.Verdict != notification.Retry || out.Why != "the receiver did not respond in time" {
		t.Errorf("no answer: %+v", out)
	}

	// One that has answered, and does not end its answer, has accepted it.
	half := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		<-over
	})
	if out := send(t, webhook.Sender{Timeout: 2 * time.Second}, half); out.Verdict != notification.Accepted {
		t.Errorf("half an answer: %+v", out)
	}

	close(over) // before the servers are closed: they wait for their handlers
}

// TestUnreachable: what is no answer is tried again, and said without the address.
func TestUnreachable(t *testing.T) {
	t.Parallel()

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	closed := l.Addr().String()
	l.Close()

	plain := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(plain.Close)

	named := strings.Replace(serve(t, func(http.ResponseWriter, *http.Request) {}), "127.0.0.1", "127.0.0.2", 1)

	for name, c := range map[string]struct{ address, why string }{
		"nothing listens":       {"https://" + closed + "/" + secret, "the receiver refused the connection"},
		"no TLS":                {strings.Replace(plain.URL, "http:", "https:", 1) + "/" + secret, "the connection to the receiver failed"},
		"another certificate":   {strings.Replace(named, "127.0.0.2", "localhost", 1), "the certificate of the receiver is not trusted"},
		"no name":               {"https://" + secret + ".example.invalid/", "the host name of the receiver cannot be resolved"},
		"no address":            {"https://a b/" + secret, webhook.ErrAddress.Error()},
		"a host without TLS":    {"http://" + secret + ".example.invalid/", webhook.ErrPlain.Error()},
		"a control character":   {"https://127.0.0.1/" + secret + "\x7f", webhook.ErrAddress.Error()},
		"a scheme of its own":   {"https+" + secret + "://127.0.0.1/", webhook.ErrAddress.Error()},
		"a port that is no one": {"https://127.0.0.1:" + secret + "/", webhook.ErrAddress.Error()},
	} {
		if out := send(t, webhook.Sender{}, c.address); out.Verdict != notification.Retry || out.Why != c.why {
			t.Errorf("%s: %+v", name, out)
		}
	}

	hosts := webhook.Hosts{{Scheme: "https", Name: "hooks.example.com", Port: "443"}}
	if out := send(t, webhook.Sender{Hosts: hosts}, named); out.Verdict != notification.Retry || out.Why != webhook.ErrNoHost.Error() {
		t.Errorf("a host that is not on the list: %+v", out)
	}
}

// TestEndpoints: nothing is sent to an address that the operator may not connect to, by its number or by a name, and
// the outcome tells neither.
func TestEndpoints(t *testing.T) {
	t.Parallel()

	var asked atomic.Int32

	address := serve(t, func(http.ResponseWriter, *http.Request) { asked.Add(1) })
	named := strings.Replace(address, "127.0.0.1", "localhost", 1)
	guarded := webhook.Sender{Endpoints: &endpoint.List{}}

	for _, to := range []string{address, named, "http://127.0.0.1:1/" + secret, "https://169.254.169.254/" + secret} {
		if out := send(t, guarded, to); out.Verdict != notification.Retry || out.Why != webhook.ErrEndpoint.Error() {
			t.Errorf("%s: %+v", to, out)
		}
	}

	if err := guarded.Check(address); !errors.Is(err, webhook.ErrEndpoint) {
		t.Errorf("the address is checked with %v", err)
	}

	allowed := &endpoint.List{}
	if err := allowed.Set("127.0.0.0/8"); err != nil {
		t.Fatal(err)
	}

	if out := send(t, webhook.Sender{Endpoints: allowed}, address); out.Verdict != notification.Accepted || asked.Load() != 1 {
		t.Errorf("what is allowed: %+v, %d requests", out, asked.Load())
	}
}

// TestStop: the end of the operator ends a request.
func TestStop(t *testing.T) {
	t.Parallel()

	over, reached := make(chan struct{}), make(chan struct{})
	address := serve(t, func(http.ResponseWriter, *http.Request) {
		close(reached)
		<-over
	})
	ctx, stop := context.WithCancel(t.Context())
	out := make(chan notification.Outcome, 1)

	go func() { out <- (&webhook.Sender{Timeout: time.Hour}).Send(ctx, address, "id", nil) }()

	wait.Done(t, "the request", reached)
	stop()

	if got := wait.Done(t, "the end of the request", out); got.Verdict != notification.Retry {
		t.Errorf("%+v", got)
	}

	close(over)
}
