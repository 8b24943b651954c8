package machineconfig

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	jsonpatch "github.com/evanphx/json-patch"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"
	"go.yaml.in/yaml/v4"

	"github.com/talos-operator/talos-operator/internal/machineconfig/keyref"
)

// Keys of an RFC 6902 patch that names the document it is for.
const (
	keyTarget     = "target"
	keyOperations = "operations"
)

// documentsVersion is the apiVersion of all documents that Talos has so far.
const documentsVersion = "v1alpha1"

// selector names one document of a config. Without a kind it is the main document. Without a name it is the only
// document of its kind.
type selector struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string `yaml:"kind"`
	Name       string `yaml:"name"`
}

func (s selector) selects(d document) bool {
	if s.Kind == "" {
		return d.isMain()
	}

	return d.kind == s.Kind && d.apiVersion == s.APIVersion && (s.Name == "" || d.name == s.Name)
}

// String is how errors call the document.
func (s selector) String() string {
	if s.Kind == "" {
		return mainKind
	}

	return document{kind: s.Kind, name: s.Name}.id()
}

// operations are an RFC 6902 patch of one document.
type operations struct {
	target selector
	patch  jsonpatch.Patch
}

// longestCopies is how many bytes the copy operations of one patch may add: each may double a document.
const longestCopies = 1 << 20

func init() { jsonpatch.AccumulatedCopySizeLimit = longestCopies } // the library has no other place for it

// isList tells an RFC 6902 patch of the main document, which is a list, from all others, which are mappings.
func isList(text string) bool {
	var node yaml.Node

	return yaml.Unmarshal([]byte(text), &node) == nil &&
		len(node.Content) == 1 && node.Content[0].Kind == yaml.SequenceNode
}

// hasOperations tells an RFC 6902 patch with a target from a document, which has an apiVersion, or the sections of the
// main document.
func (d document) hasOperations() bool {
	return d.isMain() && d.apiVersion == "" && child(d.node, keyOperations) != nil
}

// parseList reads the RFC 6902 patch of a main document.
func parseList(text string) (*operations, error) {
	var list []map[string]any
	if err := yaml.Unmarshal([]byte(text), &list); err != nil {
		return nil, fmt.Errorf("an RFC 6902 patch is a list of operations: %w", err)
	}

	return newOperations(selector{}, list)
}

// plainWord is what a misspelled field looks like. Anything else may be a value in its place.
var plainWord = regexp.MustCompile(`^[A-Za-z]{1,10}$`)

func misspelled(field string) string {
	if plainWord.MatchString(field) {
		return field
	}

	return fieldName("")
}

// parseTargeted reads the RFC 6902 patch of a named document.
func parseTargeted(text string, doc document) (*operations, error) {
	if err := onlyKeys(doc.node, keyTarget, keyOperations); err != nil {
		return nil, err
	}

	if err := onlyKeys(child(doc.node, keyTarget), "apiVersion", "kind", "name"); err != nil {
		return nil, fmt.Errorf("%s: %w", keyTarget, err)
	}

	var in struct {
		Target     selector         `yaml:"target"`
		Operations []map[string]any `yaml:"operations"`
	}

	if err := yaml.Unmarshal([]byte(text), &in); err != nil {
		return nil, fmt.Errorf("an RFC 6902 patch has a target and a list of operations: %w", err)
	}

	switch t := &in.Target; {
	case t.Kind == "" && t.Name+t.APIVersion != "":
		return nil, errors.New("target: a document with an apiVersion or a name has a kind; without target, the " +
			"operations are for the main document")
	case t.Kind != "" && t.APIVersion == "":
		t.APIVersion = documentsVersion
	}

	return newOperations(in.Target, in.Operations)
}

// onlyKeys refuses what is no field: a misspelled one would be ignored.
func onlyKeys(node *yaml.Node, known ...string) error {
	if node == nil {
		return nil
	}

	if node.Kind != yaml.MappingNode {
		return errors.New("expected a mapping")
	}

	for i := 0; i+1 < len(node.Content); i += 2 {
		if key := node.Content[i].Value; !slices.Contains(known, key) {
			return fmt.Errorf("unknown field %s: the fields are %s", fieldName(key), strings.Join(known, ", "))
		}
	}

	return nil
}

// jsonFields are the fields of an operation.
var jsonFields = []string{"op", "path", "from", "value"}

var jsonOps = []string{"add", "remove", "replace", "move", "copy", "test"}

