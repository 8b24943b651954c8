package keyref

import (
	"crypto/x509"
	"encoding/pem"
	"strings"
)

// What values may have to be, for people.
const (
	CertificatesForm = "a bundle of certificates (PEM)"
	LineForm         = "one line of text"
	TokenForm        = "a token: one word of printable characters"
)

// IsCertificates tells whether a text has certificates (PEM), each of them whole, and no private key. Text before one
// of them is allowed, because bundles name their certificates there.
func IsCertificates(text string) bool {
	if strings.Contains(text, "PRIVATE KEY") {
		return false
	}

	rest := []byte(text)

	for n := 0; ; n++ {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			// The library passes over a block that it cannot read.
			return n > 0 && n == strings.Count(text, "-----BEGIN ") && strings.TrimSpace(string(rest)) == ""
		}

		if _, err := x509.ParseCertificate(block.Bytes); err != nil || block.Type != "CERTIFICATE" {
			return false
		}
	}
}

// IsLine tells whether a text is one line.
func IsLine(text string) bool {
	return text != "" && !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f })
}

// IsToken tells whether a text is one word.
func IsToken(text string) bool {
	return text != "" && !strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' })
}
