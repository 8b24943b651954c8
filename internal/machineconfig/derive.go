package machineconfig

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"go.yaml.in/yaml/v4"
)

// UnpatchableError names the fields that no patch can give the desired value: those that the operator owns, and those
// of a newer Talos release than the machinery library knows.
type UnpatchableError struct {
	// Fields as Change.Field names them, sorted.
	Fields []string
}

// Error implements error.
func (e *UnpatchableError) Error() string {
	return "no patch can change " + strings.Join(e.Fields, ", ")
}

// DerivePatches returns strategic merge patches, as few and as small as they get, which make the live config of a node
// of the one that the operator renders for it: applied in their order they give a config that Diff calls equal to live.
// That is checked before they are returned. They are for clusters that come from elsewhere and for edits by hand that
// a user wants to keep. If there is nothing to patch, there are no patches. Versions are fields like others here: put
// the rendered config through KeepImageTags first, so that no patch pins one.
//
// The patches hold values of the live config, and so they may hold secrets: they belong into a Secret. The error holds
// none. It is an *UnpatchableError where the live config has what patches cannot say.
func DerivePatches(rendered, live []byte) (patches []string, err error) {
	s := &derivation{now: rendered}

	if s.live, err = treesOf(live); err != nil {
		return nil, fmt.Errorf("reading the live config: %w", err)
	}

	if s.have, err = treesOf(rendered); err != nil {
		return nil, fmt.Errorf("reading the rendered config: %w", err)
	}

	s.dropDocuments()
	s.changeDocuments()
	s.addDocuments()

	if err := s.changeMain(); err != nil {
		return nil, err
	}

	if len(s.failed) == 0 {
		s.failed, err = misses(rendered, live, s.patches)
		if err != nil {
			return nil, err
		}
	}

	if len(s.failed) > 0 {
		slices.Sort(s.failed)

		return nil, &UnpatchableError{Fields: slices.Compact(s.failed)}
	}

	return s.patches, nil
}

// misses lists the fields that are not as in live when all patches are applied one after the other.
func misses(rendered, live []byte, patches []string) ([]string, error) {
	result := rendered

	for _, text := range patches {
		var err error
		if result, err = tryPatch(result, text); err != nil {
			return nil, err
		}
	}

	diff, err := Diff(result, live)

	return diff.Paths(), err
}

// derivation is the way from the rendered config to the live one.
type derivation struct {
	live map[string]tree
	// now is the config with the patches that were found, and have its documents.
	now     []byte
	have    map[string]tree
	patches []string
	failed  []string
}

// tree is a document as it stands, and as the library writes it where it can read it.
type tree struct {
	document

	typed *yaml.Node
}

func treesOf(data []byte) (map[string]tree, error) {
	docs, err := splitDocuments(data)
	if err != nil {
		return nil, fmt.Errorf("%s", describe(err)) // the cause may quote secrets
	}

	out := make(map[string]tree, len(docs))

	for _, doc := range docs {
		t := tree{document: doc}

		if _, cfg := typedView(doc); cfg != nil {
			raw, err := encode(cfg)
			if err != nil {
				return nil, err
			}

			if typed, err := splitDocuments(raw); err == nil && len(typed) == 1 {
				t.typed = typed[0].node
			}
		}

		out[doc.id()] = t
	}

	return out, nil
}

// best is what a patch is written from.
func (t tree) best() *yaml.Node {
	if t.typed != nil {
		return t.typed
	}

	return t.node
}

// edits compares as Diff does: typed if the library can read both.
func (t tree) edits(want tree) []edit {
	if t.typed != nil && want.typed != nil {
		return editsBetween(t.typed, want.typed)
	}

	return editsBetween(t.node, want.node)
}

func (t tree) named(e edit) string { return Change{Document: t.id(), Path: e.field()}.Field() }

// header is what every patch of the document begins with.
func (t tree) header() *yaml.Node {
	out := newMapping(stringNode("apiVersion"), stringNode(t.apiVersion), stringNode("kind"), stringNode(t.kind))
	if t.name != "" {
		out.Content = append(out.Content, stringNode("name"), stringNode(t.name))
	}

	return out
}

