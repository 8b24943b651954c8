package machineconfig

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/encoder"
	"go.yaml.in/yaml/v4"
)

// document is one YAML document of a config, known to the machinery library or not. The main document, the one with
// machine and cluster, has no kind.
type document struct {
	apiVersion, kind, name string

	node *yaml.Node
}

func (d document) isMain() bool { return d.kind == "" }

// id is how differences and errors call the document.
func (d document) id() string {
	if d.name == "" {
		return d.kind
	}

	return d.kind + "/" + d.name
}

// isKnown tells whether the machinery library has a type for the document. A Talos release that is newer than the
// library brings documents which only the node can judge.
func (d document) isKnown() bool { return d.isMain() || isKnownKind(d.apiVersion, d.kind) }

var knownKinds sync.Map

// isKnownKind asks the decoder for an otherwise empty document: it has no other way to tell, and it fails for unknown
// kinds only.
func isKnownKind(apiVersion, kind string) bool {
	key := apiVersion + " " + kind
	if known, ok := knownKinds.Load(key); ok {
		return known.(bool)
	}

	probe, err := yaml.Marshal(map[string]string{"apiVersion": apiVersion, "kind": kind})
	if err != nil {
		return false
	}

	_, err = configloader.NewFromBytes(probe)
	knownKinds.Store(key, err == nil)

	return err == nil
}

// splitDocuments reads the documents of a config or patch without judging their fields.
func splitDocuments(data []byte) (docs []document, err error) {
	// The YAML library panics on some malformed input.
	defer func() {
		if p := recover(); p != nil {
			docs, err = nil, errors.New("malformed YAML")
		}
	}()

	dec := yaml.NewDecoder(bytes.NewReader(data))

	for {
		var root yaml.Node

		switch err := dec.Decode(&root); {
		case errors.Is(err, io.EOF):
			return docs, nil
		case err != nil:
			return nil, err
		}

		for _, node := range root.Content {
			if node.Kind == yaml.ScalarNode && node.Tag == "!!null" {
				continue
			}

			if node.Kind != yaml.MappingNode {
				return nil, fmt.Errorf("line %d: expected a mapping", node.Line)
			}

			if isDeeper(node, maxLevels) {
				return nil, fmt.Errorf("line %d: more than %d levels", node.Line, maxLevels)
			}

			docs = append(docs, document{
				apiVersion: scalarOf(node, "apiVersion"),
				kind:       scalarOf(node, "kind"),
				name:       scalarOf(node, "name"),
				node:       node,
			})
		}
	}
}

// maxLevels is how deep values may be nested, several times as deep as in real documents. Each level indents everything
// in it: a patch of 50 KB with 10,000 levels would make a configuration of 100 MB.
const maxLevels = 100

func isDeeper(node *yaml.Node, levels int) bool {
	return levels < 0 || slices.ContainsFunc(node.Content, func(n *yaml.Node) bool { return isDeeper(n, levels-1) })
}

func scalarOf(node *yaml.Node, key string) string {
	if value := child(node, key); value != nil && value.Kind == yaml.ScalarNode {
		return value.Value
	}

	return ""
}

func child(node *yaml.Node, key string) *yaml.Node {
	if node == nil || node.Kind != yaml.MappingNode {
		return nil
	}

	for i := 0; i+1 < len(node.Content); i += 2 {
		if node.Content[i].Value == key {
			return node.Content[i+1]
		}
	}

	return nil
}

// joinDocuments renders documents as one YAML stream.
func joinDocuments(docs []document) ([]byte, error) {
	var buf bytes.Buffer

	for _, doc := range docs {
		if buf.Len() > 0 {
			buf.WriteString("---\n")
		}

		raw, err := yaml.Marshal(doc.node)
		if err != nil {
			return nil, fmt.Errorf("rendering document %s: %w", doc.id(), err)
		}

		buf.Write(raw)
	}

	return buf.Bytes(), nil
}

// encode renders what the machinery library knows, without comments.
func encode(cfg config.Provider) ([]byte, error) {
	raw, err := cfg.EncodeBytes(encoder.WithComments(encoder.CommentsDisabled))
	if err != nil {
		return nil, fmt.Errorf("encoding machine config: %w", err)
	}

	return raw, nil
}

// mergeDocument merges a document of an unknown kind the way Talos merges known ones: mappings by key, lists appended,
// everything else replaced.
func mergeDocument(dst, src *yaml.Node) {
	for i := 0; i+1 < len(src.Content); i += 2 {
		key, value := src.Content[i], src.Content[i+1]

		old := child(dst, key.Value)

		switch {
		case old == nil:
			dst.Content = append(dst.Content, key, value)
		case old.Kind == yaml.MappingNode && value.Kind == yaml.MappingNode:
			mergeDocument(old, value)
		case old.Kind == yaml.SequenceNode && value.Kind == yaml.SequenceNode:
			old.Content = append(old.Content, value.Content...)
		default:
			*old = *value
		}
	}
}

// sortDocuments puts the main document first and the others in the order of their names.
func sortDocuments(docs []document) {
	slices.SortStableFunc(docs, func(a, b document) int {
		if c := strings.Compare(a.id(), b.id()); c != 0 {
			return c
		}

		return strings.Compare(a.apiVersion, b.apiVersion)
	})
}
