package machineconfig

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	docconfig "github.com/siderolabs/talos/pkg/machinery/config/config"

	"github.com/talos-operator/talos-operator/internal/machineconfig/keyref"
	"github.com/talos-operator/talos-operator/internal/machineconfig/netconfig"
	"github.com/talos-operator/talos-operator/internal/machineconfig/registry"
	"github.com/talos-operator/talos-operator/internal/machineconfig/system"
	"github.com/talos-operator/talos-operator/internal/machineconfig/volume"
)

// applyHidden applies a secret patch and records which fields it sets.
func (d *draft) applyHidden(p patch) error {
	before, err := d.bytes()
	if err != nil {
		return err
	}

	if err := d.apply(p); err != nil {
		return err
	}

	after, err := d.bytes()
	if err != nil {
		return err
	}

	set, err := Diff(before, after)
	if err != nil {
		return p.failure(describe(err))
	}

	for _, c := range set.Changes {
		if isImage(c) {
			return p.refused(fmt.Sprintf("sets %s: status and plans show images, so none can come from a Secret; set it in "+
				"the spec, and the credentials of the registry in the patch", c.Path))
		}

		d.hidden = append(d.hidden, listItem.ReplaceAllString(c.Field(), ""))
	}

	slices.Sort(d.hidden)
	d.hidden = slices.Compact(d.hidden)

	return nil
}

// refs lists the fields that take their values from other objects.
func (in Input) refs() []keyref.Ref {
	return slices.Concat(
		netconfig.Secrets(&in.Machine), registry.Secrets(in.Registries), system.Refs(in.System), volume.Refs(in.Volumes),
	)
}

// hiddenValues lists what Secrets hold for the fields that name keys.
func (in Input) hiddenValues() []string {
	var out []string

	for _, ref := range in.refs() {
		if !ref.IsOpen() {
			out = append(out, in.Values[ref.Field])
		}
	}

	return out
}

// hiddenOf lists the fields of a config that Secrets set, sorted. A field is in its document, or in the main one where
// there is no such document. Volumes may be in both: before Talos 1.11, the size of one is in its document, and its
// passphrase is not. So the document does not tell which of them has the value, and neither is shown.
func hiddenOf(in Input, d *draft) []string {
	out := slices.Clone(d.hidden)

	for _, s := range in.refs() {
		if s.IsOpen() {
			continue
		}

		holds := func(doc docconfig.Document) bool { return documentID(doc) == s.Document }
		has := slices.ContainsFunc(d.known.Documents(), holds)

		if has {
			out = append(out, Change{Document: s.Document, Path: s.Path}.Field())
		}

		if s.Legacy != "" && (!has || strings.HasPrefix(s.Legacy, "machine.systemDiskEncryption.")) {
			out = append(out, Change{Path: s.Legacy}.Field())
		}
	}

	slices.Sort(out)

	return slices.Compact(out)
}

// listItem is an item of a list and what is below it. Another patch may move items, so the whole list is hidden.
var listItem = regexp.MustCompile(`\[\d+\].*$`)

func isImage(c Change) bool {
	return c.Document == "" && slices.ContainsFunc(imageFields, func(path []string) bool {
		return c.Path == strings.Join(path, ".")
	})
}

// Hide replaces the values of the given fields, and of all below them. Fields are written as Change.Field writes them.
func (d *Difference) Hide(fields []string) { hide(d.Changes, fields) }

func hide(changes []Change, fields []string) {
	for i := range changes {
		c := &changes[i]
		hide(c.Content, fields)

		// A whole document has no value of its own: it was added or removed.
		if c.Path == "" || !slices.ContainsFunc(fields, func(field string) bool { return covers(field, c.Field()) }) {
			continue
		}

		if c.Old != "" {
			c.Old = Redacted
		}

		if c.New != "" {
			c.New = Redacted
		}
	}
}

// covers is true for the field itself, everything below it, and the fields of a document.
func covers(field, other string) bool {
	return isUnder(other, field) || strings.HasPrefix(other, field+": ")
}
