package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestReasonsAreDocumented: whoever meets a condition finds its type and its reason in the guides.
func TestReasonsAreDocumented(t *testing.T) {
	guides, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}

	var text strings.Builder

	for _, file := range guides {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}

		if filepath.Base(file) != "api.md" {
			text.Write(content)
		}
	}

	found := 0

	for _, folder := range []string{"../../api", "../../internal"} {
		for name, where := range reasons(t, folder) {
			found++

			if !strings.Contains(text.String(), "`"+name+"`") {
				t.Errorf("no guide in docs tells of %s, which %s declares", name, where)
			}
		}
	}

	if found < 150 {
		t.Errorf("only %d conditions and reasons were found", found)
	}
}

// reasons are the constants that are reasons or types of conditions, each with the file that declares it.
func reasons(t *testing.T, folder string) map[string]string {
	t.Helper()

	out := map[string]string{}

	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}

		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}

		for name := range constants(file) {
			out[name] = path
		}

		return nil
	})
	if err != nil {
		t.Fatal(err)
	}

	return out
}

// constants are the values of a file's constants whose names say that they are a reason or a condition.
func constants(file *ast.File) map[string]bool {
	out := map[string]bool{}

	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}

		for i, name := range spec.Names {
			if !strings.HasPrefix(name.Name, "Reason") && !strings.HasPrefix(name.Name, "Condition") || i >= len(spec.Values) {
				continue
			}

			if value, ok := spec.Values[i].(*ast.BasicLit); ok && value.Kind == token.STRING {
				if text, err := strconv.Unquote(value.Value); err == nil {
					out[text] = true
				}
			}
		}

		return false
	})

	return out
}
