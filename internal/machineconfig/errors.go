package machineconfig

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/hashicorp/go-multierror"
	"go.yaml.in/yaml/v4"

	"github.com/talos-operator/talos-operator/internal/machineconfig/keyref"
)

// InputError names the input field that no config can be made from.
type InputError struct {
	// Field of Input, for example Endpoint.
	Field string
	// Problem is a sentence for a person.
	Problem string
}

// Error implements error.
func (e *InputError) Error() string { return e.Field + ": " + e.Problem }

// PatchError names the patch that is wrong, and why, without printing its content.
type PatchError struct {
	// Level is cluster, group, machine or adopted; Index counts from 0 within its inline patches, or within the others.
	Level string
	Index int
	// Source is the object and key that the patch was read from; empty for an inline one.
	Source string
	// Problem is a sentence for a person.
	Problem string
}

// Patch names the patch, for example cluster[0], or: from Secret registry, key patch.yaml (cluster).
func (e *PatchError) Patch() string {
	if e.Source != "" {
		return fmt.Sprintf("from %s (%s)", e.Source, e.Level)
	}

	return fmt.Sprintf("%s[%d]", e.Level, e.Index)
}

// Error implements error.
func (e *PatchError) Error() string { return "patch " + e.Patch() + ": " + e.Problem }

// InvalidError says why the machinery library refuses the config that came out.
type InvalidError struct {
	// Patch that made the config invalid, as PatchError names it; empty when it is invalid without patches.
	Patch string
	// Values is true if what other objects hold for fields makes the config too long.
	Values bool
	// Problems are sentences for a person, sorted.
	Problems []string
}

// Error implements error.
func (e *InvalidError) Error() string {
	problems := strings.Join(e.Problems, "; ")
	if e.Patch != "" {
		return "patch " + e.Patch + " makes the config invalid: " + problems
	}

	return "machine config is invalid: " + problems
}

// problemsOf flattens the errors of the machinery library into sorted sentences.
func problemsOf(err error) []string {
	var (
		out  []string
		walk func(prefix string, err error)
	)

	walk = func(prefix string, err error) {
		var multi *multierror.Error

		joined, isJoined := err.(interface{ Unwrap() []error }) // checks this level only

		switch {
		case isJoined && len(joined.Unwrap()) > 1:
			for _, one := range joined.Unwrap() {
				walk(prefix, one)
			}
		case errors.As(err, &multi):
			head, _, _ := strings.Cut(err.Error(), multi.Error())
			for _, one := range multi.Errors {
				walk(prefix+head, one)
			}
		default:
			out = append(out, strings.Join(strings.Fields(prefix+err.Error()), " "))
		}
	}

	walk("", err)
	slices.Sort(out)

	return slices.Compact(out)
}

var (
	// The YAML library quotes the beginning of a value that does not fit.
	quotedValue = regexp.MustCompile("`[^`]*`")
	// A list or a mapping as a key is quoted with all that it holds.
	quotedKey = regexp.MustCompile(`(?s)cannot use '.*' as a map key`)
	// A password that begins with * or ! is read as an alias or a tag.
	quotedMark = regexp.MustCompile(`(anchor|alias|tag) '[^']*'`)
	// Some parsers quote their whole input.
	longQuoted = regexp.MustCompile(`"[^"\n]{48,}"`)
	manyBlanks = regexp.MustCompile(`\s+`)
	// What only programmers read.
	goTypes  = regexp.MustCompile(`error decoding \w* ?to \*\S+: |construct errors: `)
	misfit   = regexp.MustCompile(`cannot construct !!(\w+) a value into (\S+)( \{\})?`)
	mainName = regexp.MustCompile(`error decoding document /v1alpha1/ \(line \d+\): `)
)

const unknownKeys = "unknown keys found during decoding:\n"

// Describe turns the error of a parser of machine configs into a sentence that holds no values from the text that was
// parsed.
func Describe(err error) string { return describe(err) }

// Problems takes the error of a validation apart, one sentence a problem, without values as Describe has them.
func Problems(err error) []string {
	out := problemsOf(err)
	for i, problem := range out {
		out[i] = describe(errors.New(problem))
	}

	return out
}

// describe turns a parser's error into a sentence that holds no values from the text that was parsed.
func describe(err error) string {
	text := mainName.ReplaceAllString(goTypes.ReplaceAllString(err.Error(), ""), "")

	if head, listing, found := strings.Cut(text, unknownKeys); found {
		return manyBlanks.ReplaceAllString(head+"unknown fields "+strings.Join(keysOf(listing), ", "), " ") +
			meant(err.Error(), listing)
	}

	text = quotedValue.ReplaceAllString(text, "a value")
	text = quotedKey.ReplaceAllString(text, "cannot use a value as a map key")
	text = misfit.ReplaceAllString(text, "a $1 where $2 is expected")
	text = quotedMark.ReplaceAllString(text, "$1 '…'")
	text = longQuoted.ReplaceAllString(text, `"…"`)

	return strings.TrimSpace(manyBlanks.ReplaceAllString(text, " "))
}

// keysOf lists the paths in the decoder's listing of unknown fields, which prints their values too.
func keysOf(listing string) []string {
	var node yaml.Node
	if err := yaml.Unmarshal([]byte(listing), &node); err != nil || len(node.Content) == 0 {
		return []string{"(unreadable)"}
	}

	var (
		out  []string
		walk func(prefix string, n *yaml.Node)
	)

	walk = func(prefix string, n *yaml.Node) {
		switch {
		case n.Kind == yaml.MappingNode && len(n.Content) > 0:
			for i := 0; i+1 < len(n.Content); i += 2 {
				walk(keyref.JoinPath(prefix, fieldName(n.Content[i].Value)), n.Content[i+1])
			}
		case n.Kind == yaml.SequenceNode && len(n.Content) > 0:
			for i, one := range n.Content {
				walk(fmt.Sprintf("%s[%d]", prefix, i), one)
			}
		default:
			out = append(out, prefix)
		}
	}

	walk("", node.Content[0])
	slices.Sort(out)

	return out
}

var fieldNames = regexp.MustCompile(`^[A-Za-z0-9_./-]{1,63}$`)

// fieldName hides what cannot be the name of a field: without a blank after its colon, "token:abc" is one long key.
func fieldName(key string) string {
	if fieldNames.MatchString(key) {
		return key
	}

	return "…"
}
