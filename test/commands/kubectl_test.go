package commands_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/test/commands"
)

// foreign are the resources of Kubernetes and Talos that the documents name.
var foreign = []string{
	"all", "apiservices", "cm", "configmap", "configmaps", "crd", "clusterrolebinding", "daemonset", "deployment", "deployments",
	"events", "networkpolicies", "job", "jobs", "lease", "leases", "namespace", "node", "nodes", "pdb", "pod", "pods", "role", "secret", "secrets",
	"serviceaccount", "validatingadmissionpolicy",
}

// verbs of kubectl with how many of their first arguments are words and no resources; -1 if none is checked.
var verbs = map[string]int{
	"annotate": 0, "apply": -1, "config": -1, "create": -1, "delete": 0, "describe": 0, "edit": 0, "events": -1, "explain": -1,
	"get": 0, "label": 0, "logs": -1, "patch": 0, "replace": -1, "rollout": 1, "set": -1, "wait": 0, "debug": -1, "scale": 0, "top": -1,
	"uncordon": -1,
}

// kubectl is what a command of kubectl says.
type kubectl struct {
	verb                           string
	args                           []string
	output, condition, patch, kind string
	files                          []string
}

func readKubectl(args []string) (kubectl, error) {
	var k kubectl

	flags := pflag.NewFlagSet("kubectl", pflag.ContinueOnError)
	flags.StringVarP(&k.output, "output", "o", "", "")
	flags.StringVar(&k.condition, "for", "", "")
	flags.StringVarP(&k.patch, "patch", "p", "", "")
	flags.StringVar(&k.kind, "type", "", "")
	flags.StringArrayVarP(&k.files, "filename", "f", nil, "")
	flags.StringArrayP("kustomize", "k", nil, "")
	flags.BoolP("watch", "w", false, "")
	flags.BoolP("all-namespaces", "A", false, "")
	flags.StringP("namespace", "n", "", "")
	flags.StringP("selector", "l", "", "")
	flags.StringP("label-columns", "L", "", "")

	for _, name := range []string{
		"kubeconfig", "context", "timeout", "from-literal", "from-file", "clusterrole", "serviceaccount", "field-selector", "sort-by",
		"subresource", "tail", "since", "replicas", "raw",
	} {
		flags.String(name, "", "")
	}

	for _, name := range []string{"server-side", "overwrite", "ignore-not-found", "all", "show-managed-fields", "force-conflicts", "prefix"} {
		flags.Bool(name, false, "")
	}

	if err := flags.Parse(args); err != nil {
		return k, err
	}

	if flags.NArg() == 0 {
		return k, errors.New("there is no verb")
	}

	k.verb, k.args = flags.Arg(0), flags.Args()[1:]

	return k, nil
}

// resources are the schemas of the CRDs by each of their names.
type resources map[string]*apiextensionsv1.CustomResourceDefinition

func readCRDs(t *testing.T) resources {
	t.Helper()

	paths, err := filepath.Glob(module + "/config/crd/*.yaml")
	if err != nil {
		t.Fatal(err)
	}

	out := resources{}

	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}

		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.Unmarshal(text, crd); err != nil {
			t.Fatal(err)
		}

		names := crd.Spec.Names
		for _, name := range append(names.ShortNames, names.Plural, names.Singular) {
			out[name] = crd
		}
	}

	return out
}

// TestKubectl: commands of kubectl name resources, fields, conditions and annotations that exist.
func TestKubectl(t *testing.T) {
	crds := readCRDs(t)
	checked := 0

	for _, c := range all(t) {
		if c.Program != "kubectl" && c.Program != "inside" {
			continue
		}

		checked++

		if err := checkKubectl(crds, c); err != nil {
			t.Errorf("%s: %v", c, err)
		}
	}

	if checked < 80 {
		t.Errorf("only %d commands were found", checked)
	}
}

func checkKubectl(crds resources, c commands.Command) error {
	if slices.Contains(c.Args, commands.Unknown) {
		// A function passes its arguments on; the commands that call it are checked.
		return nil
	}

	k, err := readKubectl(c.Args)
	if err != nil {
		return err
	}

	words, ok := verbs[k.verb]
	if !ok {
		return fmt.Errorf("there is no verb %s", k.verb)
	}

	for _, file := range k.files {
		if strings.HasPrefix(file, "examples/") || strings.HasPrefix(file, "config/") {
			if _, err := os.Stat(filepath.Join(module, file)); err != nil {
				return err
			}
		}
	}

	if words < 0 || len(k.args) <= words || k.args[words] == "…" {
		return nil
	}

	for _, name := range namesOf(k.args[words:]) {
		if slices.Contains(foreign, name) {
			continue
		}

		crd, ok := crds[strings.TrimSuffix(name, ".talos-operator.io")]
		if !ok {
			return fmt.Errorf("there is no resource %s", name)
		}

		if err := k.check(crd); err != nil {
			return err
		}
	}

	return nil
}

// namesOf are the names of resources in the arguments: a list, or pairs of a resource and a name.
func namesOf(args []string) []string {
	var out []string

	for i, arg := range args {
		resource, _, pair := strings.Cut(arg, "/")
		if i == 0 || pair && strings.Contains(args[0], "/") && !strings.Contains(arg, "=") {
			out = append(out, strings.Split(resource, ",")...)
		}
	}

	return out
}

