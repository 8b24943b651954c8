package endpoint_test

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/talos-operator/talos-operator/internal/endpoint"
)

// server counts its requests.
func server(t *testing.T, answer http.HandlerFunc) (u *url.URL, asked *atomic.Int64) {
	t.Helper()

	asked = &atomic.Int64{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)

		if answer != nil {
			answer(w, r)
		}
	}))
	t.Cleanup(s.Close)

	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}

	return u, asked
}

// get asks for an address through a transport with a list.
func get(t *testing.T, l *endpoint.List, proxy *url.URL, address string) error {
	t.Helper()

	transport := &http.Transport{DisableKeepAlives: true}
	if proxy != nil {
		transport.Proxy = http.ProxyURL(proxy)
	}

	l.Restrict(transport, &net.Dialer{})

	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}

	res, err := (&http.Client{Transport: transport}).Do(req)
	if err == nil {
		err = res.Body.Close()
	}

	return err
}

// TestNamesAreResolvedFirst: an address counts, and not the name that resolves to it, however the name was allowed.
func TestNamesAreResolvedFirst(t *testing.T) {
	t.Parallel()

	u, asked := server(t, nil)
	named := "http://localhost:" + u.Port()

	for _, list := range []string{"", "*", "localhost", "0.0.0.0/0,::/0", "10.0.0.0/8"} {
		for _, address := range []string{u.String(), named, "http://[::ffff:127.0.0.1]:" + u.Port()} {
			if err := get(t, parse(t, list), nil, address); !errors.Is(err, endpoint.ErrRefused) {
				t.Errorf("%q lets %s be called: %v", list, address, err)
			}
		}
	}

	if asked.Load() > 0 {
		t.Errorf("%d requests arrived", asked.Load())
	}

	for _, l := range []*endpoint.List{nil, parse(t, "127.0.0.0/8,::1"), parse(t, "*,127.0.0.1")} {
		if err := get(t, l, nil, u.String()); err != nil {
			t.Errorf("%s refuses what it names: %v", l, err)
		}
	}
}

// TestRedirects: a redirect leads to nothing that could not be called directly.
func TestRedirects(t *testing.T) {
	t.Parallel()

	inside, asked := server(t, nil)
	outside, _ := server(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://127.0.0.2:"+inside.Port()+"/latest/meta-data", http.StatusFound)
	})

	err := get(t, parse(t, outside.Hostname()), nil, outside.String())
	if !errors.Is(err, endpoint.ErrRefused) || !strings.Contains(err.Error(), "127.0.0.2") || asked.Load() > 0 {
		t.Errorf("%v; %d requests arrived", err, asked.Load())
	}
}

// TestProxy: a proxy may be anywhere, and is asked for nothing that the list refuses.
func TestProxy(t *testing.T) {
	t.Parallel()

	proxy, asked := server(t, nil)

	for address, list := range map[string]string{
		"http://169.254.169.254/latest/meta-data": "", "http://127.0.0.1:9/": "*", "http://other.example/": "s3.example.com",
		"http://s3.example.com/": "10.0.0.0/8",
	} {
		if err := get(t, parse(t, list), proxy, address); !errors.Is(err, endpoint.ErrRefused) {
			t.Errorf("%q and %s: %v", list, address, err)
		}
	}

	if asked.Load() > 0 {
		t.Errorf("the proxy got %d requests", asked.Load())
	}

	for _, list := range []string{"", "s3.example.com", "*"} {
		if err := get(t, parse(t, list), proxy, "http://s3.example.com/"); err != nil {
			t.Errorf("%q: %v", list, err)
		}
	}

	if asked.Load() != 3 {
		t.Errorf("the proxy got %d requests", asked.Load())
	}
}
