package machineconfig

import (
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"go.yaml.in/yaml/v4"

	"github.com/talos-operator/talos-operator/internal/machineconfig/keyref"
	"github.com/talos-operator/talos-operator/internal/text"
)

// decodedDocument is how the decoder names the document of an error: by its apiVersion and its kind. The main one has
// no apiVersion, and the kind v1alpha1.
var decodedDocument = regexp.MustCompile(`error decoding document ([A-Za-z0-9]*)/([A-Za-z0-9]+)/`)

// meant ends the message about unknown fields with those that they may have been meant to be, or with nothing. It has
// names of the machinery's fields, and no values: message is the decoder's own, listing its list of unknown fields.
func meant(message, listing string) string {
	var node yaml.Node
	if err := yaml.Unmarshal([]byte(listing), &node); err != nil || len(node.Content) == 0 {
		return ""
	}

	names := decodedDocument.FindStringSubmatch(message)
	if names == nil {
		return ""
	}

	near := map[string]bool{}
	suggest("", node.Content[0], typeOf(names[1], names[2]), near)

	if len(near) == 0 {
		return ""
	}

	return "; did you mean " + strings.Join(slices.Sorted(maps.Keys(near)), ", ") + "?"
}

// typeOf returns the machinery's type of a document, nil for one that it does not know.
func typeOf(apiVersion, kind string) reflect.Type {
	if apiVersion == "" {
		return reflect.TypeFor[v1alpha1.Config]()
	}

	cfg, err := configloader.NewFromBytes([]byte("apiVersion: " + apiVersion + "\nkind: " + kind + "\n"))
	if err != nil || len(cfg.Documents()) == 0 {
		return nil
	}

	return reflect.TypeOf(cfg.Documents()[0])
}

// suggest collects what is near to the keys below a node that are no fields of a type.
func suggest(prefix string, n *yaml.Node, t reflect.Type, near map[string]bool) {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}

	switch {
	case t == nil:
	case n.Kind == yaml.SequenceNode && t.Kind() == reflect.Slice:
		for _, one := range n.Content {
			suggest(prefix+"[]", one, t.Elem(), near)
		}
	case n.Kind == yaml.MappingNode && t.Kind() == reflect.Map:
		for i := 0; i+1 < len(n.Content); i += 2 {
			suggest(keyref.JoinPath(prefix, fieldName(n.Content[i].Value)), n.Content[i+1], t.Elem(), near)
		}
	case n.Kind == yaml.MappingNode && t.Kind() == reflect.Struct:
		fields := yamlFields(t)

		for i := 0; i+1 < len(n.Content); i += 2 {
			key := n.Content[i].Value
			if inner, known := fields[key]; known {
				suggest(keyref.JoinPath(prefix, key), n.Content[i+1], inner, near)
			} else if name := nearField(key, fields); name != "" {
				near[keyref.JoinPath(prefix, name)] = true
			}
		}
	}
}

// nearField suggests nothing for apiVersion: a document that has it, and is read as the main one, lacks its kind.
func nearField(key string, fields map[string]reflect.Type) string {
	if key == "apiVersion" {
		return ""
	}

	return text.Nearest(key, slices.Collect(maps.Keys(fields)))
}

func yamlFields(t reflect.Type) map[string]reflect.Type {
	out := map[string]reflect.Type{}

	for field := range t.Fields() {
		switch name, options, _ := strings.Cut(field.Tag.Get("yaml"), ","); {
		case strings.Contains(options, "inline") && field.Type.Kind() == reflect.Struct:
			maps.Copy(out, yamlFields(field.Type))
		case name != "" && name != "-":
			out[name] = field.Type
		}
	}

	return out
}
