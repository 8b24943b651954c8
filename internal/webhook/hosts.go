package webhook

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
)

// longestAddress is far beyond the addresses of known services.
const longestAddress = 4096

// Why an address cannot be used. The texts hold nothing of the address, which is a secret.
var (
	ErrAddress  = errors.New("it is not an address like https://HOST/PATH")
	ErrPlain    = errors.New("http:// is accepted only for loopback addresses and hosts in --allowed-webhooks")
	ErrNoHost   = errors.New("its host is not in the list that the operator was started with (--allowed-webhooks)")
	ErrEndpoint = errors.New("its address is not one that the operator may connect to (--allowed-endpoints)")
	schemePorts = map[string]string{"http": "80", "https": "443"}
)

// Host is where webhooks may be.
type Host struct {
	// Scheme is https, or http for a host that may be reached without TLS.
	Scheme string
	// Name in lower case, or *.DOMAIN for each host in a domain.
	Name string
	Port string
}

// Hosts are those where webhooks may be. Without any, each host is, with TLS or on loopback addresses.
type Hosts []Host

// Set adds hosts, separated by commas: HOST, *.DOMAIN, both with :PORT where it is not the default one, and with
// http:// where TLS is not required. It is part of pflag.Value.
func (h *Hosts) Set(text string) error {
	for one := range strings.SplitSeq(text, ",") {
		where := one
		if !strings.Contains(where, "://") {
			where = "https://" + where
		}

		u, err := url.Parse(where)
		if err != nil || !isHost(u) {
			return fmt.Errorf("%q is not HOST[:PORT], *.DOMAIN[:PORT], or one of them with http://", one)
		}

		*h = append(*h, hostOf(u))
	}

	return nil
}

// isHost reports whether an address of the list is a host and nothing else. An address with a zone is not supported: as
// text it would not be read again as the same host.
func isHost(u *url.URL) bool {
	name := strings.TrimPrefix(u.Hostname(), "*.")

	return schemePorts[u.Scheme] != "" && name != "" && !strings.ContainsAny(name, "*%") && u.User == nil &&
		u.Path == "" && u.RawQuery == "" && u.Fragment == ""
}

func hostOf(u *url.URL) Host {
	h := Host{Scheme: u.Scheme, Name: strings.ToLower(u.Hostname()), Port: u.Port()}
	if h.Port == "" {
		h.Port = schemePorts[u.Scheme]
	}

	return h
}

// String is part of pflag.Value.
func (h *Hosts) String() string {
	texts := make([]string, 0, len(*h))
	for _, one := range *h {
		texts = append(texts, one.Scheme+"://"+net.JoinHostPort(one.Name, one.Port))
	}

	return strings.Join(texts, ",")
}

// Type is part of pflag.Value.
func (*Hosts) Type() string { return "hosts" }

// Check returns an address, as a Secret holds it, if it may be used. The errors hold nothing of it.
func (h Hosts) Check(address string) (*url.URL, error) {
	address = strings.TrimSpace(address)

	u, err := url.Parse(address)
	if err != nil || len(address) > longestAddress || schemePorts[u.Scheme] == "" || u.Hostname() == "" {
		return nil, ErrAddress
	}

	at := hostOf(u)

	switch {
	case len(h) > 0 && !slices.ContainsFunc(h, func(one Host) bool { return one.is(at) }):
		return nil, ErrNoHost
	case len(h) == 0 && u.Scheme == "http" && !isLoopback(at.Name):
		return nil, ErrPlain
	}

	u.Fragment = ""

	return u, nil
}

func (h Host) is(at Host) bool {
	domain, any := strings.CutPrefix(h.Name, "*")

	return h.Scheme == at.Scheme && h.Port == at.Port &&
		(h.Name == at.Name || any && strings.HasSuffix(at.Name, domain) && at.Name != domain)
}

func isLoopback(name string) bool {
	ip := net.ParseIP(name)

	return name == "localhost" || ip != nil && ip.IsLoopback()
}
