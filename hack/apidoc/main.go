// Command apidoc writes the API reference from the CRDs: every field with its type, whether it is required, its default
// and its description.
package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: apidoc CRD-FOLDER OUTPUT")
		os.Exit(2)
	}

	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func run(folder, output string) error {
	files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil {
		return err
	}

	var out bytes.Buffer

	fmt.Fprint(&out, "# The objects, field by field\n\nGenerated from the types by `make generate`.\n")

	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}

		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.Unmarshal(data, crd); err != nil {
			return fmt.Errorf("reading %s: %w", file, err)
		}

		if crd.Kind == "CustomResourceDefinition" {
			writeKind(&out, crd)
		}
	}

	writeAnnotations(&out)

	return os.WriteFile(output, out.Bytes(), 0o600)
}

// writeAnnotations lists the annotations on which the operator acts.
func writeAnnotations(out *bytes.Buffer) {
	fmt.Fprint(out, "\n## Annotations\n\nThe API server refuses another annotation that begins with `",
		v1alpha1.AnnotationPrefix, "`, and one on a kind of object on which it has no effect (`config/admission`).\n",
		"\n| annotation | on | value | effect |\n|---|---|---|---|\n")

	writeTable(out, v1alpha1.Annotations())

	fmt.Fprintf(out, "\nNo API server checks these: a misspelt one has no effect, and no message says so.\n%s",
		"\n| annotation | on | value | effect |\n|---|---|---|---|\n")
	writeTable(out, vitistackv1alpha1.Annotations())
	writeTable(out, v1alpha1.ManagedAnnotations())
}

func writeTable(out *bytes.Buffer, annotations []v1alpha1.Annotation) {
	for _, a := range annotations {
		effect := a.Effect
		if a.Once {
			effect += "; the operator removes it then"
		}

		fmt.Fprintf(out, "| `%s` | %s | %s | %s |\n", a.Name, strings.Join(a.Kinds, ", "), a.Value, effect)
	}
}

func writeKind(out *bytes.Buffer, crd *apiextensionsv1.CustomResourceDefinition) {
	version := crd.Spec.Versions[0]
	schema := version.Schema.OpenAPIV3Schema

	fmt.Fprintf(out, "\n## %s\n\n`%s/%s`. %s\n",
		crd.Spec.Names.Kind, crd.Spec.Group, version.Name, flat(schema.Description))
	fmt.Fprint(out, "\n| field | type | required | default | what |\n|---|---|---|---|---|\n")

	for _, part := range []string{"spec", "status"} {
		if p, ok := schema.Properties[part]; ok {
			writeFields(out, part, &p)
		}
	}
}

func writeFields(out *bytes.Buffer, path string, schema *apiextensionsv1.JSONSchemaProps) {
	for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
		p := schema.Properties[name]
		required, def := "", ""

		if slices.Contains(schema.Required, name) {
			required = "yes"
		}

		if p.Default != nil {
			def = "`" + string(p.Default.Raw) + "`"
		}

		field := path + "." + name
		fmt.Fprintf(out, "| `%s` | %s | %s | %s | %s |\n", field, typeOf(&p), required, def, flat(p.Description))

		// Conditions are the same everywhere.
		if name == "conditions" {
			continue
		}

		writeFields(out, field, &p)

		if p.Items != nil && p.Items.Schema != nil {
			writeFields(out, field+"[]", p.Items.Schema)
		}
	}
}

func typeOf(p *apiextensionsv1.JSONSchemaProps) string {
	switch {
	case len(p.Enum) > 0:
		values := make([]string, 0, len(p.Enum))
		for _, v := range p.Enum {
			values = append(values, strings.Trim(string(v.Raw), `"`))
		}

		return strings.Join(values, ", ")
	case p.Type == "array" && p.Items != nil && p.Items.Schema != nil:
		return "list of " + typeOf(p.Items.Schema)
	case p.XIntOrString:
		return "quantity"
	case p.AdditionalProperties != nil:
		return "map"
	}

	return p.Type
}

func flat(text string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "|", `\|`)
}
