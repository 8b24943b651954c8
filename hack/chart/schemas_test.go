package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestSchemas: a long schema that is there twice, in one CRD or in two, is a template that is named after the place that is
// least deep, and so is one inside of it that is elsewhere, too. Short ones, and those that are there once, stay where they are.
func TestSchemas(t *testing.T) {
	long := strings.Repeat("x", shortest)
	inner := map[string]any{"type": "string", "description": long + "\n\n{{ y }}"}
	outer := map[string]any{"type": "object", "properties": map[string]any{"in": inner, "short": map[string]any{"type": "string"}}}
	once := map[string]any{"type": "string", "description": long + "z"}

	crd := func(plural string, fields map[string]any) map[string]any {
		return map[string]any{
			"kind": "C", "metadata": map[string]any{"annotations": map[string]any{"a": "b"}, "name": plural},
			"spec": map[string]any{"names": map[string]any{"plural": plural}, "schema": map[string]any{"properties": fields}},
		}
	}

	got, err := crdTemplates(map[string]map[string]any{
		"a.yaml": crd("as", map[string]any{"deep": map[string]any{"items": outer}, "once": once, "values": map[string]any{
			"additionalProperties": inner,
		}}),
		"b.yaml": crd("bs", map[string]any{"here": outer}),
	})
	if err != nil {
		t.Fatal(err)
	}

	const head = `{{- if .Values.crds.install }}
# Generated from config/crd by make generate.
kind: C
` + keep

	want := map[string]string{
		"a.yaml": head + `    a: b
  name: as
spec:
  names:
    plural: as
  schema:
    properties:
      deep:
        items:{{ include "talos-operator.schema.bs.here" . | nindent 10 }}
      once:
        description: ` + long + `z
        type: string
      values:
        additionalProperties:{{ include "talos-operator.schema.as.values{}" . | nindent 10 }}
{{- end }}
`,
		"b.yaml": head + `    a: b
  name: bs
spec:
  names:
    plural: bs
  schema:
    properties:
      here:{{ include "talos-operator.schema.bs.here" . | nindent 8 }}
{{- end }}
`,
		"_schemas.tpl": `{{- /* Generated from config/crd by make generate: what CRDs have in several places. */}}
{{- define "talos-operator.schema.as.values{}" -}}
description: |-
  ` + long + `

  {{ ` + "`{{`" + ` }} y }}
type: string
{{- end }}
{{- define "talos-operator.schema.bs.here" -}}
properties:
  in:{{ include "talos-operator.schema.as.values{}" . | nindent 4 }}
  short:
    type: string
type: object
{{- end }}
`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}

	if got, err := crdTemplates(map[string]map[string]any{"a.yaml": {"kind": "C"}}); err == nil {
		t.Errorf("a CRD without annotations: %v", got)
	}
}
