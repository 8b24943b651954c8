package machineconfig

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"go.yaml.in/yaml/v4"

	"github.com/talos-operator/talos-operator/internal/machineconfig/keyref"
)

// Mask renders a config for the eyes of a user: each value that may be secret, and those of the hidden fields, which
// are written as Change.Field writes them, are replaced. Of a document that the machinery library does not know, all
// are.
func Mask(config []byte, hidden []string) ([]byte, error) {
	docs, err := splitDocuments(config)
	if err != nil {
		return nil, fmt.Errorf("reading the config: %s", describe(err)) // the cause may quote secrets
	}

	for _, doc := range docs {
		if len(hidden) > 0 {
			removeComments(doc.node)
		}

		typed, cfg := typedView(doc)
		mask(doc.node, "", parsed{typed: typed, cfg: cfg}.secrets(doc.id(), hidden))
	}

	return joinDocuments(docs)
}

// secrets tells which values of a document are replaced.
func (p parsed) secrets(id string, hidden []string) func(path string) bool {
	isSecret := p.isSecret()

	return func(path string) bool {
		if path == "apiVersion" || path == "kind" || path == "name" {
			return false
		}

		field := Change{Document: id, Path: path}.Field()

		return isSecret(path) || isSensitive(path) ||
			slices.ContainsFunc(hidden, func(h string) bool { return covers(h, field) })
	}
}

// mask replaces values below a node, whose paths are those of flatten.
func mask(node *yaml.Node, path string, secret func(path string) bool) {
	switch node.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(node.Content); i += 2 {
			mask(node.Content[i+1], keyref.JoinPath(path, node.Content[i].Value), secret)
		}
	case yaml.SequenceNode:
		for i, one := range node.Content {
			mask(one, path+"["+strconv.Itoa(i)+"]", secret)
		}
	case yaml.ScalarNode:
		if node.Value == "" || node.Tag == "!!null" {
			return
		}

		if shown := show(node.Value, true, secret(path), math.MaxInt); shown != node.Value {
			*node = *stringNode(shown)
		}
	case yaml.AliasNode:
		*node = *stringNode(Redacted) // rendered configs have none; what it stands for has another path
	default: // documents and streams were taken apart before
	}
}

// removeComments removes comments, which may have come from a Secret with the fields that they are about.
func removeComments(node *yaml.Node) {
	node.HeadComment, node.LineComment, node.FootComment = "", "", ""

	for _, one := range node.Content {
		removeComments(one)
	}
}

// Documents takes a config apart into its documents, in their order.
func Documents(config []byte) ([][]byte, error) {
	docs, err := splitDocuments(config)
	if err != nil {
		return nil, fmt.Errorf("reading the config: %s", describe(err)) // the cause may quote secrets
	}

	out := make([][]byte, 0, len(docs))

	for _, doc := range docs {
		raw, err := joinDocuments([]document{doc})
		if err != nil {
			return nil, err
		}

		out = append(out, raw)
	}

	return out, nil
}
