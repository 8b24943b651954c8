package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// group is a block of constants.
type group struct {
	title string
	// conditions: these are types of conditions, not reasons.
	conditions bool
	constants  []constant
}

// constant is a type of a condition, or a reason.
type constant struct {
	name, value string
	// cause and next are what it means, and what to do. Those of a type are about a status that is not the expected one.
	cause, next string
	// on are the kinds that have this type of a condition.
	on       []string
	expected string
}

// folders have the constants, in the order of the page.
var folders = []string{"api/v1alpha1", "api/vitistack/v1alpha1", "internal"}

// read finds all constants whose names say that they are a type of a condition or a reason.
func read(module string) ([]group, error) {
	var out []group

	for _, folder := range folders {
		err := filepath.WalkDir(filepath.Join(module, folder), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}

			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution)
			if err != nil {
				return fmt.Errorf("reading the constants: %w", err)
			}

			for _, d := range file.Decls {
				if block, ok := d.(*ast.GenDecl); ok && block.Tok == token.CONST {
					out = append(out, groupsOf(block)...)
				}
			}

			return nil
		})
		if err != nil {
			return nil, err
		}
	}

	return out, nil
}

// groupsOf are the types of conditions and the reasons of a block, if it has any.
func groupsOf(block *ast.GenDecl) []group {
	types, reasons := group{conditions: true, title: title(block.Doc)}, group{title: title(block.Doc)}

	for _, s := range block.Specs {
		spec, ok := s.(*ast.ValueSpec)
		if !ok || len(spec.Values) == 0 {
			continue
		}

		name := spec.Names[0].Name
		lit, ok := spec.Values[0].(*ast.BasicLit)

		if !ok || lit.Kind != token.STRING {
			continue
		}

		switch bare := strings.TrimPrefix(name, "Machine"); {
		case strings.HasPrefix(bare, "Condition"):
			types.constants = append(types.constants, parse(name, lit.Value, spec.Doc))
		case strings.HasPrefix(bare, "Reason"):
			reasons.constants = append(reasons.constants, parse(name, lit.Value, spec.Doc))
		}
	}

	return slices.DeleteFunc([]group{types, reasons}, func(g group) bool { return len(g.constants) == 0 })
}

var prefix = regexp.MustCompile(`^(Reasons (of|about) (the )?)`)

// title is the first sentence about a block, without what the page says itself.
func title(doc *ast.CommentGroup) string {
	sentence, _, _ := strings.Cut(flat(doc.Text()), ".")
	sentence = prefix.ReplaceAllString(sentence, "")

	if sentence == "" {
		return ""
	}

	return strings.ToUpper(sentence[:1]) + sentence[1:]
}

var on = regexp.MustCompile(`^On: (.+)\. Expected: (.+)\.$`)

// parse reads the comment of a constant. What it does not find stays empty.
func parse(name, literal string, doc *ast.CommentGroup) constant {
	c := constant{name: name}
	c.value, _ = strconv.Unquote(literal)

	for paragraph := range strings.SplitSeq(doc.Text(), "\n\n") {
		text := flat(paragraph)

		if cause, ok := strings.CutPrefix(text, name+": "); ok {
			c.cause = cause
		} else if next, ok := strings.CutPrefix(text, "Next: "); ok {
			c.next = next
		} else if m := on.FindStringSubmatch(text); m != nil {
			c.on, c.expected = strings.Split(m[1], ", "), m[2]
		}
	}

	return c
}

func flat(text string) string { return strings.Join(strings.Fields(text), " ") }
