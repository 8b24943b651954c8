package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v4"
)

const (
	schemaMark = "@schema "
	// tableMark is where the table of values goes in README.tmpl.md.
	tableMark = "<!-- values -->"
)

// value of the chart. One with a description is a row of the table; one without is a group of others.
type value struct {
	path, description, def string
}

// addReference writes the README and the schema of the values.
func addReference(files map[string]string, _, chart string) error {
	content, err := os.ReadFile(filepath.Join(chart, "values.yaml"))
	if err != nil {
		return fmt.Errorf("reading the values: %w", err)
	}

	head, err := os.ReadFile(filepath.Join(chart, "README.tmpl.md"))
	if err != nil {
		return fmt.Errorf("reading the head of the README: %w", err)
	}

	values, schema, err := reference(content)
	if err != nil {
		return err
	}

	table := "| value | default | meaning |\n|---|---|---|\n"
	for _, v := range values {
		table += fmt.Sprintf("| `%s` | `%s` | %s |\n", v.path, v.def, strings.ReplaceAll(v.description, "|", `\|`))
	}

	text, err := json.MarshalIndent(schema, "", "  ")
	if err != nil {
		return fmt.Errorf("writing the schema of the values: %w", err)
	}

	files[filepath.Join(chart, "README.md")] = strings.Replace(string(head), tableMark+"\n", table, 1)
	files[filepath.Join(chart, "values.schema.json")] = string(text) + "\n"

	return nil
}

// reference reads the values with their comments.
func reference(content []byte) ([]value, map[string]any, error) {
	document := yaml.Node{}
	if err := yaml.Unmarshal(content, &document); err != nil {
		return nil, nil, fmt.Errorf("reading the values: %w", err)
	}

	var values []value

	properties, err := describe("", document.Content[0], &values)
	if err != nil {
		return nil, nil, err
	}

	// Helm hands these on where the chart is part of another one.
	properties["global"] = map[string]any{"type": "object"}

	schema := closed(properties)
	schema["$schema"] = "http://json-schema.org/draft-07/schema#"

	return values, schema, nil
}

// closed is the schema of an object that has no other properties: a value that is misspelt would have no effect.
func closed(properties map[string]any) map[string]any {
	return map[string]any{"type": "object", "properties": properties, "additionalProperties": false}
}

// describe returns the schemas of the values in a mapping, and appends the values with a description.
func describe(path string, mapping *yaml.Node, values *[]value) (map[string]any, error) {
	properties := map[string]any{}

	for i := 0; i+1 < len(mapping.Content); i += 2 {
		key, node := mapping.Content[i], mapping.Content[i+1]
		name := strings.TrimPrefix(path+"."+key.Value, ".")

		description, extra, err := comment(name, key.HeadComment)
		if err != nil {
			return nil, err
		}

		schema := map[string]any{"type": typeOf(node), "description": description}

		switch {
		case description != "":
			def, err := inline(node)
			if err != nil {
				return nil, fmt.Errorf("writing the default of %s: %w", name, err)
			}

			*values = append(*values, value{name, description, def})
		case node.Kind != yaml.MappingNode:
			return nil, fmt.Errorf("reading the values: %s has no comment", name)
		default:
			inner, err := describe(name, node, values)
			if err != nil {
				return nil, err
			}

			schema = closed(inner)
		}

		maps.Copy(schema, extra)
		properties[key.Value] = schema
	}

	return properties, nil
}

// comment divides a comment into the description of a value and what is added to its schema.
func comment(name, text string) (string, map[string]any, error) {
	var description []string

	extra := map[string]any{}

	for line := range strings.Lines(text) {
		line = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), "#"))

		schema, ok := strings.CutPrefix(line, schemaMark)
		if !ok {
			description = append(description, line)

			continue
		}

		if err := json.Unmarshal([]byte(schema), &extra); err != nil {
			return "", nil, fmt.Errorf("reading the schema of %s: %w", name, err)
		}
	}

	return strings.TrimSpace(strings.Join(description, " ")), extra, nil
}

func typeOf(node *yaml.Node) string {
	switch node.ShortTag() {
	case "!!map":
		return "object"
	case "!!seq":
		return "array"
	case "!!bool":
		return "boolean"
	case "!!int":
		return "integer"
	default:
		return "string"
	}
}

// inline writes a value as JSON, and a text without quotes.
func inline(node *yaml.Node) (string, error) {
	var decoded any
	if err := node.Decode(&decoded); err != nil {
		return "", err
	}

	if text, ok := decoded.(string); ok && text != "" {
		return text, nil
	}

	out, err := json.Marshal(decoded)

	return string(out), err
}
