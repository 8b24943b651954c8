package patchsource_test

import (
	"errors"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/patchsource"
)

// Paths and kinds, as the API server accepts them.
var (
	pointer  = regexp.MustCompile(`^(/([^/~\pC]|~[01])+)+$`)
	kindName = regexp.MustCompile(`^[A-Za-z0-9]*$`)
)

// FuzzPatch: what a Secret holds is taken as a patch, or as nothing but the value at a path in one, or is refused for good
// without being quoted.
func FuzzPatch(f *testing.F) {
	f.Add("machine: {sysctls: {a: ", "}}", "", "")
	f.Add("", "", "/machine/registries/config/example/auth/password", "")
	f.Add("{", "", "/spec/x", "RegistryAuthConfig")
	f.Add("a\x00", "\xff", "/a/b~1c", "")
	f.Add("", "\n---\nmachine: {}\n", "/machine/token", "")
	f.Add("!!binary ", "\r\n\r\n", "/kind", "Kind")
	f.Add("\t", "\n0", "/0", "")
	f.Add("\n ", "", "/0", "")
	f.Add("\ufeff", "\u2028b\x85", "/<</~0", "")

	const hidden = "dG9wc2VjcmV0"

	f.Fuzz(func(t *testing.T, before, after, path, kind string) {
		if path != "" && !pointer.MatchString(path) || !kindName.MatchString(kind) {
			return
		}

		value := before + hidden + after
		cp, w, m := owners()
		from := source("Secret", "shut")
		from.Path = path

		if kind != "" {
			from.Document = &v1alpha1.ConfigDocument{Kind: kind}
		}

		m.Spec.ConfigPatchesFrom = []v1alpha1.ConfigPatchSource{from}

		got, err := patchsource.For(t.Context(), newAPI(secret("shut", "k", value)), cp, w, m)
		if err != nil {
			var refused *failure.Error
			if !errors.As(err, &refused) || refused.Class != failure.ClassTerminal {
				t.Errorf("unclassified: %v", err)
			}

			if strings.Contains(err.Error(), hidden) && !strings.Contains(path+kind, hidden) {
				t.Errorf("the error quotes the value: %v", err)
			}

			return
		}

		want := value
		if len(got.Machine) != 1 || !got.Machine[0].Secret {
			t.Fatalf("%q became %+v", value, got.Machine)
		}

		text := got.Machine[0].Text
		if path != "" {
			text, want = at(t, text, path), strings.TrimRight(value, "\r\n")
		}

		if text != want && utf8.ValidString(value) {
			t.Errorf("%q at %q became %q", want, path, text)
		}
	})
}

// at returns the text at a path of a patch that has nothing else, and of which there is one document.
func at(t *testing.T, patch, path string) string {
	t.Helper()

	var (
		doc yaml.Node
		dec = yaml.NewDecoder(strings.NewReader(patch))
	)

	if err := dec.Decode(&doc); err != nil {
		t.Fatalf("%q cannot be read: %v", patch, err)
	}

	if dec.Decode(&yaml.Node{}) == nil {
		t.Fatalf("%q has several documents", patch)
	}

	n := doc.Content[0]

	for key := range strings.SplitSeq(path[1:], "/") {
		key = strings.NewReplacer("~1", "/", "~0", "~").Replace(key)

		// The fields that name a document come first.
		if last := len(n.Content); last < 2 || n.Content[last-2].Value != key {
			t.Fatalf("%q has no %s", patch, key)
		}

		n = n.Content[len(n.Content)-1]
	}

	return n.Value
}
