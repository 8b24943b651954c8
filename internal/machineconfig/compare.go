package machineconfig

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"go.yaml.in/yaml/v4"

	"github.com/talos-operator/talos-operator/internal/machineconfig/keyref"
)

// Redacted stands in for a secret value.
const Redacted = "<redacted>"

// Change is one difference between two configs.
type Change struct {
	// Document is empty for the main document, otherwise kind or kind/name.
	Document string
	// Path of the field, for example machine.kubelet.image. Empty when the whole document came or went.
	Path string
	// Old and New are short renderings, empty where absent; secrets are replaced.
	Old, New string
	// Content of a whole document that came or went, field by field.
	Content []Change
}

// Field is document and path in one.
func (c Change) Field() string {
	switch {
	case c.Document == "":
		return c.Path
	case c.Path == "":
		return c.Document
	default:
		return c.Document + ": " + c.Path
	}
}

// Difference between a live config and a desired one.
type Difference struct {
	Changes []Change
}

// Equal is true when both configs mean the same.
func (d Difference) Equal() bool { return len(d.Changes) == 0 }

// Paths lists the changed fields, sorted, without values.
func (d Difference) Paths() []string {
	out := make([]string, 0, len(d.Changes))
	for _, c := range d.Changes {
		out = append(out, c.Field())
	}

	slices.Sort(out)

	return slices.Compact(out)
}

// view is a document as its values by path.
type view map[string]string

// Diff compares the meaning of two configs. Comments, the order of keys and documents, and empty fields do not count.
func Diff(live, desired []byte) (Difference, error) { return diff(live, desired, show) }

// DiffWithSecrets is Diff with all values as they are, for the eyes of a user who asks for them.
func DiffWithSecrets(live, desired []byte) (Difference, error) { return diff(live, desired, showAll) }

// shower renders a value: show or showAll.
type shower func(value string, present, secret bool, limit int) string

func showAll(value string, present, _ bool, _ int) string {
	if present && value == "" {
		return `""`
	}

	return value
}

func diff(live, desired []byte, show shower) (Difference, error) {
	var d Difference

	// By far the most frequent case: the node runs exactly what was rendered for it.
	if bytes.Equal(live, desired) && len(live) > 0 {
		return d, nil
	}

	before, err := viewsOf(live)
	if err != nil {
		return d, fmt.Errorf("reading the live config: %w", err)
	}

	after, err := viewsOf(desired)
	if err != nil {
		return d, fmt.Errorf("reading the desired config: %w", err)
	}

	ids := slices.Sorted(maps.Keys(before))
	for id := range after {
		if _, ok := before[id]; !ok {
			ids = append(ids, id)
		}
	}

	slices.Sort(ids)

	for _, id := range ids {
		old, hadIt := before[id]
		now, hasIt := after[id]

		switch {
		case !hadIt:
			d.Changes = append(d.Changes, Change{Document: id, New: "added", Content: now.contents(id, true, show)})
		case !hasIt:
			d.Changes = append(d.Changes, Change{Document: id, Old: "removed", Content: old.contents(id, false, show)})
		default:
			d.Changes = append(d.Changes, changesOf(id, old, now, show)...)
		}
	}

	return d, nil
}

// parsed is a document as the machinery library reads it, where it can, and as it stands.
type parsed struct {
	typed, plain view
	// cfg is the document in the library's types; nil where the library cannot read it.
	cfg config.Provider
}

// comparable picks the view that both sides have: a field of a newer Talos version in one of them makes the library
// refuse that one, and then both are compared as they stand.
func (p parsed) comparable(other parsed) view {
	if p.typed != nil && other.typed != nil {
		return p.typed
	}

	return p.plain
}

// contents are the fields of a document that is new, or that went.
func (p parsed) contents(id string, isNew bool, show shower) []Change {
	values, secret := p.comparable(p), p.isSecret()
	out := make([]Change, 0, len(values))

	for _, path := range slices.Sorted(maps.Keys(values)) {
		if path == "apiVersion" || path == "kind" || path == "name" {
			continue // the document's own name says so
		}

		c := Change{Document: id, Path: path}
		value := show(values[path], true, secret(path) || isSensitive(path), longestOf(path))

		if isNew {
			c.New = value
		} else {
			c.Old = value
		}

		out = append(out, c)
	}

	return out
}

