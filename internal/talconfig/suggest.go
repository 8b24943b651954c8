package talconfig

import (
	"reflect"
	"slices"
	"strings"
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

	if near := nearest(key, fields); near != "" {
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

// nearest returns the key that differs least, if it differs little.
func nearest(key string, fields map[string]reflect.Type) string {
	best, least := "", max(2, len(key)/3)+1

	for _, candidate := range keysOf(fields) {
		if d := distance(strings.ToLower(key), strings.ToLower(candidate)); d < least {
			best, least = candidate, d
		}
	}

	return best
}

// distance is that of Levenshtein.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}

	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1

		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}

			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}

	return row[len(b)]
}
