package validation_test

import (
	"strings"
	"testing"
	"unicode"

	"github.com/talos-operator/talos-operator/internal/validation"
)

// FuzzNames: an endpoint, a name or an address is refused, or it is nothing but that: it goes into certificates,
// configurations and messages.
func FuzzNames(f *testing.F) {
	for _, seed := range []string{
		"https://10.0.0.10:6443", "https://[fd00::1]:6443/", "https://[fe80::1%25eth0]:6443", "https://[fe80::1%25%0a]:6443",
		"https://a.example:6443", "https://u:p@a:1", "*.example.com", "fe80::1%eth0", "fe80::1%a b", "10.0.0.1", "a..b", "A",
		"::ffff:10.0.0.1", "cluster.local", "a\n", "../a", strings.Repeat("a", 300),
	} {
		f.Add(seed)
	}

	accept := map[string]func(string) bool{
		"endpoint":   func(s string) bool { return len(validation.Endpoint("f", s)) == 0 },
		"certSANs":   func(s string) bool { return len(validation.CertSANs("f", []string{s})) == 0 },
		"dnsDomain":  func(s string) bool { return s != "" && len(validation.DNSDomain("f", s)) == 0 },
		"hostname":   func(s string) bool { return len(validation.Hostname("f", s)) == 0 },
		"nodeLabels": func(s string) bool { return len(validation.NodeLabels("f", map[string]string{s: s})) == 0 },
		"addresses": func(s string) bool {
			return len(validation.Addresses([]validation.Claim{{Owner: "a", Field: "f", Address: s}})) == 0
		},
	}

	f.Fuzz(func(t *testing.T, text string) {
		for what, accepted := range accept {
			if !accepted(text) {
				continue
			}

			odd := func(r rune) bool {
				return unicode.IsSpace(r) || !unicode.IsGraphic(r) || strings.ContainsRune(`%"'{}\`, r)
			}
			if strings.ContainsFunc(text, odd) {
				t.Errorf("%q is accepted as %s", text, what)
			}
		}
	})
}
