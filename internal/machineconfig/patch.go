package machineconfig

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"
	"go.yaml.in/yaml/v4"
)

// patch is one parsed patch. Either json is set, or merge and unknown in any combination.
type patch struct {
	level string
	index int
	// source is where the patch was read from; empty for an inline one.
	source string
	// secret: no error may quote the patch.
	secret bool
	// merge is the part that the machinery library knows how to merge.
	merge configpatcher.Patch
	// unknown are documents of kinds that the library does not know.
	unknown []document
	json    *operations
}

func (p patch) name() string { return p.refused("").Patch() }

// refused is an error with a problem that quotes neither the patch nor what it made of the config.
func (p patch) refused(problem string) *PatchError {
	return &PatchError{Level: p.level, Index: p.index, Source: p.source, Problem: problem}
}

// failure is an error with a problem that may name fields of the patch. Those of a Secret are not told from its values:
// a missing blank makes one of the other.
func (p patch) failure(problem string) *PatchError {
	if p.secret {
		problem = "is no valid patch, or does not fit this config; " + hiddenReason
	}

	return p.refused(problem)
}

const hiddenReason = "the reason is not shown, because it may quote the Secret; talos-operator config render MACHINE " +
	"--show-secrets prints it"

// unlessNil is failure for an error that quotes the config.
func (p patch) unlessNil(err error) error {
	if err == nil {
		return nil
	}

	return p.failure(describe(err))
}

// CheckPatches parses patches without applying them. The error is a *PatchError.
func CheckPatches(p Patches) error {
	_, err := parsePatches(p)

	return err
}

func parsePatches(in Patches) ([]patch, error) {
	var out []patch

	add := func(p patch, text string) error {
		if err := p.parse(text); err != nil {
			return p.failure(describe(err))
		}

		out = append(out, p)

		return nil
	}

	for _, l := range in.levels() {
		for i, text := range l.inline {
			if err := add(patch{level: l.name, index: i}, text); err != nil {
				return nil, err
			}
		}

		for i, from := range l.from {
			p := patch{level: l.name, index: i, source: from.Source, secret: from.Secret}
			if err := add(p, from.Text); err != nil {
				return nil, err
			}
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
		p.json, err = parseList(text)

		return err
	}

	docs, err := splitDocuments([]byte(text))
	if err != nil {
		return err
	}

	if len(docs) == 0 {
		return errors.New("the patch is empty")
	}

	if slices.ContainsFunc(docs, document.hasOperations) {
		if len(docs) > 1 {
			return errors.New("operations of RFC 6902 need a patch of their own, which has one document")
		}

		p.json, err = parseTargeted(text, docs[0])

		return err
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
	// hidden are the fields that secret patches have set.
	hidden []string
}

func (d *draft) apply(p patch) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = p.failure("the patch does not fit this config")
		}
	}()

	if p.json != nil {
		return d.applyOperations(p)
	}

	for _, doc := range p.unknown {
		if err := d.applyUnknown(doc); err != nil {
			return p.failure(describe(err))
		}
	}

	if p.merge == nil {
		return nil
	}

	out, err := configpatcher.Apply(configpatcher.WithConfig(d.known), []configpatcher.Patch{p.merge})
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
