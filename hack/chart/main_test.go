package main

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	configFolder = "../../config"
	chartFolder  = "../../charts/talos-operator"
)

// TestCurrent: the chart is what config/ and its values say, and has no template of a CRD that is no more.
func TestCurrent(t *testing.T) {
	want, err := generate(configFolder, chartFolder)
	if err != nil {
		t.Fatal(err)
	}

	for path, text := range want {
		if got, err := os.ReadFile(path); err != nil || string(got) != text {
			t.Errorf("%s is not current (%v): run make generate", path, err)
		}
	}

	var crds []string

	for path := range want {
		if strings.Contains(path, "/crds/") {
			crds = append(crds, path)
		}
	}

	slices.Sort(crds)

	have, err := filepath.Glob(filepath.Join(chartFolder, "templates", "crds", "*"))
	if err != nil || len(have) == 0 {
		t.Fatal(have, err)
	}

	if diff := cmp.Diff(have, crds); diff != "" {
		t.Error(diff)
	}
}

// TestRun writes every file, and removes the template of a CRD that is no more.
func TestRun(t *testing.T) {
	dir := t.TempDir()
	config, chart := filepath.Join(dir, "config"), filepath.Join(dir, "chart")

	for from, to := range map[string]string{configFolder: config, chartFolder: chart} {
		if err := os.CopyFS(to, os.DirFS(from)); err != nil {
			t.Fatal(err)
		}
	}

	gone := filepath.Join(chart, "templates", "crds", "talos-operator.io_gone.yaml")
	if err := os.WriteFile(gone, nil, 0o600); err != nil {
		t.Fatal(err)
	}

	if err := os.RemoveAll(filepath.Join(chart, "files")); err != nil {
		t.Fatal(err)
	}

	if err := run(config, chart); err != nil {
		t.Fatal(err)
	}

	if _, err := os.Stat(gone); !os.IsNotExist(err) {
		t.Errorf("the template of a CRD that is no more: %v", err)
	}

	rules := filepath.Join(chart, "files", "manager-rules.yaml")
	if text, err := os.ReadFile(rules); err != nil || !strings.Contains(string(text), "secrets") {
		t.Errorf("%s: %v\n%s", rules, err, text)
	}
}

func TestBlock(t *testing.T) {
	const document = "kind: Role\nspec:\n  rules:\n    # why\n    - a: 1\n\n      b: {c: d}\n  other: x\nflat:\n- a\n- b:\n  - c\nend: y\n"

	for key, want := range map[string]string{
		"rules": "# why\n- a: 1\n\n  b: {c: d}\n", "spec": "rules:\n  # why\n  - a: 1\n\n    b: {c: d}\nother: x\n", "none": "",
		"flat": "- a\n- b:\n  - c\n",
	} {
		if diff := cmp.Diff(want, block(document, key)); diff != "" {
			t.Errorf("%s:\n%s", key, diff)
		}
	}
}

// TestMissingPart: a manifest that was renamed must not leave an empty role behind.
func TestMissingPart(t *testing.T) {
	for name, p := range map[string]part{
		"file":     {file: "rbac/none.yaml", document: "talos-operator", key: "rules"},
		"document": {file: "rbac/role.yaml", document: "none", key: "rules"},
		"key":      {file: "rbac/role.yaml", document: "talos-operator", key: "none"},
	} {
		if text, err := p.read(configFolder); err == nil {
			t.Errorf("%s: %q", name, text)
		}
	}
}

func TestCRDTemplate(t *testing.T) {
	const crd = "kind: C\nmetadata:\n  annotations:\n    a: b\n  name: c\nspec: x\n"

	const want = `{{- if .Values.crds.install }}
# Generated from config/crd by make generate.
kind: C
metadata:
  labels:
    {{- include "talos-operator.labels" . | nindent 4 }}
  annotations:
    {{- if .Values.crds.keep }}
    helm.sh/resource-policy: keep
    {{- end }}
    a: b
  name: c
spec: x
{{- end }}
`

	got, err := crdTemplate("c.yaml", crd)
	if err != nil {
		t.Fatal(err)
	}

	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}

	// Without annotations of its own the policy that keeps it would be lost.
	if got, err := crdTemplate("c.yaml", "kind: C\nmetadata:\n  name: c\n"); err == nil {
		t.Errorf("a template without a policy:\n%s", got)
	}
}

// TestReference: rows and schema of each kind of value, and what has no description is refused.
func TestReference(t *testing.T) {
	const values = `# Not of a value.

group:
  # A text,
  # of two lines.
  # @schema {"enum": ["x", "y"]}
  text: x
  # Empty.
  none: ""
  # A number.
  n: 3
# A map as a whole.
# @schema {"additionalProperties": true}
whole:
  a: true
# A list.
list: [b]
`

	rows, schema, err := reference([]byte(values))
	if err != nil {
		t.Fatal(err)
	}

	want := []value{
		{"group.text", "A text, of two lines.", "x"},
		{"group.none", "Empty.", `""`},
		{"group.n", "A number.", "3"},
		{"whole", "A map as a whole.", `{"a":true}`},
		{"list", "A list.", `["b"]`},
	}
	if diff := cmp.Diff(want, rows, cmp.AllowUnexported(value{})); diff != "" {
		t.Error(diff)
	}

	properties := map[string]any{
		"global": map[string]any{"type": "object"},
		"group": map[string]any{"type": "object", "additionalProperties": false, "properties": map[string]any{
			"text": map[string]any{"type": "string", "description": "A text, of two lines.", "enum": []any{"x", "y"}},
			"none": map[string]any{"type": "string", "description": "Empty."},
			"n":    map[string]any{"type": "integer", "description": "A number."},
		}},
		"whole": map[string]any{"type": "object", "description": "A map as a whole.", "additionalProperties": true},
		"list":  map[string]any{"type": "array", "description": "A list."},
	}
	if diff := cmp.Diff(properties, schema["properties"]); diff != "" {
		t.Error(diff)
	}

	for _, wrong := range []string{"a: 1\n", "# @schema {\na: 1\n", "# A.\n# @schema {\na: 1\n", "\t"} {
		if rows, _, err := reference([]byte(wrong)); err == nil {
			t.Errorf("%q: %v", wrong, rows)
		}
	}

	if keys := slices.Sorted(maps.Keys(schema)); !slices.Equal(keys, []string{"$schema", "additionalProperties", "properties", "type"}) {
		t.Error(keys)
	}
}
