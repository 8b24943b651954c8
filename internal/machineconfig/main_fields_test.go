package machineconfig_test

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
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
		case isPatch && rendered[field] > 0, typed != "" && lastMinor(typed) != rendered[field]:
			t.Errorf("%s is %q, and rendered last for Talos 1.%d", field, typed+otherwise, rendered[field])
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

// newestMinor is that of the newest golden files.
const newestMinor = 13

// lastMinor is the minor version of Talos that a row calls the last one with a field.
func lastMinor(typed string) int {
	match := regexp.MustCompile(`before Talos 1\.([0-9]+)$`).FindStringSubmatch(typed)
	if match == nil {
		return newestMinor
	}

	first, err := strconv.Atoi(match[1])
	if err != nil {
		return 0
	}

	return first - 1
}

// minorOf is the minor version of Talos that a golden file is for.
func minorOf(t *testing.T, sample string) int {
	t.Helper()

	name := strings.NewReplacer("-legacy.yaml", "-v1.11", "-documents.yaml", "-v1.13").Replace(filepath.Base(sample))

	minor, err := strconv.Atoi(regexp.MustCompile(`v1\.([0-9]+)`).FindStringSubmatch(name)[1])
	if err != nil {
		t.Fatal(err)
	}

	return minor
}

// mainFields are the fields of the main documents of all golden files, with the newest minor version of Talos that has
// them there.
func mainFields(t *testing.T) map[string]int {
	t.Helper()

	samples, err := filepath.Glob("testdata/golden/*.yaml")
	if err != nil || len(samples) < 50 {
		t.Fatalf("%d samples: %v", len(samples), err)
	}

	out := map[string]int{}

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
				field := strings.Join(names[:min(len(names), mainDepth)], ".")
				out[field] = max(out[field], minorOf(t, sample))
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
