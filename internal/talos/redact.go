package talos

import (
	"regexp"
	"strings"
)

// hidden replaces what was removed.
const hidden = "REDACTED"

// A secret cannot be recognized by its form alone in what a node prints of a configuration, so these patterns match
// only what has no other meaning; a diff is handled by redactDiff, which removes everything that is not known to be
// harmless.
var (
	pemBlock = regexp.MustCompile(`(?s)-----BEGIN [^-]+-----.*?(?:-----END [^-]+-----|$)`)
	base64ed = regexp.MustCompile(`[A-Za-z0-9+/_-]{40,}={0,2}|[A-Za-z0-9+/_-]{20,}={1,2}`)
	token    = regexp.MustCompile(`\b[a-z0-9]{6}\.[a-z0-9]{16}\b`)
)

// excerpts are the words after which a rejection quotes the configuration.
var excerpts = []string{"diff:", "unknown keys found"}

// redactText removes what a node may quote of a configuration in a response.
func redactText(text string) string {
	for _, word := range excerpts {
		if before, _, found := strings.Cut(text, word); found {
			text = before + word + " (left out)"
		}
	}

	for _, secret := range []*regexp.Regexp{pemBlock, token, base64ed} {
		text = secret.ReplaceAllString(text, hidden)
	}

	return text
}

var (
	// diffLine is a line of a diff of two YAML documents: sign, indent and list dashes, key, value.
	diffLine = regexp.MustCompile(`^([-+ ]?)((?:\s|- )*)(?:("?[A-Za-z0-9_./*-]+"?):(?: (.*))?$)?`)
	// plainValue matches a harmless value: a number, a boolean, or nothing at all.
	plainValue = regexp.MustCompile(`^(?:"?-?[0-9.]+"?|true|false|null|\{\}|\[\]|)$`)
	// blockScalar begins a multi-line text.
	blockScalar = regexp.MustCompile(`^[|>][-+0-9]*$`)
	// secretKey matches the name of a field whose value is always secret, even if it looks like a number.
	secretKey = regexp.MustCompile(`(?i)key|token|secret|pass|auth|crt|cert|ca$|id$|credential`)
)

// openKeys are fields whose values may be shown: they never contain a secret and describe a change best.
var openKeys = map[string]bool{
	"type": true, "image": true, "disk": true, "hostname": true, "endpoint": true, "clusterName": true,
	"dnsDomain": true, "interface": true, "name": true, "address": true, "mtu": true, "apiVersion": true, "kind": true,
}

// redactDiff keeps the structure of a diff of two machine configurations and removes every value that is not known to
// be harmless: the node prints the context of a change, which may contain private keys.
func redactDiff(diff string) string {
	lines := strings.Split(diff, "\n")
	block := -1 // the indent of the field with the current multi-line text

	for i, line := range lines {
		if strings.HasPrefix(line, "@@") || line == "--- a" || line == "+++ b" || strings.TrimSpace(line) == "" {
			block = -1

			continue
		}

		m := diffLine.FindStringSubmatch(line)
		sign, indent, key, value := m[1], m[2], m[3], m[4]

		if block >= 0 && len(indent) > block {
			lines[i] = sign + indent + hidden

			continue
		}

		block = -1

		switch {
		case key == "":
			lines[i] = sign + indent + hidden
		case blockScalar.MatchString(value):
			block = len(indent)
		case plainValue.MatchString(value) && (value == "" || !secretKey.MatchString(key)), openKeys[key]:
		default:
			lines[i] = sign + indent + key + ": " + hidden
		}
	}

	return strings.Join(lines, "\n")
}