func newOperations(target selector, list []map[string]any) (*operations, error) {
	if len(list) == 0 {
		return nil, errors.New("the patch is empty")
	}

	for i, operation := range list {
		for _, field := range slices.Sorted(maps.Keys(operation)) {
			if !slices.Contains(jsonFields, field) {
				return nil, fmt.Errorf("operation %d: unknown field %s: the fields are %s", i, misspelled(field),
					strings.Join(jsonFields, ", "))
			}
		}

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

	raw, err := json.Marshal(list)
	if err != nil {
		return nil, errors.New("the patch has values that JSON cannot hold")
	}

	patch, err := jsonpatch.DecodePatch(raw)

	return &operations{target: target, patch: patch}, err
}

// applyOperations patches one document by itself: the machinery library patches only configs of a single document.
func (d *draft) applyOperations(p patch) error {
	raw, err := encode(d.known)
	if err != nil {
		return err
	}

	known, err := splitDocuments(raw)
	if err != nil {
		return p.failure(describe(err))
	}

	docs := append(slices.Clone(known), d.unknown...)

	at, err := p.json.target.find(docs)
	if err != nil {
		return p.failure(err.Error())
	}

	if field := p.json.carries(docs[at].id(), d.hidden); field != "" && !p.secret {
		return p.refused("has an operation copy, move or test at " + field + ", which a Secret sets: it would show what " +
			"the Secret holds; use add, replace or remove, or take this patch from a Secret, too")
	}

	if i := at - len(known); i >= 0 {
		d.unknown = slices.Clone(d.unknown)
		d.unknown[i], err = p.json.apply(d.unknown[i])

		return p.unlessNil(err)
	}

	if known[at], err = p.json.apply(known[at]); err != nil {
		return p.unlessNil(err)
	}

	if raw, err = joinDocuments(known); err != nil {
		return err
	}

	patched, err := configloader.NewFromBytes(raw)
	if err != nil {
		return p.failure("the patched config does not parse: " + describe(err))
	}

	d.known = patched

	return nil
}

// carries returns the first of the hidden fields of a document whose value an operation would take elsewhere, or
// compare; empty if there is none.
func (o *operations) carries(document string, hidden []string) string {
	for _, operation := range o.patch {
		var pointers []string

		if path, err := operation.Path(); err == nil {
			pointers = append(pointers, path)
		}

		if from, err := operation.From(); err == nil {
			pointers = append(pointers, from)
		}

		switch operation.Kind() {
		case "copy", "move", "test":
		default:
			continue
		}

		for _, pointer := range pointers {
			field := Change{Document: document, Path: pathOf(pointer)}.Field()

			at := slices.IndexFunc(hidden, func(h string) bool {
				return field == "" || covers(h, field) || covers(field, h)
			})
			if at >= 0 {
				return hidden[at]
			}
		}
	}

	return ""
}

// pathOf is the path of flatten that a JSON pointer names. Items of lists are written as keys: what is hidden is never
// below one.
func pathOf(pointer string) string {
	path := ""

	for i, key := range strings.Split(pointer, "/") {
		if i > 0 {
			path = keyref.JoinPath(path, unescapePointer(key))
		}
	}

	return path
}

func unescapePointer(key string) string {
	return strings.NewReplacer("~1", "/", "~0", "~").Replace(key)
}

// find returns the place of the document. A patch that finds none, or several, is refused: it would do nothing, or
// something else than its author expects.
func (s selector) find(docs []document) (int, error) {
	var (
		found   []int
		similar []string
	)

	for i, doc := range docs {
		if s.selects(doc) {
			found = append(found, i)
		}

		if doc.kind == s.Kind {
			similar = append(similar, doc.id())
		}
	}

	slices.Sort(similar)

	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return 0, fmt.Errorf("the config has several documents of kind %s (%s): add the name to target", s.Kind,
			listOf(similar))
	case len(similar) > 0:
		return 0, fmt.Errorf("the config has no document %s; it has %s", s, listOf(similar))
	default:
		return 0, fmt.Errorf("the config has no document %s, and none of that kind", s)
	}
}

// mostNamed limits the names in an error.
const mostNamed = 5

func listOf(names []string) string {
	if len(names) > mostNamed {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:mostNamed], ", "), len(names)-mostNamed)
	}

	return strings.Join(names, ", ")
}

func (o *operations) apply(doc document) (document, error) {
	raw, err := yaml.Marshal(doc.node)
	if err != nil {
		return document{}, fmt.Errorf("rendering document %s: %w", doc.id(), err)
	}

	raw, err = configpatcher.JSON6902(raw, o.patch)
	if err != nil {
		return document{}, fmt.Errorf("does not apply to document %s: %w", o.target, err)
	}

	docs, err := splitDocuments(raw)
	if err != nil || len(docs) != 1 {
		return document{}, fmt.Errorf("leaves document %s unreadable", o.target)
	}

	if docs[0].apiVersion != doc.apiVersion || docs[0].id() != doc.id() {
		return document{}, fmt.Errorf("changes the apiVersion, kind or name of document %s; delete that document, and add "+
			"another one", o.target)
	}

	return docs[0], nil
}

// ValuePatch makes a patch that sets one field to a text: the field that a JSON pointer names, in the main document or
// in the one of a kind and name. Line breaks at the end of the text are no part of the value. The error quotes the
// pointer only.
func ValuePatch(kind, name, pointer, value string) (string, error) {
	path, found := strings.CutPrefix(pointer, "/")
	if !found {
		return "", errors.New("a JSON pointer begins with a slash")
	}

	root := newMapping()

	if kind != "" {
		for _, field := range [][2]string{{"apiVersion", documentsVersion}, {"kind", kind}, {"name", name}} {
			if field[1] != "" {
				root.Content = append(root.Content, stringNode(field[0]), stringNode(field[1]))
			}
		}
	}

	var keys []string

	for _, key := range strings.Split(path, "/") {
		keys = append(keys, unescapePointer(key))
	}

	if child(root, keys[0]) != nil {
		return "", fmt.Errorf("%s is what names the document", pointer)
	}

	putAt(root, keys, stringNode(strings.TrimRight(value, "\r\n")))

	raw, err := yaml.Marshal(root)
	if err != nil {
		return "", errors.New("the value cannot be written as YAML")
	}

	return string(raw), nil
}