func longestOf(path string) int {
	if strings.HasSuffix(path, ".image") {
		return longestImage
	}

	return longestShown
}

// isSecret asks the library which values of a document are secret. Where it cannot read the document all are, because
// it is unknown which are not.
func (p parsed) isSecret() func(path string) bool {
	if p.cfg == nil {
		return func(string) bool { return true }
	}

	redacted, err := viewOf(encode(p.cfg.RedactSecrets(Redacted)))
	if err != nil {
		return func(string) bool { return true }
	}

	return func(path string) bool {
		value, ok := p.typed[path]

		return ok && redacted[path] != value
	}
}

func changesOf(id string, old, now parsed, show shower) []Change {
	before, after := old.comparable(now), now.comparable(old)

	paths := slices.Sorted(maps.Keys(before))
	for path := range after {
		if _, ok := before[path]; !ok {
			paths = append(paths, path)
		}
	}

	paths = slices.DeleteFunc(paths, func(path string) bool {
		a, hadIt := before[path]
		b, hasIt := after[path]

		return hadIt && hasIt && a == b
	})

	if len(paths) == 0 {
		return nil
	}

	slices.Sort(paths)

	oldSecret, newSecret := old.isSecret(), now.isSecret()
	out := make([]Change, 0, len(paths))

	for _, path := range paths {
		secret := oldSecret(path) || newSecret(path) || isSensitive(path)
		a, hadIt := before[path]
		b, hasIt := after[path]

		limit := longestOf(path)

		out = append(out, Change{
			Document: id, Path: path, Old: show(a, hadIt, secret, limit), New: show(b, hasIt, secret, limit),
		})
	}

	return out
}

func viewsOf(data []byte) (map[string]parsed, error) {
	docs, err := splitDocuments(data)
	if err != nil {
		return nil, fmt.Errorf("%s", describe(err)) // the cause may quote secrets
	}

	out := make(map[string]parsed, len(docs))

	for _, doc := range docs {
		plain, err := flatten(doc.node)
		if err != nil {
			return nil, fmt.Errorf("document %s: %s", doc.id(), describe(err)) // the cause may quote secrets
		}

		typed, cfg := typedView(doc)
		out[doc.id()] = parsed{plain: plain, typed: typed, cfg: cfg}
	}

	return out, nil
}

// typedView reads a document through the machinery library, which fills in what its types always print. It is nil where
// the library cannot read the document.
func typedView(doc document) (view, config.Provider) {
	if !doc.isKnown() {
		return nil, nil
	}

	raw, err := yaml.Marshal(doc.node)
	if err != nil {
		return nil, nil
	}

	cfg, err := configloader.NewFromBytes(raw)
	if err != nil {
		return nil, nil
	}

	full, err := viewOf(encode(cfg))
	if err != nil {
		return nil, nil
	}

	return full, cfg
}

func viewOf(raw []byte, err error) (view, error) {
	if err != nil {
		return nil, fmt.Errorf("encoding document: %w", err)
	}

	docs, err := splitDocuments(raw)
	if err != nil || len(docs) != 1 {
		return nil, fmt.Errorf("expected one document: %w", err)
	}

	return flatten(docs[0].node)
}

// emptyKey is a key of an encrypted volume whose type is the name of an empty mapping: without it, a volume that the
// TPM opens would look like one that any thief of the disk opens.
var emptyKey = regexp.MustCompile(`\.keys\[\d+\]\.(nodeID|tpm|tpm\.options)$`)

// flatten lists the values of a document by path. Empty mappings and lists, and nulls, do not count, but for keys.
func flatten(node *yaml.Node) (view, error) {
	var content any
	if err := node.Decode(&content); err != nil {
		return nil, fmt.Errorf("decoding document: %w", err)
	}

	out := view{}
	flattenInto(out, "", content)

	return out, nil
}

func flattenInto(out view, path string, content any) {
	switch content := content.(type) {
	case nil:
	case map[string]any:
		if len(content) == 0 && emptyKey.MatchString(path) {
			out[path] = "{}"
		}

		for key, value := range content {
			flattenInto(out, keyref.JoinPath(path, key), value)
		}
	case map[any]any:
		for key, value := range content {
			flattenInto(out, keyref.JoinPath(path, fmt.Sprint(key)), value)
		}
	case []any:
		for i, value := range content {
			flattenInto(out, path+"["+strconv.Itoa(i)+"]", value)
		}
	default:
		out[path] = fmt.Sprint(content)
	}
}

