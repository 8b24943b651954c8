package config_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/talos-operator/talos-operator/config"
)

// A kind of ours, and an object of it in which each field of the spec has a value.
type filled struct {
	crd    *apiextensionsv1.CustomResourceDefinition
	object map[string]any
	leaves []leaf
	// never are strings that a spec may not have.
	never []leaf
	// noise is what the API server refuses of the object: some of its fields exclude each other.
	noise []refusal
}

// neverSet are fields of Kubernetes' own types that a rule forbids: no object with them has all of its other fields.
var neverSet = regexp.MustCompile(`nodeTaints\[0\]\.timeAdded$`)

// leaf is a string in an object.
type leaf struct {
	path   []any // names of fields and keys, and indices of lists
	schema *apiextensionsv1.JSONSchemaProps
}

// String is the path as the API server writes it.
func (l leaf) String() string { return pathText(l.path) }

func pathText(path []any) string {
	text := ""

	for _, step := range path {
		switch step := step.(type) {
		case int:
			text += fmt.Sprintf("[%d]", step)
		default:
			text += fmt.Sprintf(".%s", step)
		}
	}

	return strings.TrimPrefix(text, ".")
}

// field is the path without indices, which is the same for each item of a list.
func (l leaf) field() string { return strings.ReplaceAll(l.String(), "[0]", "[]") }

// examples are values of strings. The first one that the schema of a field accepts is its value.
var examples = []string{
	"sample", "1m", "10.0.0.1", "10.0.0.0/16", "https://10.0.0.1:6443", "v1.13.9", "1", "0 0 * * *", "16Gi", "/dev/sda",
	"02:00:00:00:00:01", "pnduMqbUZ/sQyDW1o4kP6c1u1PoB2gRQu8KEV38guAM=", "2026-01-02T15:04:05Z", "2026-01-02",
	"age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p", "tcp://10.0.0.1:5044", "/dev/watchdog0", strings.Repeat("a", 64), strings.Repeat("a", 16),
	"00000000-0000-0000-0000-000000000000", "ed25519:" + strings.Repeat("a", 43) + "=",
}

// ours are the CRDs.
func ours(t *testing.T) []*apiextensionsv1.CustomResourceDefinition {
	t.Helper()

	files, err := config.Manifests(config.CRDs)
	if err != nil {
		t.Fatal(err)
	}

	var out []*apiextensionsv1.CustomResourceDefinition

	for _, name := range slices.Sorted(maps.Keys(files)) {
		if !strings.Contains(name, "_") {
			continue // that of kustomize
		}

		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(files[name], crd); err != nil || len(crd.Spec.Versions) != 1 {
			t.Fatalf("%s: %v, %d versions", name, err, len(crd.Spec.Versions))
		}

		out = append(out, crd)
	}

	return out
}

func fill(t *testing.T, c client.Client, crd *apiextensionsv1.CustomResourceDefinition, namespace string) *filled {
	t.Helper()

	f := &filled{crd: crd}
	version := crd.Spec.Versions[0]
	spec := version.Schema.OpenAPIV3Schema.Properties["spec"]
	f.object = map[string]any{
		"apiVersion": crd.Spec.Group + "/" + version.Name, "kind": crd.Spec.Names.Kind,
		"metadata": map[string]any{"namespace": namespace, "name": "sample"},
		"spec":     f.value(t, &spec, []any{"spec"}),
	}
	f.noise = f.refusals(t, c, nil, "")

	for _, r := range f.noise {
		if slices.ContainsFunc(f.leaves, func(l leaf) bool { return l.String() == r.field }) {
			t.Errorf("%s: %s refuses its example: %s", crd.Name, r.field, r.message)
		}
	}

	return f
}

// value makes a value of a schema, and collects the strings in it.
func (f *filled) value(t *testing.T, s *apiextensionsv1.JSONSchemaProps, path []any) any {
	t.Helper()

	switch {
	case s.Type == "string" || s.XIntOrString:
		f.leaves = append(f.leaves, leaf{path, s})

		return example(t, s, path)
	case s.XPreserveUnknownFields != nil:
		return map[string]any{}
	case s.Type == "object":
		out := map[string]any{}
		for name, one := range s.Properties {
			at := append(slices.Clone(path), name)
			if neverSet.MatchString(pathText(at)) {
				f.never = append(f.never, leaf{at, &one})

				continue
			}

			out[name] = f.value(t, &one, at)
		}

		if s.AdditionalProperties != nil {
			out["key"] = f.value(t, s.AdditionalProperties.Schema, append(slices.Clone(path), "key"))
		}

		return out
	case s.Type == "array":
		for _, rule := range s.XValidations {
			if s.Items.Schema.Type == "string" { // what each item has to be
				s.Items.Schema.XValidations = append(s.Items.Schema.XValidations, rule)
			}
		}

		return []any{f.value(t, s.Items.Schema, append(slices.Clone(path), 0))}
	case s.Type == "boolean":
		return true
	case s.Type == "integer" && len(s.Enum) > 0:
		var value int64
		if err := json.Unmarshal(s.Enum[0].Raw, &value); err != nil {
			t.Fatal(err)
		}

		return value
	case s.Type == "integer" && s.Minimum != nil:
		return int64(*s.Minimum)
	case s.Type == "integer":
		return int64(1)
	}

	t.Fatalf("%s has type %q, of which no value is known", pathText(path), s.Type)

	return nil
}

