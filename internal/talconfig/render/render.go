package render

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"

	docconfig "github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/config/container"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/config/types/network"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/config/validation"
	"github.com/siderolabs/talos/pkg/machinery/nethelpers"
	"go.yaml.in/yaml/v4"
	"golang.org/x/sync/errgroup"

	"github.com/talos-operator/talos-operator/internal/machineconfig"
	"github.com/talos-operator/talos-operator/internal/talconfig"
)

// Mode is what machines run on: the rules of a valid machine config differ.
type Mode string

// Modes, as talhelper and talosctl call them.
const (
	Metal     Mode = "metal"
	Cloud     Mode = "cloud"
	Container Mode = "container"
)

// String implements validation.RuntimeMode.
func (m Mode) String() string { return string(m) }

// RequiresInstall implements validation.RuntimeMode.
func (m Mode) RequiresInstall() bool { return m == Metal }

// InContainer implements validation.RuntimeMode.
func (m Mode) InContainer() bool { return m == Container }

// Options of a rendering.
type Options struct {
	// Secrets is the PKI of the cluster. It is only read.
	Secrets *secrets.Bundle
	// Mode that machine configs are validated for. Default: Metal.
	Mode Mode
	// Compat applies patches in the order of talhelper: group, node, and those of all nodes last. Without it the more
	// specific patch wins: all nodes, group, node.
	Compat bool
}

// File is the machine config of one node.
type File struct {
	// Name of the file, below the output folder.
	Name string
	// Hostname of the node.
	Hostname string
	// Content of the file. It has private keys.
	Content []byte
	// Warnings of the machinery library, which have no secrets.
	Warnings []string
}

// Nodes renders the machine configs of all nodes, in the order of the talconfig.yaml, on all processors. An error is of
// type Errors, names the node and the field, and has no secrets.
func Nodes(f *talconfig.Fleet, o Options) ([]File, error) {
	if o.Mode == "" {
		o.Mode = Metal
	}

	r, err := newRenderer(f, o)
	if err != nil {
		return nil, err
	}

	files, errs := make([]File, len(f.Nodes)), make(Errors, len(f.Nodes))

	var group errgroup.Group

	group.SetLimit(runtime.GOMAXPROCS(0))

	for i := range f.Nodes {
		group.Go(func() error {
			files[i], errs[i] = r.node(&f.Nodes[i])

			return nil
		})
	}

	_ = group.Wait()

	if errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil }); len(errs) > 0 {
		return nil, errs
	}

	return files, nil
}

// Errors are those of all nodes that could not be rendered.
type Errors []error

// Error implements error.
func (e Errors) Error() string { return errors.Join(e...).Error() }

// Unwrap returns the errors.
func (e Errors) Unwrap() []error { return e }

func (r *renderer) node(m *talconfig.Machine) (File, error) {
	file := File{Hostname: m.Hostname}

	name, err := r.fleet.Filename(m)
	if err != nil {
		return file, r.failure(m, err)
	}

	file.Name = name

	own := r.ownDocuments(m)

	if r.touchesOwn(m) {
		file.Content, file.Warnings, err = r.whole(m, own)
	} else {
		file.Content, file.Warnings, err = r.composed(m, own)
	}

	if err != nil {
		return file, r.failure(m, err)
	}

	return file, nil
}

func (r *renderer) failure(m *talconfig.Machine, err error) error {
	return fmt.Errorf("%s (%s): %w", m.Field, m.Hostname, err)
}

// ownDocuments are those that no other node has.
func (r *renderer) ownDocuments(m *talconfig.Machine) []docconfig.Document {
	if !r.fleet.HasDocuments() {
		return nil
	}

	hostname := network.NewHostnameConfigV1Alpha1()
	auto := nethelpers.AutoHostnameKindStable

	if !m.IgnoreHostname {
		auto, hostname.ConfigHostname = nethelpers.AutoHostnameKindOff, m.Hostname
	}

	hostname.ConfigAuto = &auto

	return append([]docconfig.Document{hostname}, m.Network...)
}

