package machineconfig_test

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	talosv1alpha1 "github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"go.yaml.in/yaml/v4"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// mainDepth is how many names a field in docs/main-document.md has at most.
const mainDepth = 3

// TestMainDocument: docs/main-document.md lists the fields of the machinery's main document, so that a new version of Talos
// shows what is new. What it calls typed has such a field and is rendered from it; what it leaves to patches is not rendered.
func TestMainDocument(t *testing.T) {
	t.Parallel()

	page, err := os.ReadFile("../../docs/main-document.md")
	if err != nil {
		t.Fatal(err)
	}

	var (
		documented []string
		rendered   = mainFields(t)
		api        = reflect.TypeFor[v1alpha1.TalosControlPlaneSpec]()
	)

	for _, row := range regexp.MustCompile("(?m)^\\| `([A-Za-z.]+)` \\|(.*)\\|(.*)\\|$").FindAllStringSubmatch(string(page), -1) {
		field, typed, otherwise := row[1], strings.TrimSpace(row[2]), strings.TrimSpace(row[3])
		documented = append(documented, field)

		switch isPatch := strings.HasPrefix(otherwise, "patch"); {
		case (typed == "") == (otherwise == ""):
			t.Errorf("%s: either a typed field, or something else", field)
		case isPatch && rendered[field], typed != "" && !rendered[field]:
			t.Errorf("%s is %q, and rendered: %t", field, typed+otherwise, rendered[field])
		}

		for _, path := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(typed, -1) {
			if !hasField(api, strings.Split(path[1], ".")) {
				t.Errorf("%s: there is no field %s", field, path[1])
			}
		}
	}

	slices.Sort(documented)

	want := sectionFields(reflect.TypeFor[talosv1alpha1.Config](), "", mainDepth)
	slices.Sort(want)

	if diff := cmp.Diff(want, documented); diff != "" {
		t.Errorf("docs/main-document.md (-fields of the machinery +documented):\n%s", diff)
	}
}

// sectionFields are the paths of the fields below a type, with a number of names at most. Lists count as values.
func sectionFields(of reflect.Type, prefix string, depth int) []string {
	if of.Kind() == reflect.Pointer {
		of = of.Elem()
	}

	if of.Kind() != reflect.Struct {
		return nil // a value without a form, written inline
	}

	var out []string

	for i := range of.NumField() {
		f := of.Field(i)

		switch name, options, _ := strings.Cut(f.Tag.Get("yaml"), ","); {
		case options == "inline":
			out = append(out, sectionFields(f.Type, prefix, depth)...)
		case name == "" || name == "-":
		case depth > 1 && f.Type.Kind() != reflect.Slice && isSection(f.Type):
			out = append(out, sectionFields(f.Type, prefix+name+".", depth-1)...)
		default:
			out = append(out, prefix+name)
		}
	}

	return out
}

// mainFields are the fields of the main documents of all golden files.
func mainFields(t *testing.T) map[string]bool {
	t.Helper()

	samples, err := filepath.Glob("testdata/golden/*.yaml")
	if err != nil || len(samples) < 50 {
		t.Fatalf("%d samples: %v", len(samples), err)
	}

	out := map[string]bool{}

	for _, sample := range samples {
		text, err := os.ReadFile(sample)
		if err != nil {
			t.Fatal(err)
		}

		for part := range strings.SplitSeq(string(text), "\n---\n") {
			var content any
			if err := yaml.Unmarshal([]byte(part), &content); err != nil {
				t.Fatal(err)
			}

			doc, ok := content.(map[string]any)
			if !ok && strings.HasPrefix(filepath.Base(sample), "static-pods-") {
				doc = map[string]any{"machine": map[string]any{"pods": content}}
			}

			if doc["kind"] != nil {
				continue
			}

			for path := range paths(doc, "") {
				names := strings.Split(path, ".")
				out[strings.Join(names[:min(len(names), mainDepth)], ".")] = true
			}
		}
	}

	return out
}

// hasField reports whether a type of the API has a field, by the names in JSON.
func hasField(of reflect.Type, path []string) bool {
	for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice {
		of = of.Elem()
	}

	if len(path) == 0 {
		return true
	}

	if of.Kind() != reflect.Struct {
		return false
	}

	for i := range of.NumField() {
		f := of.Field(i)

		switch name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name {
		case "":
			if hasField(f.Type, path) {
				return true
			}
		case strings.TrimSuffix(path[0], "[]"):
			return hasField(f.Type, path[1:])
		}
	}

	return false
}
