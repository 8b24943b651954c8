package machineconfig

import (
	"bytes"
	"cmp"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	siderox509 "github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"go.yaml.in/yaml/v4"
)

// scrubber removes the secrets of one render from texts: the last line of defence for errors and warnings that come
// from libraries. Most renders have neither, so the forms of the secrets are made when they are needed.
type scrubber struct{ forms func() []string }

func newScrubber(in Input) scrubber {
	return scrubber{sync.OnceValue(func() []string { return secretForms(in) })}
}

// secretForms lists the forms in which texts may quote the secrets of a render, the longest first: what a shorter one
// leaves of a longer one would be shown.
func secretForms(in Input) []string {
	var out []string

	add := func(values ...string) {
		for _, v := range values {
			out = append(out, formsOf(v)...)
		}
	}

	if b := in.Secrets; b != nil {
		add(secretsOf(b)...)
	}

	for _, v := range in.hiddenValues() {
		add(v)

		if key, isKey := reencoded(v); isKey {
			add(key)
		}
	}

	for _, l := range in.Patches.levels() {
		for _, from := range l.from {
			if from.Secret {
				add(valuesIn(from.Text)...)
			}
		}
	}

	slices.SortFunc(out, func(a, b string) int {
		return cmp.Or(cmp.Compare(len(b), len(a)), strings.Compare(a, b))
	})

	return slices.Compact(out)
}

// secretsOf lists what is secret in the PKI of a cluster.
func secretsOf(b *secrets.Bundle) []string {
	var out []string

	if b.Cluster != nil {
		out = append(out, b.Cluster.Secret)
	}

	if b.Secrets != nil {
		out = append(out, b.Secrets.BootstrapToken, b.Secrets.AESCBCEncryptionSecret, b.Secrets.SecretboxEncryptionSecret)
	}

	if b.TrustdInfo != nil {
		out = append(out, b.TrustdInfo.Token)
	}

	if c := b.Certs; c != nil {
		for _, ca := range []*siderox509.PEMEncodedCertificateAndKey{c.OS, c.Etcd, c.K8s, c.K8sAggregator} {
			if ca != nil {
				out = append(out, string(ca.Key))
			}
		}

		if c.K8sServiceAccount != nil {
			out = append(out, string(c.K8sServiceAccount.Key))
		}
	}

	return out
}

// reencoded returns a private key (PEM) in the form in which a config has it, whatever its own: PKCS #8.
func reencoded(text string) (string, bool) {
	for block, rest := pem.Decode([]byte(text)); block != nil; block, rest = pem.Decode(rest) {
		key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
		if err != nil {
			key, err = asAny(x509.ParseECPrivateKey(block.Bytes))
		}

		if err != nil {
			key, err = asAny(x509.ParsePKCS1PrivateKey(block.Bytes))
		}

		if err != nil {
			continue // parameters of a curve, or a certificate
		}

		if der, err := x509.MarshalPKCS8PrivateKey(key); err == nil {
			return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})), true
		}
	}

	return "", false
}

func asAny[T any](key T, err error) (any, error) { return key, err }

// formsOf lists the forms in which texts may quote a secret: as it is, escaped, with each of its blanks as one, as
// problemsOf writes them, and in base64. Those of keys and certificates (PEM) are also quoted line by line, and without
// their line breaks.
func formsOf(secret string) []string {
	trimmed := strings.TrimSpace(secret)
	quoted := strconv.Quote(trimmed)
	out := []string{secret, trimmed, strings.Join(strings.Fields(secret), " "), quoted[1 : len(quoted)-1]}

	for _, v := range []string{secret, trimmed, trimmed + "\n"} {
		out = append(out, inBase64([]byte(v))...)
	}

	for block, rest := pem.Decode([]byte(secret)); block != nil; block, rest = pem.Decode(rest) {
		out = append(out, inBase64(block.Bytes)...)

		body := pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: block.Bytes})
		for line := range bytes.Lines(body) {
			if line = bytes.TrimSpace(line); len(line) >= shortest && !bytes.HasPrefix(line, []byte("-----")) {
				out = append(out, string(line))
			}
		}
	}

	return slices.DeleteFunc(out, saysNothing)
}

// widths are where encoders of base64 break lines: those of PEM, and of MIME.
var widths = []int{64, 76}

// inBase64 returns both alphabets with and without padding, and the lines into which encoders break the usual one.
func inBase64(raw []byte) []string {
	whole := base64.StdEncoding.EncodeToString(raw)
	out := []string{
		whole, base64.RawStdEncoding.EncodeToString(raw),
		base64.URLEncoding.EncodeToString(raw), base64.RawURLEncoding.EncodeToString(raw),
	}

	for _, width := range widths {
		if len(whole) > width {
			for line := range slices.Chunk([]byte(whole), width) {
				if len(line) >= shortest {
					out = append(out, string(line))
				}
			}
		}
	}

	return out
}

// saysNothing tells whether a value is no secret, whatever it is the value of: a single character, or one of the words
// that switch something. To remove them would only make texts unreadable.
func saysNothing(value string) bool {
	return utf8.RuneCountInString(value) < 2 ||
		slices.Contains([]string{"true", "false", "null", "yes", "no", "on", "off"}, strings.ToLower(value))
}

// valuesIn lists the values of a patch, whatever its form.
func valuesIn(text string) []string {
	var (
		node yaml.Node
		out  []string
		top  *yaml.Node
		walk func(n *yaml.Node)
	)

	walk = func(n *yaml.Node) {
		switch n.Kind {
		case yaml.ScalarNode:
			out = append(out, n.Value)
		case yaml.MappingNode:
			for i := 1; i < len(n.Content); i += 2 {
				// What names the document of a patch is in its errors anyway, and in many others.
				if key := n.Content[i-1].Value; n == top && (key == "apiVersion" || key == "kind" || key == "name") {
					continue
				}

				walk(n.Content[i])
			}
		default:
			for _, one := range n.Content {
				walk(one)
			}
		}
	}

	dec := yaml.NewDecoder(strings.NewReader(text))
	for dec.Decode(&node) == nil {
		if top = &node; node.Kind == yaml.DocumentNode && len(node.Content) > 0 {
			top = node.Content[0]
		}

		walk(&node)

		node = yaml.Node{}
	}

	return out
}

// shortest is the length from which a secret is removed wherever it stands. Shorter ones are parts of too many words,
// and are removed where they are a whole one.
const shortest = 6

func (s scrubber) clean(text string) string {
	for _, secret := range s.forms() {
		if len(secret) < shortest {
			text = withoutWord(text, secret)
		} else {
			text = strings.ReplaceAll(text, secret, Redacted)
		}
	}

	return describe(errors.New(text))
}

// withoutWord replaces a word where it is not a part of a longer one, or of the path of a field.
func withoutWord(text, word string) string {
	var out strings.Builder

	for {
		head, tail, found := strings.Cut(text, word)
		if !found {
			break
		}

		before, _ := utf8.DecodeLastRuneInString(cmp.Or(head, out.String()))
		after, width := utf8.DecodeRuneInString(tail)
		next, _ := utf8.DecodeRuneInString(tail[width:])

		out.WriteString(head)

		if before == '.' || inWord(before) || inWord(after) || after == '.' && inWord(next) {
			out.WriteString(word)
		} else {
			out.WriteString(Redacted)
		}

		text = tail
	}

	return out.String() + text
}

func inWord(r rune) bool {
	return r == '_' || r == '-' || r != utf8.RuneError && (unicode.IsLetter(r) || unicode.IsDigit(r))
}