// composed appends the documents of the node to what it shares with others.
func (r *renderer) composed(m *talconfig.Machine, own []docconfig.Document) ([]byte, []string, error) {
	s, err := r.sharedBy(m)
	if err != nil {
		return nil, nil, err
	}

	if _, err := container.New(append(slices.Clone(s.docs), own...)...); err != nil {
		return nil, nil, describe(err)
	}

	out := bytes.NewBuffer(make([]byte, 0, len(s.raw)+256*len(own)))
	out.Write(s.raw)

	warnings := slices.Clone(s.warnings)

	for _, doc := range own {
		more, err := r.validateOwn(doc, s.main)
		if err != nil {
			return nil, nil, err
		}

		warnings = append(warnings, more...)

		if err := encodeInto(out, doc); err != nil {
			return nil, nil, err
		}
	}

	return out.Bytes(), warnings, nil
}

// validateOwn validates a document that no other node has. Of selectors of links that differ in one text only, the
// first is parsed.
func (r *renderer) validateOwn(doc docconfig.Document, main *v1alpha1.Config) ([]string, error) {
	key, hasKey := selectorKey(doc)

	if hasKey {
		if _, known := r.selectors.Load(key); known {
			return nil, nil
		}
	}

	warnings, err := validateDocument(doc, main, r.options.Mode)
	if err == nil && hasKey && len(warnings) == 0 {
		r.selectors.Store(key, true)
	}

	return warnings, err
}

// selectorKey is the expression of an alias without its one text. It is for the aliases alone that have nothing else to
// validate: a plain name, and no escaped text.
func selectorKey(doc docconfig.Document) (string, bool) {
	alias, ok := doc.(*network.LinkAliasConfigV1Alpha1)
	if !ok || alias.MetaName == "" || strings.Contains(alias.MetaName, "%") {
		return "", false
	}

	text, err := alias.Selector.Match.MarshalText()
	if err != nil || bytes.Count(text, []byte(`"`)) != 2 || bytes.ContainsRune(text, '\\') {
		return "", false
	}

	before, rest, _ := strings.Cut(string(text), `"`)
	_, after, _ := strings.Cut(rest, `"`)

	return before + `"` + after, true
}

func validateDocument(doc docconfig.Document, main *v1alpha1.Config, mode Mode) (warnings []string, err error) {
	if v, ok := doc.(docconfig.Validator); ok {
		if warnings, err = v.Validate(mode, validation.WithLocal()); err != nil {
			return nil, fmt.Errorf("%s: %w", doc.Kind(), describe(err))
		}
	}

	if v, ok := doc.(container.V1Alpha1ConflictValidator); ok {
		if err := v.V1Alpha1ConflictValidate(main); err != nil {
			return nil, fmt.Errorf("%s: %w", doc.Kind(), describe(err))
		}
	}

	return warnings, nil
}

// whole renders a node whose patches change documents of its own.
func (r *renderer) whole(m *talconfig.Machine, own []docconfig.Document) ([]byte, []string, error) {
	docs, err := r.sharedDocuments(m)
	if err != nil {
		return nil, nil, err
	}

	s, err := r.finish(m, append(docs, own...))
	if err != nil {
		return nil, nil, err
	}

	return s.raw, s.warnings, nil
}

// encodeInto writes a document as talhelper does, indented by two.
func encodeInto(out *bytes.Buffer, doc docconfig.Document) error {
	if out.Len() > 0 {
		out.WriteString("---\n")
	}

	enc := yaml.NewEncoder(out)
	enc.SetIndent(2)

	if err := enc.Encode(doc); err != nil {
		return fmt.Errorf("encoding %s: %w", doc.Kind(), describe(err))
	}

	return enc.Close()
}

// describe turns an error of a library into a sentence without values.
func describe(err error) error { return errors.New(machineconfig.Describe(err)) }
