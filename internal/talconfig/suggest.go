package talconfig

import (
	"reflect"
	"slices"
	"strings"

	"github.com/talos-operator/talos-operator/internal/text"
)

// renamed are keys that documents mention, and that never were, or no longer are, read.
var renamed = map[string]string{
	"ImageURLTmpl":  "ISOURLTmpl",
	"configPatches": "patches",
	"inlinePatch":   "patches",
	"extensions":    "schematic.customization.systemExtensions.officialExtensions",
	"networkRules":  "rules",
}

// hintFor says what an unknown key may have been meant to be.
func hintFor(key, path string, fields map[string]reflect.Type) string {
	if now, ok := renamed[key]; ok {
		return "; use " + now
	}

	if near := text.Nearest(key, keysOf(fields)); near != "" {
		return "; did you mean " + near + "?"
	}

	switch _, ofNode := fieldsOf(reflect.TypeFor[Node]())[key]; {
	case path == "" && ofNode:
		return "; it belongs to a node, or to controlPlane or worker"
	case path != "" && fieldsOf(reflect.TypeFor[Config]())[key] != nil:
		return "; it belongs to the top of the file"
	}

	return "; known are " + strings.Join(keysOf(fields), ", ")
}

func keysOf(fields map[string]reflect.Type) []string {
	out := make([]string, 0, len(fields))
	for key := range fields {
		out = append(out, key)
	}

	slices.Sort(out)

	return out
}
