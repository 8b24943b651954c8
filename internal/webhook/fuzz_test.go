package webhook_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/talos-operator/talos-operator/internal/decide/notification"
	"github.com/talos-operator/talos-operator/internal/webhook"
)

// accepted is the status line of a receiver that has accepted a notification.
var accepted = regexp.MustCompile(`HTTP/\d\.\d +2\d\d`)

// FuzzAnswer: whatever a receiver responds with, the outcome tells nothing of its address, and only a success is one.
func FuzzAnswer(f *testing.F) {
	for _, raw := range []string{
		"HTTP/1.1 204 No Content\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "HTTP/1.0 200 OK\r\n\r\n",
		"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 120\r\nContent-Length: 0\r\n\r\n",
		"HTTP/1.1 503 No\r\nRetry-After: Wed, 31 Dec 9999 23:59:59 GMT\r\n\r\n",
		"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1/x\r\n\r\n", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffff\r\n", "HTTP/1.1 101 Switching Protocols\r\n\r\n",
		"HTTP/2.0 200 OK\r\n\r\n", "", "\x16\x03\x01", "HTTP/1.1 404 T0p53cr3t\r\n\r\n",
	} {
		f.Add([]byte(raw))
	}

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		f.Fatal(err)
	}

	f.Cleanup(func() { _ = l.Close() })

	var answer atomic.Pointer[[]byte]

	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}

			// A response to a request that was not read whole may be lost.
			if req, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
				_, _ = io.Copy(io.Discard, req.Body)
				_, _ = conn.Write(*answer.Load())
			}

			_ = conn.Close()
		}
	}()

	s := webhook.Sender{}
	address := "http://" + l.Addr().String() + "/" + secret + "?token=" + secret

	f.Fuzz(func(t *testing.T, raw []byte) {
		answer.Store(&raw)

		out := s.Send(t.Context(), address, "id-1", []byte(`{"text":"x"}`))

		switch {
		case strings.Contains(out.Why, secret) || strings.Contains(out.Why, "127.0.0.1"):
			t.Errorf("the outcome shows the address: %s", out.Why)
		case out.Verdict == notification.Accepted && !accepted.Match(raw):
			t.Errorf("%q is taken for a success", raw)
		case out.Verdict != notification.Accepted && out.Why == "":
			t.Errorf("%q is a failure without a reason", raw)
		case out.After < 0:
			t.Errorf("%q asks to wait for %s", raw, out.After)
		}
	})
}

// FuzzHosts: what is shown of a list of hosts is the list, and an address that one with two hosts accepts is at one of them.
func FuzzHosts(f *testing.F) {
	f.Add("hooks.example.com,*.corp.example:8443,http://[::1]:80", "https://hooks.example.com/x")
	f.Add("a", "HTTPS://HOOKS.example.com:443/#x")
	f.Add("a.,b:", "https://a.corp.example@evil.example/")
	f.Add("[fe80::1%25eth0]", "https://hooks.example.com\\@evil.example")
	f.Add("A", " https://x.corp.example%2eevil.example ")

	f.Fuzz(func(t *testing.T, list, address string) {
		var hosts, again webhook.Hosts
		if hosts.Set(list) == nil {
			if err := again.Set(hosts.String()); err != nil || again.String() != hosts.String() {
				t.Errorf("%q is shown as %q: %v", list, hosts.String(), err)
			}
		}

		two := webhook.Hosts{}
		if err := two.Set("hooks.example.com,*.corp.example"); err != nil {
			t.Fatal(err)
		}

		u, err := two.Check(address)
		if err != nil {
			return
		}

		// What a request is sent to is what was checked.
		req, err := http.NewRequest(http.MethodPost, u.String(), nil)
		if err != nil {
			return
		}

		host := strings.ToLower(req.URL.Hostname())
		if req.URL.Scheme != "https" || host != "hooks.example.com" && !strings.HasSuffix(host, ".corp.example") ||
			req.URL.Port() != "" && req.URL.Port() != "443" {
			t.Errorf("%q leads to %s", address, req.URL)
		}
	})
}
