package endpoint

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"sync"
	"syscall"
)

// Restrict has a transport connect with a dialer, and only to what the list allows. Each address is checked when the
// connection is made, after its name was resolved. So a name that resolves to something else the next time gets no
// further, and a redirect does not either.
//
// A proxy of the transport, which the administrator of the operator has chosen, may have any address. It resolves the
// names of its requests itself, so that they count by their names: networks of the list allow none of them.
func (l *List) Restrict(t *http.Transport, dialer *net.Dialer) {
	t.DialContext = dialer.DialContext
	if l == nil {
		return
	}

	proxies := &sync.Map{}

	if choose := t.Proxy; choose != nil {
		t.Proxy = func(r *http.Request) (*url.URL, error) {
			proxy, err := choose(r)
			if err != nil || proxy == nil {
				return proxy, err
			}

			if err := l.checkProxied(r.URL.Hostname()); err != nil {
				return nil, err
			}

			proxies.Store(proxyAddress(proxy), true)

			return proxy, nil
		}
	}

	t.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		if _, ok := proxies.Load(address); ok {
			return dialer.DialContext(ctx, network, address)
		}

		return l.dial(ctx, *dialer, network, address)
	}
}

func (l *List) checkProxied(host string) error {
	if address, err := netip.ParseAddr(host); err == nil {
		return l.checkAddress(host, address)
	}

	return l.checkName(host)
}

// proxyAddress is the address of a proxy as a transport dials it.
func proxyAddress(proxy *url.URL) string {
	port := proxy.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443", "socks5": "1080", "socks5h": "1080"}[proxy.Scheme]
	}

	return net.JoinHostPort(proxy.Hostname(), port)
}

// dial connects; the dialer is a copy.
func (l *List) dial(ctx context.Context, dialer net.Dialer, network, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("reading the address of an endpoint: %w", err)
	}

	// The system calls it with each address that it is about to connect to.
	dialer.ControlContext = func(_ context.Context, _, resolved string, _ syscall.RawConn) error {
		target, err := netip.ParseAddrPort(resolved)
		if err != nil {
			return fmt.Errorf("reading an address of %.100q: %w", host, err)
		}

		return l.checkAddress(host, target.Addr())
	}

	return dialer.DialContext(ctx, network, address)
}
