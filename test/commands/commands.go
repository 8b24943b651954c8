// Package commands finds the commands that the documents show, so that tests hold them to the programs as they are.
package commands

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"mvdan.cc/sh/v3/syntax"
)

// Command is a command of a document.
type Command struct {
	// Where it is: the path of the document in the module, and the first line of its block or its own line.
	Where string
	// Program is its first word, without folder. Args are the others, without quotes; what only a shell knows is Unknown.
	Program string
	Args    []string
	// Mention: it is in the text, where arguments may be left out.
	Mention bool
}

// Unknown stands for the value of a variable or of another command.
const Unknown = "unknown"

func (c Command) String() string {
	return fmt.Sprintf("%s: %s %s", c.Where, c.Program, strings.Join(c.Args, " "))
}

// documents are what people read, in the module.
var documents = []string{
	"README.md", "CONTRIBUTING.md", "docs/*.md", "docs/adr/*.md", "examples/README.md", "charts/talos-operator/README.md",
}

// All returns the commands of all documents of the module: those of blocks marked sh or console, and those in the text
// that begin with a program of this project, kubectl or make.
func All(module string) ([]Command, error) {
	var out []Command

	err := each(module, func(name, text string) error {
		found, err := Of(name, text)
		out = append(out, found...)

		return err
	})

	return out, err
}

// each reads all documents of the module, in their order.
func each(module string, read func(name, text string) error) error {
	for _, pattern := range documents {
		paths, err := filepath.Glob(filepath.Join(module, pattern))
		if err != nil {
			return fmt.Errorf("listing the documents: %w", err)
		}

		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				return fmt.Errorf("reading a document: %w", err)
			}

			name, err := filepath.Rel(module, path)
			if err != nil {
				return fmt.Errorf("naming a document: %w", err)
			}

			if err := read(name, string(text)); err != nil {
				return err
			}
		}
	}

	return nil
}

var (
	fence  = regexp.MustCompile("^ *```(\\w*)")
	angled = regexp.MustCompile(`<[\w-]+>`)
	inline = regexp.MustCompile("`((?:talos-operator|talos-lab|kubectl|make) [^`]+)`")
)

// Of returns the commands of one document.
func Of(name, text string) ([]Command, error) {
	var out []Command

	err := walk(text, func(begin int, language string, block []string) error {
		found, err := ofBlock(fmt.Sprintf("%s:%d", name, begin), language, block)
		out = append(out, found...)

		return err
	}, func(number int, line string) error {
		for _, m := range inline.FindAllStringSubmatch(line, -1) {
			found, err := parse(fmt.Sprintf("%s:%d", name, number),
				angled.ReplaceAllString(strings.ReplaceAll(m[1], `\|`, "|"), Unknown))
			if err != nil {
				return err
			}

			for i := range found {
				found[i].Mention = true
			}

			out = append(out, found...)
		}

		return nil
	})

	return out, err
}

// walk goes through a document in its order: block gets each code block with the number of its first line, and prose
// each line outside of them.
func walk(text string, block func(begin int, language string, lines []string) error,
	prose func(number int, line string) error,
) error {
	var (
		language string
		inside   bool
		lines    []string
		begin    int
	)

	for i, line := range strings.Split(text, "\n") {
		var err error

		switch m := fence.FindStringSubmatch(line); {
		case m != nil && inside:
			err = block(begin, language, lines)
			inside, lines = false, nil
		case m != nil:
			language, inside, begin = m[1], true, i+2
		case inside:
			lines = append(lines, line)
		default:
			err = prose(i+1, line)
		}

		if err != nil {
			return err
		}
	}

	return nil
}

func ofBlock(where, language string, block []string) ([]Command, error) {
	return parse(where, script(language, block))
}

// script is what a person types of a block; empty for one that is none to type.
func script(language string, block []string) string {
	switch language {
	case "sh":
		return strings.Join(block, "\n")
	case "console":
		return strings.Join(typed(block), "\n")
	}

	return ""
}

// typed are the lines of a session that a person typed.
func typed(session []string) []string {
	var out []string

	continued := false

	for _, line := range session {
		command, prompt := strings.CutPrefix(line, "$ ")
		if !prompt && !continued {
			continue
		}

		out = append(out, command)
		continued = strings.HasSuffix(command, `\`)
	}

	return out
}

// parse returns the commands of a script, those of functions and substitutions included.
func parse(where, script string) ([]Command, error) {
	file, err := syntax.NewParser().Parse(strings.NewReader(script), where)
	if err != nil {
		return nil, fmt.Errorf("reading a command: %w", err)
	}

	var out []Command

	syntax.Walk(file, func(n syntax.Node) bool {
		if call, ok := n.(*syntax.CallExpr); ok && len(call.Args) > 0 {
			words := make([]string, 0, len(call.Args))
			for _, w := range call.Args {
				words = append(words, wordOf(w))
			}

			out = append(out, Command{Where: where, Program: filepath.Base(words[0]), Args: words[1:]})
		}

		return true
	})

	return out, nil
}

// wordOf is the text of a word, without the brackets of one that may be left out.
func wordOf(w *syntax.Word) string {
	word := w.Lit()
	if word == "" {
		return value(w.Parts)
	}

	if bare, ok := strings.CutPrefix(word, "["); ok {
		word = bare
	}

	if !strings.Contains(word, "[") {
		word = strings.TrimSuffix(word, "]")
	}

	return strings.ReplaceAll(word, `\`, "")
}

func value(parts []syntax.WordPart) string {
	var out strings.Builder

	for _, p := range parts {
		switch p := p.(type) {
		case *syntax.Lit:
			out.WriteString(strings.ReplaceAll(p.Value, `\`, ""))
		case *syntax.SglQuoted:
			out.WriteString(p.Value)
		case *syntax.DblQuoted:
			out.WriteString(value(p.Parts))
		default:
			out.WriteString(Unknown)
		}
	}

	return out.String()
}

// Check fails where a program has no such command, or the command no such flag. Arguments are not checked of a mention.
func Check(program *cobra.Command, c Command) error {
	program.InitDefaultCompletionCmd()
	program.InitDefaultHelpCmd()

	found, rest, err := program.Find(c.Args)
	if err != nil {
		return err
	}

	found.InitDefaultHelpFlag()

	if err := found.ParseFlags(rest); err != nil && (!c.Mention || !placeholder(err)) {
		return fmt.Errorf("reading the flags: %w", err)
	}

	args := slices.DeleteFunc(found.Flags().Args(), func(arg string) bool { return arg == "…" || arg == "..." })

	if found.HasSubCommands() && len(args) > 0 {
		return fmt.Errorf("%s has no command %s", found.CommandPath(), args[0])
	}

	if c.Mention {
		return nil
	}

	if !found.Runnable() {
		return fmt.Errorf("%s needs a command", found.CommandPath())
	}

	if err := found.ValidateArgs(args); err != nil {
		return fmt.Errorf("reading the arguments: %w", err)
	}

	return found.ValidateRequiredFlags()
}

// placeholder tells whether a flag has no value, or a word in capitals for one. A text may write it so.
func placeholder(err error) bool {
	var (
		none    *pflag.ValueRequiredError
		invalid *pflag.InvalidValueError
	)

	return errors.As(err, &none) || errors.As(err, &invalid) && invalid.GetValue() == strings.ToUpper(invalid.GetValue())
}
