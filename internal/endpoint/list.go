// Package endpoint limits the addresses that an object can make the operator call over HTTP: a bucket of backups and a
// webhook are named by users, who may not reach by themselves what the operator reaches.
package endpoint

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Flag is the option of the operator that names what may be called, for messages.
const Flag = "--allowed-endpoints"

// ErrRefused is the cause of every connection that is not made because of a List.
var ErrRefused = errors.New("the operator may not connect to this endpoint")

// everything is the rule for all hosts and addresses that are not guarded.
const everything = "*"

// guarded are networks where something trusts each program of the computer, or of the network segment. A rule allows an
// address in one of them only if its network lies in the guarded one: neither * nor 0.0.0.0/0 nor the name of a host
// does, whatever it resolves to.
var guarded = []struct {
	what    string
	network netip.Prefix
}{
	{"a loopback address", netip.MustParsePrefix("127.0.0.0/8")},
	{"a loopback address", netip.MustParsePrefix("::1/128")},
	{"an address of the computer itself", netip.MustParsePrefix("0.0.0.0/8")},
	{"an address of the computer itself", netip.MustParsePrefix("::/128")},
	{"a link-local address", netip.MustParsePrefix("169.254.0.0/16")},
	{"a link-local address", netip.MustParsePrefix("fe80::/10")},
	{"a multicast address", netip.MustParsePrefix("224.0.0.0/4")},
	{"a multicast address", netip.MustParsePrefix("ff00::/8")},
	{"a broadcast address", netip.MustParsePrefix("255.255.255.255/32")},
	// Metadata services of clouds that are not link-local: AWS, Google, Alibaba, Azure.
	{"the address of a metadata service", netip.MustParsePrefix("fd00:ec2::254/128")},
	{"the address of a metadata service", netip.MustParsePrefix("fd20:ce::254/128")},
	{"the address of a metadata service", netip.MustParsePrefix("100.100.100.200/32")},
	{"the address of a metadata service", netip.MustParsePrefix("168.63.129.16/32")},
}

// translated is the network in which a NAT64 gateway reaches the IPv4 address in the last four bytes.
var translated = netip.MustParsePrefix("64:ff9b::/96")

// List says which endpoints may be called. Without rules, each address may be but guarded ones. A nil List refuses
// nothing: it is for commands, which call with the rights of the user who runs them.
type List struct {
	// all is the rule *.
	all bool
	// names in lower case, or *.DOMAIN.
	names    []string
	networks []netip.Prefix
}

// Set adds rules, separated by commas: an address, a network such as 10.0.0.0/8, HOST, *.DOMAIN for each host in a
// domain, or * for everything that is not guarded. It is part of pflag.Value.
func (l *List) Set(text string) error {
	for one := range strings.SplitSeq(text, ",") {
		if err := l.add(one); err != nil {
			return err
		}
	}

	return nil
}

func (l *List) add(rule string) error {
	if network, ok := parseNetwork(rule); ok {
		l.networks = append(l.networks, network)

		return nil
	}

	name := strings.ToLower(rule)

	switch domain := strings.TrimPrefix(name, "*."); {
	case rule == everything:
		l.all = true
	case len(validation.IsDNS1123Subdomain(domain)) > 0 || looksNumeric(domain):
		return fmt.Errorf("%q is not an IP address, a network such as 10.0.0.0/8, HOST, *.DOMAIN or *", rule)
	default:
		l.names = append(l.names, name)
	}

	return nil
}

// parseNetwork accepts addresses and networks whose host bits are zero: 10.1.2.3/8 is rather a mistake than 10.0.0.0/8.
func parseNetwork(text string) (netip.Prefix, bool) {
	if address, err := netip.ParseAddr(text); err == nil && address.Zone() == "" && !address.Is4In6() {
		return netip.PrefixFrom(address, address.BitLen()), true
	}

	network, err := netip.ParsePrefix(text)

	return network, err == nil && network == network.Masked() && !network.Addr().Is4In6()
}

// looksNumeric tells a mistyped address from the name of a host, whose last label is not a number.
func looksNumeric(name string) bool {
	last := name[strings.LastIndexByte(name, '.')+1:]

	return strings.Trim(last, "0123456789") == ""
}

// String is part of pflag.Value.
func (l *List) String() string {
	var texts []string
	if l.all {
		texts = append(texts, everything)
	}

	texts = append(texts, l.names...)
	for _, network := range l.networks {
		texts = append(texts, network.String())
	}

	return strings.Join(texts, ",")
}

// Type is part of pflag.Value.
func (*List) Type() string { return "endpoints" }

// Check returns an error with the cause ErrRefused if it is certain, without a name being resolved, that a host may not
// be called. What a name resolves to is checked when a connection is made.
func (l *List) Check(host string) error {
	if l == nil {
		return nil
	}

	if address, err := netip.ParseAddr(host); err == nil {
		return l.checkAddress(host, address)
	}

	if len(l.networks) > 0 {
		return nil
	}

	return l.checkName(host)
}

// checkName is for names that the operator does not resolve itself.
func (l *List) checkName(host string) error {
	if l.isOpen() || l.hasName(host) {
		return nil
	}

	return fmt.Errorf("%w: %s does not name %.100q", ErrRefused, Flag, host)
}

// checkAddress checks an address that a host resolved to, or that is the host.
func (l *List) checkAddress(host string, address netip.Addr) error {
	address = plain(address)

	for _, g := range guarded {
		if !g.network.Contains(address) {
			continue
		}

		if slices.ContainsFunc(l.networks, func(n netip.Prefix) bool {
			return n.Contains(address) && n.Bits() >= g.network.Bits()
		}) {
			return nil
		}

		return fmt.Errorf("%w: %s of %.100q is %s, which %s does not name", ErrRefused, address, host, g.what, Flag)
	}

	if l.isOpen() || l.hasName(host) ||
		slices.ContainsFunc(l.networks, func(n netip.Prefix) bool { return n.Contains(address) }) {
		return nil
	}

	return fmt.Errorf("%w: %s names neither %.100q nor its address %s", ErrRefused, Flag, host, address)
}

// isOpen reports whether everything that is not guarded may be called.
func (l *List) isOpen() bool { return l.all || len(l.names) == 0 && len(l.networks) == 0 }

func (l *List) hasName(host string) bool {
	host = strings.TrimSuffix(strings.ToLower(host), ".")

	return slices.ContainsFunc(l.names, func(name string) bool {
		domain, any := strings.CutPrefix(name, "*")

		return host == name || any && strings.HasSuffix(host, domain) && host != domain
	})
}

// plain returns the address that a packet arrives at: an IPv4 address may be written in several ways.
func plain(address netip.Addr) netip.Addr {
	address = address.WithZone("").Unmap()

	if translated.Contains(address) {
		bytes := address.As16()

		return netip.AddrFrom4([4]byte(bytes[12:]))
	}

	return address
}
