package talos

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	machineryconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configdiff"
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	configmachine "github.com/siderolabs/talos/pkg/machinery/config/machine"
)

// generated makes a config, and the texts of it that may appear nowhere.
func generated(t testing.TB, typ configmachine.Type, contract *machineryconfig.VersionContract,
) (machineryconfig.Provider, []string) {
	t.Helper()

	b, err := secrets.NewBundle(secrets.NewClock(), contract)
	if err != nil {
		t.Fatal(err)
	}

	in, err := generate.NewInput("c", "https://127.0.0.1:6443", "1.36.2", generate.WithSecretsBundle(b),
		generate.WithVersionContract(contract), generate.WithInstallDisk("/dev/sda"))
	if err != nil {
		t.Fatal(err)
	}

	cfg, err := in.Config(typ)
	if err != nil {
		t.Fatal(err)
	}

	texts := []string{
		b.Secrets.BootstrapToken, b.Secrets.SecretboxEncryptionSecret, b.TrustdInfo.Token, b.Cluster.Secret, b.Cluster.ID,
	}

	for _, key := range [][]byte{b.Certs.OS.Key, b.Certs.K8s.Key, b.Certs.Etcd.Key, b.Certs.K8sServiceAccount.Key} {
		texts = append(texts, base64.StdEncoding.EncodeToString(key), string(key))
	}

	return cfg, texts
}

// TestRedactDiff: the whole of a config, as the diff of a first apply shows it, and every line of another next to it.
func TestRedactDiff(t *testing.T) {
	before, secretsBefore := generated(t, configmachine.TypeControlPlane, machineryconfig.TalosVersion1_10)
	after, secretsAfter := generated(t, configmachine.TypeControlPlane, machineryconfig.TalosVersion1_13)

	for name, from := range map[string]machineryconfig.Provider{"first apply": nil, "another cluster": before} {
		diff, err := configdiff.DiffConfigs(from, after)
		if err != nil {
			t.Fatal(err)
		}

		got := redactDiff(diff)

		for _, text := range append(secretsBefore, secretsAfter...) {
			for line := range strings.Lines(text) {
				if line = strings.TrimSpace(line); line != "" && strings.Contains(got, line) {
					t.Errorf("%s: a secret of %d characters is quoted", name, len(line))
				}
			}
		}

		if a, b := strings.Count(diff, "\n"), strings.Count(got, "\n"); a != b || !strings.Contains(got, "token:") {
			t.Errorf("%s: the shape is lost: %d lines of %d", name, b, a)
		}
	}

	redactsText(t, secretsAfter)
}

func redactsText(t *testing.T, texts []string) {
	t.Helper()

	for _, text := range texts {
		if text == texts[4] {
			continue // the ID of a cluster is no secret, and looks like many things
		}

		got := redactText(fmt.Sprintf("field %q is wrong: %s, really", text, text))
		if strings.Contains(got, text) || !strings.HasPrefix(got, "field ") {
			t.Errorf("%q became %q", text, got)
		}
	}

	for text, want := range map[string]string{
		"unknown service etcd":                           "unknown service etcd",
		"can't be applied\ndiff:\n-token: a":             "can't be applied\ndiff: (left out)",
		"1 error\nunknown keys found during decoding: x": "1 error\nunknown keys found (left out)",
		"expected sha256 [1 2 3], got [4 5 6]":           "expected sha256 [1 2 3], got [4 5 6]",
	} {
		if got := redactText(text); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
}

// FuzzRedactDiff: whatever a value looks like and wherever it stands, it does not come through.
func FuzzRedactDiff(f *testing.F) {
	for _, seed := range []string{"value", "- x", "a: b", "|", "|-", "@@ -1 +1 @@", "--- a", "\"12\"", "x\n  y: z", "{a: b}"} {
		f.Add("key", seed, uint8(2))
	}

	f.Fuzz(func(t *testing.T, key, around string, indent uint8) {
		const secret = "Zm9vYmFyYmF6"

		if openKeys[strings.TrimSpace(key)] || openKeys[strings.Trim(key, `"`)] || strings.ContainsAny(key, "\n\r") {
			return
		}

		pad := strings.Repeat(" ", int(indent%16))
		line := strings.NewReplacer("\n", " ", "\r", " ").Replace(around)

		for _, text := range []string{
			pad + key + ": " + secret,
			"+" + pad + key + ": " + line + secret,
			"-" + pad + "- " + secret + line,
			" " + pad + "tokens: |\n " + pad + "    " + line + secret + "\n+" + pad + "    name: " + secret,
		} {
			got := redactDiff(text)
			if strings.Contains(got, secret) && !strings.Contains(key, secret) && !shown(text, secret) {
				t.Errorf("%q became %q", text, got)
			}

			if strings.Count(got, "\n") != strings.Count(text, "\n") {
				t.Errorf("%q has another number of lines: %q", text, got)
			}
		}
	})
}

// shown: where the text itself makes the secret a key, or part of a line that is none of the config's, or the value of a
// field that may be shown.
func shown(text, secret string) bool {
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if !strings.Contains(line, secret) {
			continue
		}

		if strings.HasPrefix(line, "@@") {
			return true
		}

		if m := diffLine.FindStringSubmatch(line); strings.Contains(m[3], secret) || openKeys[m[3]] {
			return true
		}
	}

	return false
}
