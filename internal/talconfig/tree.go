package talconfig

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"

	"go.yaml.in/yaml/v4"
)

// Bounds of what aliases may expand to. A fleet of 10,000 machines has some 500,000 values.
const (
	mostNodes = 5_000_000
	mostDepth = 200
)

const mergeKey = "<<"

// parseTree reads one YAML document, with aliases and merge keys written out. It returns nil for an empty document.
func parseTree(raw []byte) (root *yaml.Node, err error) {
	// The YAML library panics on some malformed input.
	defer func() {
		if recover() != nil {
			root, err = nil, errors.New("the file is not valid YAML")
		}
	}()

	dec := yaml.NewDecoder(bytes.NewReader(raw))

	var doc yaml.Node

	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return nil, nil
	case err != nil:
		return nil, yamlError(err)
	case len(doc.Content) == 0:
		return nil, nil
	}

	if err := dec.Decode(&yaml.Node{}); !errors.Is(err, io.EOF) {
		return nil, errors.New("the file has more than one YAML document; keep one")
	}

	e := expansion{left: mostNodes}

	return e.expand(doc.Content[0])
}

var yamlLine = regexp.MustCompile(`line (\d+)`)

// yamlError says where the syntax is wrong. The library's text may quote the content of the file.
func yamlError(err error) error {
	if at := yamlLine.FindString(err.Error()); at != "" {
		return fmt.Errorf("the file is not valid YAML near %s: check indentation and quotes there", at)
	}

	return errors.New("the file is not valid YAML")
}

// expansion copies a tree without aliases.
type expansion struct{ left, depth int }

func (e *expansion) expand(n *yaml.Node) (*yaml.Node, error) {
	e.depth++
	defer func() { e.depth-- }()

	if e.left--; e.left < 0 || e.depth > mostDepth {
		return nil, errors.New("the aliases of the file refer to themselves, or expand to millions of values")
	}

	if n.Kind == yaml.AliasNode {
		return e.expand(n.Alias)
	}

	out := *n
	out.Anchor, out.Alias, out.Content = "", nil, nil

	if n.Kind == yaml.MappingNode {
		return &out, e.expandMapping(n, &out)
	}

	for _, child := range n.Content {
		copied, err := e.expand(child)
		if err != nil {
			return nil, err
		}

		out.Content = append(out.Content, copied)
	}

	return &out, nil
}

// expandMapping writes out merge keys: what the mapping says itself wins, then what is merged first.
func (e *expansion) expandMapping(n, out *yaml.Node) error {
	var merged []*yaml.Node

	for i := 0; i+1 < len(n.Content); i += 2 {
		key, err := e.expand(n.Content[i])
		if err != nil {
			return err
		}

		value, err := e.expand(n.Content[i+1])
		if err != nil {
			return err
		}

		switch {
		case key.Value != mergeKey || key.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0:
			out.Content = append(out.Content, key, value)
		case value.Kind == yaml.SequenceNode:
			merged = append(merged, value.Content...)
		default:
			merged = append(merged, value)
		}
	}

	for _, from := range merged {
		if from.Kind != yaml.MappingNode {
			return fmt.Errorf("line %d: << merges a mapping, or a list of mappings", from.Line)
		}

		for i := 0; i+1 < len(from.Content); i += 2 {
			if child(out, from.Content[i].Value) == nil {
				out.Content = append(out.Content, from.Content[i], from.Content[i+1])
			}
		}
	}

	return nil
}

func child(mapping *yaml.Node, key string) *yaml.Node {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == key {
			return mapping.Content[i+1]
		}
	}

	return nil
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }
