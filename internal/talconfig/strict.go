package talconfig

import (
	"encoding"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"time"

	"go.yaml.in/yaml/v4"
)

// strict compares a tree with a type: each key has to be one of the type, each value has to fit. It is stricter than a
// decoder, and says where and why.
type strict struct{ *report }

// extensionPrefix starts the names of keys for anchors, which have no meaning of their own.
const extensionPrefix = "x-"

func (s strict) check(n *yaml.Node, t reflect.Type, path string) {
	if s.lines[path] == 0 {
		s.lines[path] = n.Line
	}

	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}

	if isNull(n) {
		return
	}

	if decodesItself(t) {
		s.tryDecode(n, t, path)

		return
	}

	switch t.Kind() {
	case reflect.Struct:
		s.checkStruct(n, t, path)
	case reflect.Map:
		s.checkMap(n, t, path)
	case reflect.Slice:
		s.checkList(n, t, path)
	case reflect.String:
		if n.Kind != yaml.ScalarNode {
			s.add(path, "has to be a text, and is %s%s", kindName(n), textHint(path))
		}
	case reflect.Interface:
	default:
		s.tryDecode(n, t, path)
	}
}

// textHint helps with the most frequent mistake: a patch without the mark of a block of text.
func textHint(path string) string {
	if strings.Contains(path, "atches[") || strings.HasSuffix(path, "ontents") || strings.HasSuffix(path, "ontent") {
		return `; put "|-" before it, or name a file as "@file.yaml"`
	}

	return ""
}

var (
	yamlUnmarshaler = reflect.TypeFor[yaml.Unmarshaler]()
	textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()
	oldUnmarshaler  = reflect.TypeFor[interface{ UnmarshalYAML(func(any) error) error }]()
	duration        = reflect.TypeFor[time.Duration]()
)

func decodesItself(t reflect.Type) bool {
	p := reflect.PointerTo(t)

	return p.Implements(yamlUnmarshaler) || p.Implements(textUnmarshaler) || p.Implements(oldUnmarshaler)
}

// tryDecode never quotes the value, which may be a secret in the wrong place.
func (s strict) tryDecode(n *yaml.Node, t reflect.Type, path string) {
	if decode(n, reflect.New(t).Interface()) != nil {
		s.add(path, "has to be %s, and is %s", wantOf(t), kindName(n))
	}
}

// decode protects from panics of the YAML library and of the types of the machinery library.
func decode(n *yaml.Node, into any) (err error) {
	defer func() {
		if recover() != nil {
			err = fmt.Errorf("line %d cannot be read", n.Line)
		}
	}()

	return n.Decode(into)
}

func wantOf(t reflect.Type) string {
	if words := wordsOf(t); words != "" {
		return "one of " + words
	}

	switch {
	case t == duration:
		return "a duration such as 10s"
	case t.Kind() == reflect.Bool:
		return "true or false"
	case t.Kind() >= reflect.Int && t.Kind() <= reflect.Uint64 && !decodesItself(t):
		return "a whole number in the range of the field"
	}

	if want, ok := wants[t.Name()]; ok {
		return want
	}

	return "a " + t.Name()
}

// wants says in words what a type of the machinery library reads.
var wants = map[string]string{
	"InstallDiskSizeMatcher": "a size such as 100GB, or a bound such as >= 100GB",
	"DiskSize":               "a size such as 100GB",
	"ByteSize":               "a size such as 10GiB",
	"Size":                   "a size such as 10GiB or 50%",
	"Expression":             "a CEL expression such as system_disk",
	"PortRange":              "a port such as 6443, or a range such as 2379-2380",
	"Prefix":                 "a network such as 10.0.0.0/24",
	"Addr":                   "an IP address",
	"HardwareAddr":           "a hardware address such as 00:1a:2b:3c:4d:5e",
	"ArgValue":               "a text, or a list of texts",
}

// wordsOf lists the words of an enumeration.
func wordsOf(t reflect.Type) string {
	names, ok := words[t.Name()]
	if !ok {
		return ""
	}

	return strings.Join(names, ", ")
}

// words are those of the enumerations whose types do not list them.
var words = map[string][]string{
	"DefaultAction":          {"accept", "block"},
	"Protocol":               {"tcp", "udp", "icmp", "icmpv6"},
	"EncryptionProviderType": {"luks2"},
	"FilesystemType":         {"xfs", "ext4"},
	"VolumeType":             {"directory", "disk", "partition"},
}

func (s strict) checkMap(n *yaml.Node, t reflect.Type, path string) {
	if n.Kind != yaml.MappingNode {
		s.add(path, "has to be a mapping, and is %s", kindName(n))

		return
	}

	seen := map[string]bool{}

	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i].Value
		at := join(path, key)

		if seen[key] {
			s.lines[at] = n.Content[i].Line
			s.add(at, "occurs twice; keep one")
		}

		seen[key] = true
		s.check(n.Content[i+1], t.Elem(), at)
	}
}

func (s strict) checkList(n *yaml.Node, t reflect.Type, path string) {
	if n.Kind != yaml.SequenceNode {
		s.add(path, "has to be a list, and is %s", kindName(n))

		return
	}

	if path == nodesKey {
		s.checkNodes(n, t.Elem())

		return
	}

	for i, item := range n.Content {
		s.checkItem(item, t.Elem(), fmt.Sprintf("%s[%d]", path, i))
	}
}

func (s strict) checkItem(item *yaml.Node, t reflect.Type, path string) {
	// The library dereferences entries of lists without a check.
	if isNull(item) {
		s.lines[path] = item.Line
		s.add(path, "is empty; remove it or give it a value")

		return
	}

	s.check(item, t, path)
}

func (s strict) checkStruct(n *yaml.Node, t reflect.Type, path string) {
	if n.Kind != yaml.MappingNode {
		s.add(path, "has to be a mapping, and is %s", kindName(n))

		return
	}

	fields := fieldsOf(t)
	seen := map[string]bool{}

	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i].Value
		at := join(path, key)

		field, known := fields[key]

		switch {
		case path == "" && strings.HasPrefix(key, extensionPrefix):
			continue
		case !known:
			s.lines[at] = n.Content[i].Line
			s.add(at, "unknown key%s", hintFor(key, path, fields))

			continue
		case seen[key]:
			s.lines[at] = n.Content[i].Line
			s.add(at, "occurs twice; keep one")
		}

		seen[key] = true
		s.check(n.Content[i+1], field, at)
	}
}

// knownFields holds what fieldsOf returned.
var knownFields sync.Map

// fieldsOf returns the keys of a struct, with those of inlined ones.
func fieldsOf(t reflect.Type) map[string]reflect.Type {
	if known, ok := knownFields.Load(t); ok {
		return known.(map[string]reflect.Type)
	}

	out := map[string]reflect.Type{}

	for field := range t.Fields() {
		name, options, _ := strings.Cut(field.Tag.Get("yaml"), ",")

		switch {
		case strings.Contains(options, "inline"):
			for key, inner := range fieldsOf(field.Type) {
				out[key] = inner
			}
		case name != "" && name != "-":
			out[name] = field.Type
		}
	}

	knownFields.Store(t, out)

	return out
}

func join(path, key string) string {
	if path == "" {
		return key
	}

	return path + "." + key
}

func kindName(n *yaml.Node) string {
	tag := n.ShortTag()

	switch {
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case tag == "!!bool":
		return "true or false"
	case tag == "!!int", tag == "!!float":
		return "a number that does not fit"
	}

	return "a text that does not fit"
}
