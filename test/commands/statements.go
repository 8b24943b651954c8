package commands

import (
	"fmt"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// Statement is what a document has a person type at once: a line of a block, with those that it goes on in.
type Statement struct {
	// Document is its path in the module, Line where the statement begins; that of the block in a session with output.
	Document string
	Line     int
	// Text is what is typed, without comments after it.
	Text string
}

func (s Statement) String() string { return fmt.Sprintf("%s:%d: %s", s.Document, s.Line, s.Text) }

// Statements returns those of all documents of the module, by document, in their order.
func Statements(module string) (map[string][]Statement, error) {
	out := map[string][]Statement{}

	err := each(module, func(name, text string) error {
		found, err := StatementsOf(name, text)
		if len(found) > 0 {
			out[name] = found
		}

		return err
	})

	return out, err
}

// StatementsOf returns the statements of one document: those of blocks marked sh and console.
func StatementsOf(name, text string) ([]Statement, error) {
	var out []Statement

	err := walk(text, func(begin int, language string, block []string) error {
		typed := script(language, block)

		file, err := syntax.NewParser().Parse(strings.NewReader(typed), fmt.Sprintf("%s:%d", name, begin))
		if err != nil {
			return fmt.Errorf("reading a command: %w", err)
		}

		last := uint(0)

		for _, stmt := range file.Stmts {
			text, line := typed[stmt.Pos().Offset():stmt.End().Offset()], stmt.Pos().Line()
			if line == last { // of two statements in a line, the second one may need the first one
				out[len(out)-1].Text += " " + text

				continue
			}

			last = line
			at := begin

			if language == "sh" {
				at += int(line) - 1
			}

			out = append(out, Statement{Document: name, Line: at, Text: text})
		}

		return nil
	}, func(int, string) error { return nil })

	return out, err
}
