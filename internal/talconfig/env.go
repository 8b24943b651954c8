package talconfig

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/a8m/envsubst/parse"
	"go.yaml.in/yaml/v4"
)

// DefaultEnvFiles are the files with variables that are read if they exist, next to the talconfig.yaml. A later file
// wins over an earlier one, and all win over the environment of the process.
var DefaultEnvFiles = []string{"talenv.yaml", "talenv.sops.yaml", "talenv.yml", "talenv.sops.yml"}

// Variables are what ${NAME} in a talconfig.yaml stands for, as NAME=value.
type Variables []string

// variableName finds the name in the errors of the library, which quote nothing else of the text.
var variableName = regexp.MustCompile(`\$\{(\w+)\}`)

// Substitute replaces ${NAME}, ${NAME:-default} and what else the shell knows of this kind; $$ is a dollar sign, and $1
// stays. A variable that is not set, or empty, is an error: a machine config with a hole would be worse.
func (v Variables) Substitute(text string) (string, error) {
	if !strings.Contains(text, "$") {
		return text, nil
	}

	if loops(text) {
		return "", fmt.Errorf("has $_ or ${_} where neither is supported: write $$ for a dollar sign")
	}

	restrictions := parse.Restrictions{NoUnset: true, NoEmpty: true, NoDigit: true}

	out, err := parse.New("talconfig", v, &restrictions).Parse(text)
	if err == nil {
		return out, nil
	}

	if name := variableName.FindStringSubmatch(err.Error()); name != nil {
		return "", fmt.Errorf("variable %s is not set, or empty: set it in talenv.yaml or in the environment, "+
			"or write $$ for a dollar sign", name[1])
	}

	return "", fmt.Errorf("has a ${ without a name and a }: write $$ for a dollar sign")
}

// lone is the name _ alone.
var lone = regexp.MustCompile(`^_($|[^\pL\p{Nd}_])`)

// loops reports whether the library would never return: it leaves $_ and ${_ as they are, and misses the end of the
// braces around them.
func loops(text string) bool {
	depth := 0

	for at := 0; at < len(text); at++ {
		rest := text[at:]

		switch {
		case strings.HasPrefix(rest, "$$"):
			at++
		case strings.HasPrefix(rest, "${"):
			if lone.MatchString(rest[2:]) {
				return true
			}

			depth++
		case rest[0] == '$' && depth > 0 && lone.MatchString(rest[1:]):
			return true
		case rest[0] == '}':
			depth = max(depth-1, 0)
		}
	}

	return false
}

// set adds a variable, or replaces it.
func (v Variables) set(name, value string) Variables {
	at := slices.IndexFunc(v, func(have string) bool { return strings.HasPrefix(have, name+"=") })
	if at < 0 {
		return append(v, name+"="+value)
	}

	v[at] = name + "=" + value

	return v
}

// loadVariables reads the files with variables. Files that were named have to exist.
func (l *loader) loadVariables(named []string) {
	l.vars = slices.Clone(Variables(l.Environ))

	for _, path := range named {
		l.loadEnvFile(path, true)
	}

	if named != nil {
		return
	}

	for _, name := range DefaultEnvFiles {
		l.loadEnvFile(filepath.Join(l.dir, name), false)
	}
}

func (l *loader) loadEnvFile(path string, required bool) {
	raw, err := l.read(path)
	if err != nil {
		if required || !isMissing(err) {
			l.add("", "reading variables: %v", err)
		}

		return
	}

	own := report{file: path, lines: map[string]int{}}
	defer func() { l.problems = append(l.problems, own.problems...) }()

	root, err := l.decrypted(raw)

	switch {
	case err != nil:
		own.add("", "%v", err)

		return
	case root == nil:
		return
	case root.Kind != yaml.MappingNode:
		own.add("", "has to be a mapping of names to values, as in NAME: value")

		return
	}

	for i := 0; i+1 < len(root.Content); i += 2 {
		key, value := root.Content[i], root.Content[i+1]
		own.lines[key.Value] = key.Line

		switch {
		case value.Kind != yaml.ScalarNode:
			own.add(key.Value, "has to be one value, and is %s", kindName(value))
		case isNull(value):
			l.vars = l.vars.set(key.Value, "")
		default:
			l.vars = l.vars.set(key.Value, value.Value)
		}
	}
}

// hasVariables looks for one, because the paths of all fields take longer to write than the texts to read.
func hasVariables(n *yaml.Node) bool {
	return strings.Contains(n.Value, "$") || slices.ContainsFunc(n.Content, hasVariables)
}

// substitute replaces variables in all texts of a tree. What a variable holds never becomes structure, except for a
// value that is a single variable: that may be a number, a list or a mapping.
func (l *loader) substitute(n *yaml.Node, path string) {
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			at := join(path, n.Content[i].Value)
			l.substitute(n.Content[i], at)
			l.substitute(n.Content[i+1], at)
		}
	case yaml.SequenceNode:
		for i, item := range n.Content {
			l.substitute(item, fmt.Sprintf("%s[%d]", path, i))
		}
	default:
		l.substituteScalar(n, path)
	}
}

var singleVariable = regexp.MustCompile(`^\$(\w+|\{[^{}]+\})$`)

func (l *loader) substituteScalar(n *yaml.Node, path string) {
	if !strings.Contains(n.Value, "$") {
		return
	}

	if l.lines[path] == 0 {
		l.lines[path] = n.Line
	}

	text, err := l.vars.Substitute(n.Value)
	if err != nil {
		l.add(path, "%v", err)

		return
	}

	if singleVariable.MatchString(n.Value) && n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) == 0 {
		if value, err := parseTree([]byte(text)); err == nil && value != nil {
			line := n.Line
			*n = *value
			n.Line = line

			return
		}
	}

	n.Value = text

	// A plain text is read again: 12${X} may be a number.
	if n.Style == 0 {
		n.Tag = ""
	}
}
