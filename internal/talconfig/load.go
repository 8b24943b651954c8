package talconfig

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"

	"filippo.io/age"
	docconfig "github.com/siderolabs/talos/pkg/machinery/config/config"
	"go.yaml.in/yaml/v4"
)

// Options say what to load.
type Options struct {
	// Path of the talconfig.yaml. Files that it names are relative to its folder.
	Path string
	// EnvFiles with variables. nil means DefaultEnvFiles, which may be missing.
	EnvFiles []string
	// NoSubstitute leaves ${NAME} as it is.
	NoSubstitute bool
	// Environ are the variables of the process, as of os.Environ.
	Environ []string
	// Keys returns the keys for files that sops encrypted. It is called once, and only if there is such a file.
	Keys func() ([]age.Identity, error)
}

// Fleet is a talconfig.yaml that was read and checked, with all files that it names.
type Fleet struct {
	Config Config
	// Nodes are those of the file with the settings of their groups.
	Nodes []Machine
	// Patches are those of all nodes.
	Patches []Patch
	// Variables for templates, which are substituted after them.
	Variables Variables

	// ids are those of the schematics.
	ids sync.Map
}

// Patch is one change of a machine config.
type Patch struct {
	// Field of the talconfig.yaml that has it, for example controlPlane.patches[0].
	Field string
	Text  string
	// Template is set for a file, which may be a template; its variables are substituted after it is executed.
	Template bool
}

// Machine is a node with the settings of its group.
type Machine struct {
	Node
	// Field of the talconfig.yaml, for example nodes[0].
	Field string
	// GroupPatches and NodePatches of the group and of the node itself. Patches of the Node is not to be used.
	GroupPatches, NodePatches []Patch
	// Network are the documents of networkInterfaces, which are used since Talos 1.12.
	Network []docconfig.Document
	// Manifests are further documents of the machine config.
	Manifests []Patch
}

type loader struct {
	Options
	report

	dir string

	// legacy is set for a Talos version whose network is part of the main document.
	legacy bool

	vars Variables
	keys func() ([]age.Identity, error)

	// known are kinds of expressions of which one was parsed.
	known map[string]bool
}

// Load reads and checks a talconfig.yaml. The error is of type Problems, or that of reading the file.
func Load(o Options) (*Fleet, error) {
	l := &loader{
		Options: o, report: report{file: o.Path, lines: map[string]int{}}, dir: filepath.Dir(o.Path),
		known: map[string]bool{},
	}

	raw, err := l.read(o.Path)
	if err != nil {
		return nil, fmt.Errorf("reading the talconfig: %w", err)
	}

	root, err := l.decrypted(raw)
	if err != nil {
		l.add("", "%v", err)

		return nil, l.err()
	}

	if root == nil {
		l.add("", "is empty; it needs clusterName, endpoint, kubernetesVersion and nodes")

		return nil, l.err()
	}

	if !o.NoSubstitute {
		l.loadVariables(o.EnvFiles)

		// Each use of a variable that could not be read would be a problem, too.
		if err := l.err(); err != nil {
			return nil, err
		}

		if hasVariables(root) {
			l.substitute(root, "")
		}
	}

	f := &Fleet{Variables: l.vars}

	strict{&l.report}.check(root, reflect.TypeFor[Config](), "")

	if err := l.err(); err != nil {
		return nil, err
	}

	if decodeConfig(withoutExtensions(root), &f.Config) != nil {
		l.add("", "cannot be read")

		return nil, l.err()
	}

	l.assemble(f)
	l.validate(f)

	return f, l.err()
}

// withoutExtensions leaves out the keys for anchors.
func withoutExtensions(root *yaml.Node) *yaml.Node {
	out := *root
	out.Content = nil

	for i := 0; i+1 < len(root.Content); i += 2 {
		if !strings.HasPrefix(root.Content[i].Value, extensionPrefix) {
			out.Content = append(out.Content, root.Content[i], root.Content[i+1])
		}
	}

	return &out
}

