package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// shortest is how long a schema has to be, in bytes of JSON, for a template of its own.
const shortest = 400

// schemaPrefix is what the names of the templates of schemas begin with. The plural of a CRD and the path of a field
// with the schema follow.
const schemaPrefix = "talos-operator.schema."

// placeholder stands for a schema that is a template, while a CRD is written.
var placeholder = regexp.MustCompile(`(?m)^( *)(.+): SCHEMA_(\d+)_$`)

// schemas are those that CRDs have in several places: a group, its machines and its spares have most fields alike. Each
// of them is a template that is included where it belongs. Helm keeps the templates of a release and what they make in
// one Secret of at most 1 MiB.
type schemas struct {
	// seen is how often there is a schema, by its JSON.
	seen map[string]int
	// index of the template that is made of a schema, by its JSON.
	index map[string]int
	names []string
	texts []string
}

// add counts the schemas of a CRD. Those inside of one that was there before are not counted again.
func (s *schemas) add(node any) {
	switch node := node.(type) {
	case map[string]any:
		if id := idOf(node); id != "" {
			s.seen[id]++
			if s.seen[id] > 1 {
				return
			}
		}

		for _, value := range node {
			s.add(value)
		}
	case []any:
		for _, value := range node {
			s.add(value)
		}
	}
}

// idOf returns the JSON of a schema that is long enough to be a template, and nothing for anything else.
func idOf(node map[string]any) string {
	if _, ok := node["type"].(string); !ok {
		return ""
	}

	text, err := json.Marshal(node) // sorts the keys
	if err != nil || len(text) < shortest {
		return ""
	}

	return string(text)
}

// place is a schema with its path in a CRD.
type place struct {
	path   string
	schema map[string]any
}

// define makes the templates of what was added, named after the places that are least deep.
func (s *schemas) define(crds map[string]map[string]any) error {
	var level []place
	for _, name := range slices.Sorted(maps.Keys(crds)) {
		plural, _, err := unstructured.NestedString(crds[name], "spec", "names", "plural")
		if err != nil {
			return fmt.Errorf("reading the names in %s: %w", name, err)
		}

		level = append(level, place{plural, crds[name]})
	}

	var defined []map[string]any

	for len(level) > 0 {
		var next []place

		for _, p := range level {
			id := idOf(p.schema)
			if _, done := s.index[id]; s.seen[id] > 1 && !done {
				name := schemaPrefix + p.path
				if slices.Contains(s.names, name) {
					return fmt.Errorf("making templates of CRDs: two schemas would be called %s", name)
				}

				s.index[id] = len(s.names)
				s.names = append(s.names, name)
				defined = append(defined, p.schema)
			}

			next = append(next, p.children()...)
		}

		level = next
	}

	for _, schema := range defined {
		text, err := s.write(schema)
		if err != nil {
			return err
		}

		s.texts = append(s.texts, text)
	}

	return nil
}

// within is what the path of a schema has for that of its items, or of its values.
var within = map[string]string{"items": "[]", "additionalProperties": "{}"}

// children returns what is directly inside of a place, sorted. Only names of fields are a part of paths.
func (p place) children() []place {
	var out []place

	add := func(path string, value any) {
		if schema, ok := value.(map[string]any); ok {
			out = append(out, place{path, schema})
		}
	}

	for _, key := range slices.Sorted(maps.Keys(p.schema)) {
		fields, _ := p.schema[key].(map[string]any)
		items, _ := p.schema[key].([]any)

		for _, item := range items {
			add(p.path, item)
		}

		if key != "properties" {
			add(p.path+within[key], p.schema[key])

			continue
		}

		for _, name := range slices.Sorted(maps.Keys(fields)) {
			add(p.path+"."+name, fields[name])
		}
	}

	return out
}

// write returns the YAML of a CRD or a schema in which templates are included.
func (s *schemas) write(object map[string]any) (string, error) {
	text, err := yaml.Marshal(s.refer(object))
	if err != nil {
		return "", fmt.Errorf("writing a CRD: %w", err)
	}

	// What looks like an action of a template is text here.
	out := strings.ReplaceAll(string(text), "{{", "{{ `{{` }}")

	return placeholder.ReplaceAllStringFunc(out, func(line string) string {
		part := placeholder.FindStringSubmatch(line)
		index, _ := strconv.Atoi(part[3])

		return fmt.Sprintf("%s%s:{{ include %q . | nindent %d }}", part[1], part[2], s.names[index], len(part[1])+2)
	}), nil
}

// refer returns a copy of a value with placeholders for the schemas in it that are templates.
func (s *schemas) refer(node any) any {
	switch node := node.(type) {
	case map[string]any:
		out := map[string]any{}

		for key, value := range node {
			if schema, ok := value.(map[string]any); ok {
				if index, ok := s.index[idOf(schema)]; ok {
					out[key] = fmt.Sprintf("SCHEMA_%d_", index)

					continue
				}
			}

			out[key] = s.refer(value)
		}

		return out
	case []any:
		out := make([]any, len(node))
		for i, value := range node {
			out[i] = s.refer(value)
		}

		return out
	}

	return node
}

// template returns the file with all templates, sorted by name.
func (s *schemas) template() string {
	parts := make([]string, len(s.names))
	for i, name := range s.names {
		parts[i] = fmt.Sprintf("{{- define %q -}}\n%s{{- end }}\n", name, s.texts[i])
	}

	slices.Sort(parts)

	return "{{- /* Generated from config/crd by make generate: what CRDs have in several places. */}}\n" +
		strings.Join(parts, "")
}
