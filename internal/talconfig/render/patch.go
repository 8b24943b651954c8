package render

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/template"

	"github.com/Masterminds/sprig/v3"
	jsonpatch "github.com/evanphx/json-patch"
	docconfig "github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"

	"github.com/talos-operator/talos-operator/internal/machineconfig"
	"github.com/talos-operator/talos-operator/internal/talconfig"
)

// order returns the patches of a node in the order in which they apply.
func (r *renderer) order(m *talconfig.Machine) []talconfig.Patch {
	if r.options.Compat {
		return slices.Concat(m.GroupPatches, m.NodePatches, r.fleet.Patches)
	}

	return slices.Concat(r.fleet.Patches, m.GroupPatches, m.NodePatches)
}

// patch applies patches one by one, so that an error names its patch.
func (r *renderer) patch(m *talconfig.Machine, docs []docconfig.Document) ([]docconfig.Document, error) {
	for _, p := range r.order(m) {
		text, err := r.execute(p, docs)
		if err == nil {
			docs, err = apply(text, docs)
		}

		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.Field, err)
		}
	}

	return docs, nil
}

// apply applies one patch. An RFC 6902 patch is one of the main document, whatever documents there are beside it: its
// paths begin with /machine or /cluster.
func apply(text string, docs []docconfig.Document) (out []docconfig.Document, err error) {
	// The libraries panic on some malformed input.
	defer func() {
		if recover() != nil {
			out, err = nil, errors.New("the patch does not fit the machine config")
		}
	}()

	if err := check(text); err != nil {
		return nil, err
	}

	patch, err := configpatcher.LoadPatch([]byte(text))
	if err != nil {
		return nil, describe(err)
	}

	beside := docs[:0:0]

	if _, isJSON := patch.(jsonpatch.Patch); isJSON {
		at := slices.IndexFunc(docs, func(doc docconfig.Document) bool { return doc.Kind() == v1alpha1.Version })
		beside = append(slices.Clone(docs[:at]), docs[at+1:]...)
		docs = docs[at : at+1]
	}

	before, err := documentsOf(docs)
	if err != nil {
		return nil, err
	}

	patched, err := configpatcher.Apply(configpatcher.WithConfig(before), []configpatcher.Patch{patch})
	if err != nil {
		return nil, fmt.Errorf("does not apply: %w", describe(err))
	}

	cfg, err := patched.Config()
	if err != nil {
		return nil, fmt.Errorf("the machine config does not parse after it: %w", describe(err))
	}

	switch field, err := machineconfig.ChangedPKI(before, cfg); {
	case err != nil:
		return nil, err
	case field != "":
		return nil, fmt.Errorf("changes %s, which is part of the PKI: the machine would belong to another cluster than "+
			"talsecret.yaml says, or not be reachable; remove it from the patch", field)
	}

	return append(cfg.Documents(), beside...), nil
}

// check says what is wrong with a patch by itself, without quoting it.
func check(text string) error {
	err := machineconfig.CheckPatches(machineconfig.Patches{Machine: []string{text}})

	var p *machineconfig.PatchError
	if errors.As(err, &p) {
		return errors.New(p.Problem)
	}

	return err
}

// execute executes a patch that is a template, with the main document as its data, and substitutes its variables.
func (r *renderer) execute(p talconfig.Patch, docs []docconfig.Document) (string, error) {
	if !p.Template {
		return p.Text, nil
	}

	for _, doc := range docs {
		if main, ok := doc.(*v1alpha1.Config); ok {
			text, err := executeTemplate(p.Text, main)
			if err != nil {
				return "", err
			}

			return r.fleet.Variables.Substitute(text)
		}
	}

	return "", errors.New("there is no main document to execute the template with")
}

// executeTemplate knows the functions of sprig that give the same result each time: without those that read the
// environment, or make keys.
func executeTemplate(text string, data *v1alpha1.Config) (string, error) {
	t, err := template.New("").Funcs(sprig.HermeticTxtFuncMap()).Option("missingkey=error").Parse(text)
	if err != nil {
		return "", errors.New("is not a Go template, or uses a function that is not known")
	}

	var out bytes.Buffer
	if err := t.Execute(&out, data); err != nil {
		return "", errors.New("the template names a field that the machine config does not have")
	}

	return out.String(), nil
}

// executeMetadata executes the templates in labels and annotations.
func executeMetadata(m *talconfig.Machine, doc *v1alpha1.Config) error {
	for _, values := range []struct {
		field string
		of    map[string]string
	}{
		{"nodeLabels", doc.MachineConfig.MachineNodeLabels}, {"nodeAnnotations", doc.MachineConfig.MachineNodeAnnotations},
	} {
		for key, value := range values.of {
			if !strings.Contains(value, "{{") {
				continue
			}

			text, err := executeTemplate(value, doc)
			if err != nil {
				return fmt.Errorf("%s.%s.%s: %w", m.Field, values.field, key, err)
			}

			values.of[key] = text
		}
	}

	return nil
}