// largestFile bounds what is read into memory. The largest files are manifests, of a few MiB.
const largestFile = 64 << 20

func (l *loader) read(path string) ([]byte, error) {
	info, err := os.Stat(path)

	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a file", path)
	case info.Size() > largestFile:
		return nil, fmt.Errorf("%s is larger than 64 MiB", path)
	}

	return os.ReadFile(path)
}

func isMissing(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// decrypted parses a file, and decrypts it if sops encrypted it.
func (l *loader) decrypted(raw []byte) (*yaml.Node, error) {
	root, err := parseTree(raw)
	if err != nil || !isEncrypted(root) {
		return root, err
	}

	if l.keys == nil {
		keys, err := l.ageKeys()
		l.keys = func() ([]age.Identity, error) { return keys, err }
	}

	keys, err := l.keys()
	if err != nil {
		return nil, err
	}

	return root, decryptTree(root, keys)
}

func (l *loader) ageKeys() ([]age.Identity, error) {
	if l.Keys == nil {
		return nil, nil
	}

	return l.Keys()
}

// Decrypt returns the content of a file, decrypted if sops encrypted it.
func Decrypt(raw []byte, keys func() ([]age.Identity, error)) ([]byte, error) {
	l := &loader{Options: Options{Keys: keys}}

	return l.plain(raw)
}

// plain returns the content of a file, byte for byte unless sops encrypted it.
func (l *loader) plain(raw []byte) ([]byte, error) {
	if !bytes.Contains(raw, []byte("ENC[AES256_GCM,")) || !bytes.Contains(raw, []byte(sopsKey)) {
		return raw, nil
	}

	// Those words may be about sops.
	root, err := parseTree(raw)
	if err == nil && !isEncrypted(root) {
		return raw, nil
	}

	if root, err = l.decrypted(raw); err != nil {
		return nil, err
	}

	// What sops cannot take apart it encrypts as a whole, below this key.
	if len(root.Content) == 2 && root.Content[0].Value == "data" && root.Content[1].Kind == yaml.ScalarNode {
		return []byte(root.Content[1].Value), nil
	}

	return yaml.Marshal(root)
}

// file reads what a field names with an @. Paths are relative to the talconfig.yaml.
func (l *loader) file(field, name string) (text string, ok bool) {
	path := name
	if !filepath.IsAbs(path) {
		path = filepath.Join(l.dir, path)
	}

	raw, err := l.read(path)
	if err == nil {
		raw, err = l.plain(raw)
	}

	if err != nil {
		l.add(field, "reading the file that it names: %v", err)

		return "", false
	}

	return string(raw), true
}

// content returns the text of a field that may name a file, whose variables are substituted unless skip is set.
func (l *loader) content(field, value string, skip bool) string {
	name, isFile := strings.CutPrefix(value, "@")
	if !isFile {
		return value
	}

	text, ok := l.file(field, name)
	if !ok || skip || l.NoSubstitute {
		return text
	}

	text, err := l.vars.Substitute(text)
	if err != nil {
		l.add(field, "file %s: %v; skipEnvsubst: true takes it as it is", name, err)
	}

	return text
}

// patches reads patches, which may be files.
func (l *loader) patches(field string, values []string) []Patch {
	var out []Patch

	for i, value := range values {
		p := Patch{Field: fmt.Sprintf("%s[%d]", field, i), Text: value}

		name, isFile := strings.CutPrefix(value, "@")
		if isFile {
			p.Text, _ = l.file(p.Field, name)
			p.Template = strings.Contains(p.Text, "{{")
		}

		if isFile && !p.Template && !l.NoSubstitute {
			text, err := l.vars.Substitute(p.Text)
			if err != nil {
				l.add(p.Field, "file %s: %v", name, err)
			}

			p.Text = text
		}

		if strings.TrimSpace(p.Text) == "" {
			continue
		}

		out = append(out, p)
	}

	return out
}