func (k kubectl) check(crd *apiextensionsv1.CustomResourceDefinition) error {
	schema := crd.Spec.Versions[0].Schema.OpenAPIV3Schema

	for _, path := range pathsOf(k.output) {
		if err := hasField(schema, path); err != nil {
			return err
		}
	}

	if condition, ok := strings.CutPrefix(k.condition, "condition="); ok {
		name, _, _ := strings.Cut(condition, "=")
		if !slices.Contains(conditions(crd.Spec.Names.Kind), name) {
			return fmt.Errorf("a %s has no condition %s", crd.Spec.Names.Kind, name)
		}
	}

	if k.verb == "annotate" {
		return checkAnnotations(crd.Spec.Names.Kind, k.args)
	}

	if k.patch != "" {
		return checkPatch(schema, k.kind, k.patch)
	}

	return nil
}

func checkAnnotations(kind string, args []string) error {
	for _, arg := range args {
		name, _, _ := strings.Cut(strings.TrimSuffix(arg, "-"), "=")
		if !strings.HasPrefix(name, v1alpha1.AnnotationPrefix) {
			continue
		}

		if !slices.ContainsFunc(v1alpha1.Annotations(), func(a v1alpha1.Annotation) bool {
			return a.Name == name && slices.Contains(a.Kinds, kind)
		}) {
			return fmt.Errorf("a %s has no annotation %s", kind, name)
		}
	}

	return nil
}

func checkPatch(schema *apiextensionsv1.JSONSchemaProps, kind, patch string) error {
	if kind != "json" {
		var value any
		if err := json.Unmarshal([]byte(patch), &value); err != nil {
			return fmt.Errorf("reading the patch: %w", err)
		}

		return hasValue(schema, "", value)
	}

	var steps []struct {
		Op, Path string
		Value    any
	}

	if err := json.Unmarshal([]byte(patch), &steps); err != nil {
		return fmt.Errorf("reading the patch: %w", err)
	}

	for _, s := range steps {
		path := strings.ReplaceAll(s.Path, "/", ".")
		if err := hasField(schema, path); err != nil {
			return err
		}

		if err := hasValue(at(schema, path), path, s.Value); err != nil {
			return err
		}
	}

	return nil
}

// hasValue fails where a schema does not have a field of a value.
func hasValue(schema *apiextensionsv1.JSONSchemaProps, path string, value any) error {
	object, ok := value.(map[string]any)
	if !ok || free(schema) {
		return nil
	}

	for name, v := range object {
		if path == "" && name == "metadata" {
			continue
		}

		p, ok := schema.Properties[name]
		if !ok {
			return fmt.Errorf("there is no field %s.%s", path, name)
		}

		if err := hasValue(&p, path+"."+name, v); err != nil {
			return err
		}
	}

	return nil
}

// free is an object with any fields.
func free(schema *apiextensionsv1.JSONSchemaProps) bool {
	return schema.AdditionalProperties != nil || schema.XPreserveUnknownFields != nil
}

func hasField(schema *apiextensionsv1.JSONSchemaProps, path string) error {
	if at(schema, path) == nil {
		return fmt.Errorf("there is no field %s", path)
	}

	return nil
}

// at is the schema of a field; nil if there is none.
func at(schema *apiextensionsv1.JSONSchemaProps, path string) *apiextensionsv1.JSONSchemaProps {
	for step := range strings.SplitSeq(strings.Trim(path, "."), ".") {
		if schema.Type == "array" {
			schema = schema.Items.Schema

			if _, err := fmt.Sscanf(step, "%d", new(int)); err == nil || step == "-" {
				continue
			}
		}

		if step == "metadata" || step == commands.Unknown || free(schema) {
			return &apiextensionsv1.JSONSchemaProps{}
		}

		p, ok := schema.Properties[step]
		if !ok {
			return nil
		}

		schema = &p
	}

	return schema
}

var (
	expression = regexp.MustCompile(`\{[^{}]*\}`)
	field      = regexp.MustCompile(`^(range )?@?(\.[\w.]+)`)
	index      = regexp.MustCompile(`\[[^\]]*\]`)
	column     = regexp.MustCompile(`:(\.[^,]+)`)
)

// pathsOf are the fields that a format of the output shows.
func pathsOf(output string) []string {
	var out []string

	if columns, ok := strings.CutPrefix(output, "custom-columns="); ok {
		for _, m := range column.FindAllStringSubmatch(columns, -1) {
			out = append(out, index.ReplaceAllString(m[1], ""))
		}
	}

	path, ok := strings.CutPrefix(output, "jsonpath=")
	if !ok {
		return out
	}

	inside := ""

	for _, e := range expression.FindAllString(path, -1) {
		m := field.FindStringSubmatch(index.ReplaceAllString(strings.Trim(e, "{}"), ""))

		switch {
		case e == "{end}":
			inside = ""
		case m == nil:
		case m[1] != "":
			inside = m[2]
		default:
			out = append(out, inside+m[2])
		}
	}

	return out
}

// conditions are those that the reference has for a kind.
func conditions(kind string) []string {
	text, err := os.ReadFile(module + "/docs/conditions.md")
	if err != nil {
		return nil
	}

	m := regexp.MustCompile(`(?m)^\| ` + kind + ` \| (.*) \|$`).FindStringSubmatch(string(text))
	if m == nil {
		return nil
	}

	return strings.Split(strings.ReplaceAll(m[1], "`", ""), ", ")
}