func (t tree) removal() document {
	node := t.header()
	node.Content = append(node.Content, stringNode(patchKey), stringNode(patchDelete))

	return document{node: node}
}

// tryPatch applies a patch as a render would. The guard holds here as there.
func tryPatch(config []byte, text string) ([]byte, error) {
	p := patch{level: "derived"}
	if err := p.parse(text); err != nil {
		return nil, p.failure(describe(err))
	}

	d, err := draftOf(config)
	if err != nil {
		return nil, err
	}

	want, err := guardOf(d.known)
	if err != nil {
		return nil, err
	}

	if err := d.apply(p); err != nil {
		return nil, err
	}

	have, err := guardOf(d.known)
	if err != nil {
		return nil, err
	}

	if field := want.firstDifference(have); field != "" {
		return nil, p.failure("changes " + field)
	}

	return d.bytes()
}

// draftOf takes a rendered config apart again.
func draftOf(config []byte) (*draft, error) {
	docs, err := splitDocuments(config)
	if err != nil {
		return nil, fmt.Errorf("reading the rendered config: %s", describe(err)) // the cause may quote secrets
	}

	d := &draft{}

	var known []document

	for _, doc := range docs {
		if doc.isKnown() {
			known = append(known, doc)
		} else {
			d.unknown = append(d.unknown, doc)
		}
	}

	raw, err := joinDocuments(known)
	if err != nil {
		return nil, err
	}

	cfg, err := configloader.NewFromBytes(raw)
	if err != nil {
		return nil, fmt.Errorf("reading the rendered config: %s", describe(err)) // the cause may quote secrets
	}

	d.known = cfg.Clone()

	return d, nil
}

// try keeps the patch if it brings the document to what live has, and changes no other one.
func (s *derivation) try(id string, docs ...document) bool {
	raw, err := joinDocuments(docs)
	if err != nil {
		return false
	}

	next, err := tryPatch(s.now, string(raw))
	if err != nil {
		return false
	}

	trees, err := treesOf(next)
	if err != nil {
		return false
	}

	have, exists := trees[id]
	want, wanted := s.live[id]

	if exists != wanted || exists && len(have.edits(want)) > 0 {
		return false
	}

	s.now, s.have, s.patches = next, trees, append(s.patches, string(raw))

	return true
}

// documentsOf are the names of all but the main one, in order.
func documentsOf(trees map[string]tree) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(trees)), func(id string) bool { return trees[id].isMain() })
}

func (s *derivation) dropDocuments() {
	for _, id := range documentsOf(s.have) {
		if _, stays := s.live[id]; !stays && !s.try(id, s.have[id].removal()) {
			s.failed = append(s.failed, id)
		}
	}
}

func (s *derivation) addDocuments() {
	for _, id := range documentsOf(s.live) {
		if _, exists := s.have[id]; !exists && !s.try(id, document{node: s.live[id].best()}) {
			s.failed = append(s.failed, id)
		}
	}
}

// changeDocuments writes a small patch, or the whole document anew where merging cannot say it.
func (s *derivation) changeDocuments() {
	for _, id := range documentsOf(s.have) {
		have, want := s.have[id], s.live[id]
		if want.node == nil {
			continue
		}

		edits := have.edits(want)
		if len(edits) == 0 {
			continue
		}

		small := have.header()
		for _, e := range edits {
			putAt(small, e.path, e.merged())
		}

		if !s.try(id, document{node: small}) && !s.try(id, have.removal(), document{node: want.best()}) {
			for _, e := range edits {
				s.failed = append(s.failed, have.named(e))
			}
		}
	}
}

// merged is the edit in one place, which cannot replace: try finds out.
func (e edit) merged() *yaml.Node {
	switch {
	case e.set != nil:
		return e.set
	case e.remove:
		return deletion()
	default:
		return &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq", Content: e.drop}
	}
}
