package machineconfig

import (
	"maps"
	"slices"

	"go.yaml.in/yaml/v4"

	"github.com/talos-operator/talos-operator/internal/machineconfig/keyref"
)

// edit changes one field of the main document: what is there goes, or the items in drop do, and then set is merged in.
type edit struct {
	path   []string
	remove bool
	drop   []*yaml.Node
	set    *yaml.Node
}

// field is the path as differences show it.
func (e edit) field() string {
	out := ""
	for _, key := range e.path {
		out = keyref.JoinPath(out, key)
	}

	return out
}

// covers is true for the field of the edit and everything below it.
func (e edit) covers(other edit) bool {
	return len(e.path) <= len(other.path) && slices.Equal(e.path, other.path[:len(e.path)])
}

// patchText is the edits as one strategic merge patch: first what goes, then what comes, because a mapping cannot say
// both about one key.
func patchText(edits []edit) (string, error) {
	gone, added := newMapping(), newMapping()

	for _, e := range edits {
		switch {
		case e.remove:
			putAt(gone, e.path, deletion())
		case len(e.drop) > 0:
			putAt(gone, e.path, &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq", Content: e.drop})
		}

		if e.set != nil {
			putAt(added, e.path, e.set)
		}
	}

	var docs []document

	for _, node := range []*yaml.Node{gone, added} {
		if len(node.Content) > 0 {
			docs = append(docs, document{node: node})
		}
	}

	raw, err := joinDocuments(docs)

	return string(raw), err
}

func newMapping(content ...*yaml.Node) *yaml.Node {
	return &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Content: content}
}

func deletion() *yaml.Node { return newMapping(stringNode(patchKey), stringNode(patchDelete)) }

func putAt(node *yaml.Node, path []string, value *yaml.Node) {
	last := len(path) - 1

	for _, key := range path[:last] {
		next := child(node, key)
		if next == nil {
			next = newMapping()
			node.Content = append(node.Content, stringNode(key), next)
		}

		node = next
	}

	node.Content = append(node.Content, stringNode(path[last]), value)
}

func valueAt(node *yaml.Node, path []string) *yaml.Node {
	for _, key := range path {
		node = child(node, key)
	}

	return node
}

// editsBetween lists the smallest edits, in the order of their fields, that should make want of have.
func editsBetween(have, want *yaml.Node) []edit {
	var out []edit

	collectEdits(&out, nil, have, want)

	return out
}

func collectEdits(out *[]edit, path []string, have, want *yaml.Node) {
	if sameMeaning(have, want) {
		return
	}

	if have == nil || want == nil || have.Kind != yaml.MappingNode || want.Kind != yaml.MappingNode {
		*out = append(*out, smallest(path, have, want))

		return
	}

	for _, key := range slices.Sorted(maps.Keys(keySet(have, want))) {
		collectEdits(out, append(slices.Clone(path), key), child(have, key), child(want, key))
	}
}

func keySet(nodes ...*yaml.Node) map[string]bool {
	out := map[string]bool{}

	for _, node := range nodes {
		for i := 0; i+1 < len(node.Content); i += 2 {
			out[node.Content[i].Value] = true
		}
	}

	return out
}

// sameMeaning compares as Diff does: empty mappings, lists and nulls do not count.
func sameMeaning(a, b *yaml.Node) bool {
	before, errA := meaningOf(a)
	after, errB := meaningOf(b)

	return errA == nil && errB == nil && maps.Equal(before, after)
}

func meaningOf(node *yaml.Node) (view, error) {
	if node == nil {
		return view{}, nil
	}

	return flatten(node)
}

// isEmpty is true for what does not count.
func isEmpty(node *yaml.Node) bool { return sameMeaning(node, nil) }

// smallest is the edit that is tried first. It may fail: what merging does depends on the type of the field.
func smallest(path []string, have, want *yaml.Node) edit {
	switch {
	case isEmpty(want):
		return edit{path: path, remove: true}
	case isEmpty(have):
		return edit{path: path, set: want}
	case have.Kind != want.Kind:
		return replacing(path, want)
	case have.Kind != yaml.SequenceNode:
		return edit{path: path, set: want}
	}

	// Lists are merged by appending.
	if more, ok := appended(have.Content, want.Content); ok {
		return edit{path: path, set: &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq", Content: more}}
	}

	if gone, ok := dropped(have.Content, want.Content); ok {
		return edit{path: path, drop: gone}
	}

	return replacing(path, want)
}

func replacing(path []string, want *yaml.Node) edit {
	if isEmpty(want) {
		return edit{path: path, remove: true}
	}

	return edit{path: path, remove: true, set: want}
}

func appended(have, want []*yaml.Node) ([]*yaml.Node, bool) {
	if len(want) <= len(have) || !slices.EqualFunc(have, want[:len(have)], sameMeaning) {
		return nil, false
	}

	return want[len(have):], true
}

// dropped writes what is in have only as the deletions of list items that Talos knows: by the first field of the item.
func dropped(have, want []*yaml.Node) ([]*yaml.Node, bool) {
	var gone []*yaml.Node

	kept := 0

	for _, item := range have {
		if kept < len(want) && sameMeaning(item, want[kept]) {
			kept++

			continue
		}

		if item.Kind != yaml.MappingNode || len(item.Content) == 0 || item.Content[1].Kind != yaml.ScalarNode {
			return nil, false
		}

		selector := deletion()
		selector.Content = append([]*yaml.Node{item.Content[0], item.Content[1]}, selector.Content...)
		gone = append(gone, selector)
	}

	return gone, kept == len(want)
}