func example(t *testing.T, s *apiextensionsv1.JSONSchemaProps, path []any) any {
	t.Helper()

	if len(s.Enum) > 0 {
		var value any
		if err := json.Unmarshal(s.Enum[0].Raw, &value); err != nil {
			t.Fatal(err)
		}

		return value
	}

	if strings.HasSuffix(pathText(path), "nodeTaints[0].effect") {
		return string(corev1.TaintEffectNoSchedule) // Kubernetes' own type has no enumeration
	}

	rules := ""
	for _, rule := range s.XValidations {
		rules += rule.Rule
	}

	// The rules of a field may demand more than its pattern does.
	demand := map[string]string{
		"duration(": "1m", "isURL(": "https://10.0.0.1:6443", "isIP(": "10.0.0.1", "isCIDR(": "10.0.0.0/16", "isQuantity(": "16Gi", "self.matches(": "1%",
	}

	for part, value := range demand {
		if strings.Contains(rules, part) {
			return value
		}
	}

	for _, value := range examples {
		if (s.Format != "date-time" || strings.Contains(value, "T15:")) && regexp.MustCompile(s.Pattern).MatchString(value) &&
			(s.MaxLength == nil || int64(len(value)) <= *s.MaxLength) && (s.MinLength == nil || int64(len(value)) >= *s.MinLength) {
			return value
		}
	}

	t.Fatalf("%s: no example fits; pattern %s", pathText(path), s.Pattern)

	return nil
}

// with is the object with a value in some of its strings.
func (f *filled) with(leaves []leaf, value string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(f.object)}

	for _, l := range leaves {
		var at any = o.Object
		for _, step := range l.path[:len(l.path)-1] {
			at = stepInto(at, step)
		}

		last := l.path[len(l.path)-1]

		switch at := at.(type) {
		case map[string]any:
			at[last.(string)] = value
		case []any:
			at[last.(int)] = value
		}
	}

	return o
}

func stepInto(at, step any) any {
	if i, ok := step.(int); ok {
		return at.([]any)[i]
	}

	return at.(map[string]any)[step.(string)]
}

// refusal is one that the API server gives for a field.
type refusal struct{ field, message string }

// refusals are those of the object with a value in some of its strings, apart from those of the object without it. It is
// not stored.
func (f *filled) refusals(t *testing.T, c client.Client, leaves []leaf, value string) []refusal {
	t.Helper()

	err := c.Create(t.Context(), f.with(leaves, value), client.DryRunAll)

	var status apierrors.APIStatus
	if err == nil {
		return nil
	}

	if !errors.As(err, &status) || status.Status().Details == nil {
		t.Fatalf("the API server cannot read it: %v", err)
	}

	var out []refusal
	for _, cause := range status.Status().Details.Causes {
		if r := (refusal{cause.Field, cause.Message}); !slices.Contains(f.noise, r) {
			out = append(out, r)
		}
	}

	return out
}

// unrefused are the strings of an object that the API server refuses a value of nowhere by name. An object around one may
// be refused.
func (f *filled) unrefused(t *testing.T, c client.Client, value string) []leaf {
	t.Helper()

	left := f.leaves
	for range 2 { // rules are evaluated only where nothing is too long
		told := f.refusals(t, c, left, value)
		left = slices.DeleteFunc(slices.Clone(left), func(l leaf) bool {
			return slices.ContainsFunc(told, func(r refusal) bool { return r.field == l.String() })
		})
	}

	return left
}

// accepted are the strings of an object that the API server accepts with a value. A refusal of an object around a
// string counts only while no other string in that object has the value.
func (f *filled) accepted(t *testing.T, c client.Client, value string) []leaf {
	t.Helper()

	var out []leaf

	for _, batch := range apart(f.unrefused(t, c, value)) {
		told := f.refusals(t, c, batch, value)
		out = append(out, slices.DeleteFunc(batch, func(l leaf) bool { return isRefused(l, told) })...)
	}

	return out
}

func isRefused(l leaf, told []refusal) bool {
	return slices.ContainsFunc(told, func(r refusal) bool { return r.field != "spec" && isIn(l.String(), r.field) })
}

// apart splits strings into batches that have at most one in each object and list.
func apart(leaves []leaf) [][]leaf {
	var out [][]leaf

	count := map[string]int{}

	for _, l := range leaves {
		parent := pathText(l.path[:len(l.path)-1])
		// Items of a list belong to what the list is in, and so do the objects in it.
		parent, _, _ = strings.Cut(strings.TrimPrefix(parent, "spec."), "[0]")
		n := count[parent]
		count[parent]++

		if n == len(out) {
			out = append(out, nil)
		}

		out[n] = append(out[n], l)
	}

	return out
}

// isIn reports whether a path is a field, or leads through it.
func isIn(path, field string) bool {
	rest, ok := strings.CutPrefix(path, field)

	return ok && field != "" && (rest == "" || rest[0] == '.' || rest[0] == '[')
}
