package machineconfig

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/machineconfig/keyref"
)

func der(t *testing.T) func(raw []byte, err error) []byte {
	return func(raw []byte, err error) []byte {
		t.Helper()

		if err != nil {
			t.Fatal(err)
		}

		return raw
	}
}

// keys are private keys as Secrets of other programs hold them, each with its form in a config.
func keys(t *testing.T) map[string][2][]byte {
	t.Helper()

	curve, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}

	prime, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}

	_, edwards, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}

	pack := func(kind string, raw []byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: raw}) }
	rewritten := func(key any) []byte { return pack("PRIVATE KEY", der(t)(x509.MarshalPKCS8PrivateKey(key))) }

	return map[string][2][]byte{
		"SEC 1": {
			slices.Concat(pack("EC PARAMETERS", []byte("curve")), pack("EC PRIVATE KEY", der(t)(x509.MarshalECPrivateKey(curve)))),
			rewritten(curve),
		},
		"PKCS #1": {pack("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(prime)), rewritten(prime)},
		"PKCS #8": {rewritten(edwards), rewritten(edwards)},
	}
}

// lines breaks a text as an encoder does.
func lines(text string, width int) string {
	var out []string
	for part := range slices.Chunk([]byte(text), width) {
		out = append(out, string(part))
	}

	return strings.Join(out, "\n")
}

// encodings are the ways in which a text may quote a PEM block.
func encodings(text []byte) map[string]string {
	block, rest := pem.Decode(text)
	if len(rest) > 0 {
		block, _ = pem.Decode(rest)
	}

	trimmed := strings.TrimSpace(string(text))
	body := base64.StdEncoding.EncodeToString(block.Bytes)
	whole := base64.StdEncoding.EncodeToString(text)

	return map[string]string{
		"as it is":               string(text),
		"in one line":            strings.Join(strings.Fields(string(text)), " "),
		"escaped":                fmt.Sprintf("%q", text),
		"escaped within a text":  strings.Trim(fmt.Sprintf("%q", "is "+string(text)), `"`),
		"indented":               strings.ReplaceAll(trimmed, "\n", "\n        "),
		"carriage returns":       strings.ReplaceAll(string(text), "\n", "\r\n"),
		"the body":               body,
		"the body, 76 wide":      lines(body, 76),
		"base64":                 whole,
		"base64, trimmed":        base64.StdEncoding.EncodeToString([]byte(trimmed)),
		"base64, 64 wide":        lines(whole, 64),
		"base64, 76 wide":        lines(whole, 76),
		"base64, 76, in a line":  strings.ReplaceAll(lines(whole, 76), "\n", " "),
		"base64 without padding": base64.RawStdEncoding.EncodeToString(text),
		"base64 for addresses":   base64.URLEncoding.EncodeToString(text),
		"the body for addresses": base64.RawURLEncoding.EncodeToString(block.Bytes),
	}
}

// TestScrubsKeys: whatever the form of a private key in its Secret, and in a text about the config, the text shows none of
// it.
func TestScrubsKeys(t *testing.T) {
	t.Parallel()

	for name, forms := range keys(t) {
		in := Input{
			Registries: &v1alpha1.Registries{Config: []v1alpha1.RegistryConfig{{
				Host: "a.example.org", TLS: &v1alpha1.RegistryTLS{ClientIdentity: &v1alpha1.RegistryClientIdentity{
					CrtFrom: v1alpha1.SecretKeyReference{Name: "s", Key: "crt"}, KeyFrom: v1alpha1.SecretKeyReference{Name: "s", Key: "key"},
				}},
			}}},
			Values: keyref.Values{},
		}

		for _, ref := range in.refs() {
			in.Values[ref.Field] = ""
			if strings.HasSuffix(ref.Field, "keyFrom") {
				in.Values[ref.Field] = strings.TrimSpace(string(forms[0]))
			}
		}

		clean := newScrubber(in)

		for i, form := range forms {
			for how, quoted := range encodings(form) {
				got := clean.clean("the config has " + quoted + " in it")

				if !strings.Contains(got, Redacted) && !strings.Contains(got, "…") {
					t.Errorf("%s, form %d, %s: nothing is redacted: %s", name, i, how, got)
				}

				if part := partOf(got, quoted); part != "" {
					t.Errorf("%s, form %d, %s: %q is left of the key: %s", name, i, how, part, got)
				}
			}
		}
	}
}

// partOf returns what a text shows of another one: a dozen characters in a row, apart from what names a block.
func partOf(text, quoted string) string {
	const few = 12

	for word := range strings.FieldsSeq(strings.ReplaceAll(quoted, `\n`, " ")) {
		for at := 0; at+few <= len(word) && !strings.Contains(word, "-----"); at++ {
			if strings.Contains(text, word[at:at+few]) {
				return word[at : at+few]
			}
		}
	}

	return ""
}

// TestScrubsShortValues: a short secret is removed where it is a word, and stays a part of other words.
func TestScrubsShortValues(t *testing.T) {
	t.Parallel()

	clean := newScrubber(Input{Patches: Patches{GroupFrom: []Sourced{{
		Secret: true, Text: "machine: {sysctls: {a: disk, b: 'true', c: x, d: 's3', e: abcdefgh, f: abcdef, g: p/q}}",
	}}}})

	for text, want := range map[string]string{
		"cannot use disk here":         "cannot use <redacted> here",
		"disk: it is 'disk', disk.":    "<redacted>: it is '<redacted>', <redacted>.",
		"set install.disk to disk":     "set install.disk to <redacted>",
		"disk.path of diskSelector":    "disk.path of diskSelector",
		"ephemeral-disk and disk_a":    "ephemeral-disk and disk_a",
		"it is true for x":             "it is true for x",
		"https://a:s3@b/disk":          "https://a:<redacted>@b/<redacted>",
		"not p/q":                      "not <redacted>",
		"abcdefgh or abcdefz":          "<redacted> or <redacted>z",
		"encoded ZGlzaw== and ZGlzaw,": "encoded <redacted> and <redacted>,",
	} {
		if got := clean.clean(text); got != want {
			t.Errorf("%q is %q, not %q", text, got, want)
		}
	}
}
