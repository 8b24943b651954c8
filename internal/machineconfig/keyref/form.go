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

// IsCertificates tells whether a text has certificates (PEM), and nothing else but comments.
func IsCertificates(text string) bool {
	rest := []byte(text)

	for n := 0; ; n++ {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return n > 0 && strings.TrimSpace(string(rest)) == ""
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
