package machineconfig

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	jsonpatch "github.com/evanphx/json-patch"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"
	"go.yaml.in/yaml/v4"
)

// patch is one parsed patch. Either json is set, or merge and unknown in any combination.
type patch struct {
	level string
	index int
	// merge is the part that the machinery library knows how to merge.
	merge configpatcher.Patch
	// unknown are documents of kinds that the library does not know.
	unknown []document
	json    jsonpatch.Patch
}

func (p patch) name() string { return fmt.Sprintf("%s[%d]", p.level, p.index) }

func (p patch) failure(problem string) *PatchError {
	return &PatchError{Level: p.level, Index: p.index, Problem: problem}
}

// CheckPatches parses patches without applying them. The error is a *PatchError.
func CheckPatches(p Patches) error {
	_, err := parsePatches(p)

	return err
}

func parsePatches(in Patches) ([]patch, error) {
	var out []patch

	for _, level := range []struct {
		name  string
		texts []string
	}{{"cluster", in.Cluster}, {"group", in.Group}, {"machine", in.Machine}} {
		for i, text := range level.texts {
			p := patch{level: level.name, index: i}
			if err := p.parse(text); err != nil {
				return nil, p.failure(describe(err))
			}

			out = append(out, p)
		}
	}

	return out, nil
}

func (p *patch) parse(text string) (err error) {
	// The libraries below panic on some malformed input.
	defer func() {
		if r := recover(); r != nil {
			err = errors.New("malformed patch")
		}
	}()

	if isList(text) {
		p.json, err = parseJSONPatch(text)

		return err
	}

	docs, err := splitDocuments([]byte(text))
	if err != nil {
		return err
	}

	if len(docs) == 0 {
		return errors.New("the patch is empty")
	}

	known := make([]document, 0, len(docs))

	for _, doc := range docs {
		switch {
		case doc.isKnown():
			known = append(known, doc)
		case doc.apiVersion == "":
			return fmt.Errorf("document %s has no apiVersion", doc.id())
		case hasNestedDelete(doc.node):
			return fmt.Errorf("document %s is of a kind this operator does not know: \"$patch: delete\" works only on the "+
				"whole document", doc.id())
		default:
			p.unknown = append(p.unknown, doc)
		}
	}

	if len(known) == 0 {
		return nil
	}

	raw := []byte(text)

	if len(p.unknown) > 0 {
		if raw, err = joinDocuments(known); err != nil {
			return err
		}
	}

	p.merge, err = configpatcher.LoadPatch(raw)

	return err
}

// isList tells an RFC 6902 patch, which is a list, from a strategic merge patch, which never is.
func isList(text string) bool {
	var node yaml.Node

	return yaml.Unmarshal([]byte(text), &node) == nil &&
		len(node.Content) == 1 && node.Content[0].Kind == yaml.SequenceNode
}

var jsonOps = []string{"add", "remove", "replace", "move", "copy", "test"}

func parseJSONPatch(text string) (jsonpatch.Patch, error) {
	var operations []map[string]any
	if err := yaml.Unmarshal([]byte(text), &operations); err != nil {
		return nil, fmt.Errorf("an RFC 6902 patch is a list of operations: %w", err)
	}

	if len(operations) == 0 {
		return nil, errors.New("the patch is empty")
	}

	for i, operation := range operations {
		op, _ := operation["op"].(string)
		if !slices.Contains(jsonOps, op) {
			return nil, fmt.Errorf("operation %d: op must be one of %s", i, strings.Join(jsonOps, ", "))
		}

		if path, ok := operation["path"].(string); !ok || !strings.HasPrefix(path, "/") {
			return nil, fmt.Errorf("operation %d: path must begin with a slash", i)
		}

		if _, ok := operation["value"]; !ok && (op == "add" || op == "replace" || op == "test") {
			return nil, fmt.Errorf("operation %d: %s needs a value", i, op)
		}
	}

	raw, err := json.Marshal(operations)
	if err != nil {
		return nil, errors.New("the patch has values that JSON cannot hold")
	}

	return jsonpatch.DecodePatch(raw)
}

const patchKey, patchDelete = "$patch", "delete"

func hasNestedDelete(doc *yaml.Node) bool {
	var walk func(n *yaml.Node) bool

	walk = func(n *yaml.Node) bool {
		return n != doc && child(n, patchKey) != nil || slices.ContainsFunc(n.Content, walk)
	}

	return slices.ContainsFunc(doc.Content, walk)
}

// draft is a config while patches are applied to it.
type draft struct {
	known   config.Provider
	unknown []document
}

func (d *draft) apply(p patch) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = p.failure("the patch does not fit this config")
		}
	}()

	if p.json != nil {
		return d.applyJSON(p)
	}

	for _, doc := range p.unknown {
		if err := d.applyUnknown(doc); err != nil {
			return p.failure(describe(err))
		}
	}

	if p.merge == nil {
		return nil
	}

	return d.applyKnown(p, p.merge)
}

func (d *draft) applyJSON(p patch) error {
	if kinds := d.extraKinds(); len(kinds) > 0 {
		return p.failure("an RFC 6902 patch works only on a config of a single document, and this config also has " +
			strings.Join(kinds, ", ") + "; write it as a strategic merge patch")
	}

	return d.applyKnown(p, p.json)
}

func (d *draft) extraKinds() []string {
	var kinds []string

	for _, doc := range d.known.Documents() {
		if doc.Kind() != mainKind {
			kinds = append(kinds, doc.Kind())
		}
	}

	for _, doc := range d.unknown {
		kinds = append(kinds, doc.kind)
	}

	slices.Sort(kinds)

	return slices.Compact(kinds)
}

func (d *draft) applyKnown(p patch, merge configpatcher.Patch) error {
	out, err := configpatcher.Apply(configpatcher.WithConfig(d.known), []configpatcher.Patch{merge})
	if err != nil {
		return p.failure("does not apply: " + describe(err))
	}

	patched, err := out.Config()
	if err != nil {
		return p.failure("the patched config does not parse: " + describe(err))
	}

	d.known = patched

	return nil
}

func (d *draft) applyUnknown(doc document) error {
	at := slices.IndexFunc(d.unknown, func(have document) bool {
		return have.id() == doc.id() && have.apiVersion == doc.apiVersion
	})

	if scalarOf(doc.node, patchKey) == patchDelete {
		if at < 0 {
			return fmt.Errorf("document %s, which the patch deletes, does not exist", doc.id())
		}

		d.unknown = slices.Delete(d.unknown, at, at+1)

		return nil
	}

	if at >= 0 {
		mergeDocument(d.unknown[at].node, doc.node)

		return nil
	}

	d.unknown = append(d.unknown, doc)

	return nil
}

// bytes renders the draft: what is known first, what is not after it in the order of names.
func (d *draft) bytes() ([]byte, error) {
	raw, err := encode(d.known)
	if err != nil || len(d.unknown) == 0 {
		return raw, err
	}

	unknown := slices.Clone(d.unknown)
	sortDocuments(unknown)

	rest, err := joinDocuments(unknown)
	if err != nil {
		return nil, err
	}

	return bytes.Join([][]byte{raw, rest}, []byte("---\n")), nil
}