var (
	// Fields whose values may hold credentials although no type says so.
	sensitivePath = regexp.MustCompile(`(?i)(secret|token|passw|passphrase|credential|private|identity|` +
		`authorization|\.auth$|\.key$|(^|\.)(env|environment|variables|pods|inlineManifests|extraManifestHeaders|` +
		`configFiles|contents?)([.\[]|$))`)
	// Credentials inside a URL, in the query, where links to files are signed.
	query = regexp.MustCompile(`(://[^\s?]*)\?\S+`)
	// Credentials inside of one argument, as of the kernel.
	argument = regexp.MustCompile(`(?i)((?:token|secret|passw|passphrase|credential|key)[\w.-]*=)\S+`)
)

func isSensitive(path string) bool { return sensitivePath.MatchString(path) }

const (
	// longestShown is the longest value that a difference shows: longer ones are certificates, manifests and files.
	longestShown = 80
	// longestImage leaves room for a registry, a schematic and a digest: the tag stands at the end.
	longestImage = 256
)

func show(value string, present, secret bool, limit int) string {
	switch {
	case !present:
		return ""
	case secret, strings.Contains(value, "PRIVATE KEY"), strings.HasPrefix(value, "LS0tLS1CRUdJTi"):
		return Redacted
	case len(value) > limit:
		return fmt.Sprintf("(%d characters)", len(value))
	case value == "":
		return `""`
	default:
		value = keyref.Userinfo.ReplaceAllString(value, "://"+Redacted+"@")
		value = query.ReplaceAllString(value, "$1?"+Redacted)

		return argument.ReplaceAllString(value, "$1"+Redacted)
	}
}

// immediate are the machine fields that a running node takes over without a reboot, as Talos 1.13 decides it. All of
// cluster, debug and all further documents are immediate too.
var immediate = []string{
	"ca", "acceptedCAs", "time", "certSANs", "install", "network", "sysfs", "sysctls", "logging", "controlPlane",
	"kubelet", "kernel", "registries", "pods", "seccompProfiles", "nodeAnnotations", "nodeLabels", "nodeTaints",
	"features.kubernetesTalosAPIAccess", "features.kubePrism", "features.hostDNS", "features.imageCache",
	"features.nodeAddressSortAlgorithm",
}

// NeedsReboot tells whether a node has to reboot to run desired instead of live, and which fields are the reason. The
// node itself has the last word: its dry run says what it would do.
func NeedsReboot(live, desired []byte) (bool, []string, error) {
	d, err := Diff(live, desired)
	if err != nil {
		return false, nil, err
	}

	var reasons []string

	for _, c := range d.Changes {
		if c.Document == "" && !isImmediate(c.Path) {
			reasons = append(reasons, c.Path)
		}
	}

	return len(reasons) > 0, reasons, nil
}

func isImmediate(path string) bool {
	if path == "debug" || isUnder(path, "cluster") {
		return true
	}

	return slices.ContainsFunc(immediate, func(field string) bool { return isUnder(path, "machine."+field) })
}

// isUnder is true for the field itself and everything below it.
func isUnder(path, field string) bool {
	rest, found := strings.CutPrefix(path, field)

	return found && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// Hash identifies the meaning of a config: comments, key order and document order do not count.
func Hash(data []byte) (string, error) { return hashWithout(data, "") }

// HashWithoutInstaller is Hash, whatever installer the config names.
func HashWithoutInstaller(data []byte) (string, error) { return hashWithout(data, installImage) }

func hashWithout(data []byte, field string) (string, error) {
	views, err := viewsOf(data)
	if err != nil {
		return "", err
	}

	values := make(map[string]view, len(views))
	for id, both := range views {
		values[id] = maps.Clone(both.comparable(both))
		delete(values[id], field)
	}

	// JSON sorts the keys of maps.
	raw, err := json.Marshal(values)
	if err != nil {
		return "", fmt.Errorf("hashing config: %w", err)
	}

	sum := sha256.Sum256(raw)

	return hex.EncodeToString(sum[:]), nil
}
