package staticpod

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/talos-operator/talos-operator/internal/text"
)

// meant ends the decoder's message about an unknown field with the one that it may have been meant to be, or
// with nothing.
func meant(problem string) string {
	path, ok := strings.CutPrefix(problem, `unknown field "`)
	if !ok {
		return ""
	}

	t := reflect.TypeFor[corev1.Pod]()

	for key := range strings.SplitSeq(strings.TrimSuffix(path, `"`), ".") {
		key, _, _ = strings.Cut(key, "[")

		for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
			t = t.Elem()
		}

		if t.Kind() != reflect.Struct {
			return ""
		}

		fields := jsonFields(t)

		inner, known := fields[key]
		if !known {
			if near := text.Nearest(key, slices.Collect(maps.Keys(fields))); near != "" {
				return "; did you mean " + near + "?"
			}

			return ""
		}

		t = inner
	}

	return ""
}

func jsonFields(t reflect.Type) map[string]reflect.Type {
	out := map[string]reflect.Type{}

	for field := range t.Fields() {
		switch name, options, _ := strings.Cut(field.Tag.Get("json"), ","); {
		case strings.Contains(options, "inline"):
			maps.Copy(out, jsonFields(field.Type))
		case name != "" && name != "-":
			out[name] = field.Type
		}
	}

	return out
}
