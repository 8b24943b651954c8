package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// rules are the messages of the API server's rules in CEL: of each kind, with the first field that has the rule, and of
// each admission policy.
func rules(module string) ([]section, error) {
	var out []section

	err := eachManifest(filepath.Join(module, "config/crd"), func(document []byte) error {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.Unmarshal(document, crd); err != nil || crd.Kind != "CustomResourceDefinition" {
			return err
		}

		for _, version := range crd.Spec.Versions {
			k := kindRules{told: map[string]bool{}}
			k.collect("", version.Schema.OpenAPIV3Schema)
			out = append(out, section{name: crd.Spec.Names.Kind, texts: k.texts})
		}

		return nil
	})
	if err != nil {
		return nil, err
	}

	err = eachManifest(filepath.Join(module, "config/admission"), func(document []byte) error {
		policy := &admissionv1.ValidatingAdmissionPolicy{}
		if err := yaml.Unmarshal(document, policy); err != nil || policy.Kind != "ValidatingAdmissionPolicy" {
			return err
		}

		s := section{name: policy.Kind + " " + policy.Name}

		for _, v := range policy.Spec.Validations {
			for _, text := range []string{v.Message, v.MessageExpression} {
				s.texts = appendText(s.texts, strings.Join(strings.Fields(text), " "))
			}
		}

		out = append(out, s)

		return nil
	})

	return out, err
}

// eachManifest reads the YAML documents of a folder, in the order of its files.
func eachManifest(folder string, do func(document []byte) error) error {
	files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil {
		return err
	}

	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}

		for document := range strings.SplitSeq(string(data), "\n---\n") {
			if err := do([]byte(document)); err != nil {
				return fmt.Errorf("reading %s: %w", file, err)
			}
		}
	}

	return nil
}

// kindRules are the messages of one kind, each once.
type kindRules struct {
	told  map[string]bool
	texts []string
}

// collect appends the messages of a field and of those below it, in the order of their names.
func (k *kindRules) collect(path string, schema *apiextensionsv1.JSONSchemaProps) {
	for _, rule := range schema.XValidations {
		text := rule.Message
		if text == "" {
			text = rule.MessageExpression
		}

		if text != "" && !k.told[text] {
			k.told[text] = true
			k.texts = append(k.texts, strings.TrimPrefix(path+": "+text, ": "))
		}
	}

	for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
		property := schema.Properties[name]
		k.collect(strings.TrimPrefix(path+"."+name, "."), &property)
	}

	if schema.Items != nil && schema.Items.Schema != nil {
		k.collect(path+"[]", schema.Items.Schema)
	}

	if schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil {
		k.collect(path+"{}", schema.AdditionalProperties.Schema)
	}
}
