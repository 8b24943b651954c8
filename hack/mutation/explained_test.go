package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestExplained: each explanation is about code that still is in its function. That it survives shows a run.
func TestExplained(t *testing.T) {
	known, err := readExplained()
	if err != nil {
		t.Fatal(err)
	}

	for dir, e := range known {
		i := slices.IndexFunc(targets, func(t target) bool { return t.dir == dir })
		if i < 0 {
			t.Errorf("%s is not mutated", dir)

			continue
		}

		for _, w := range e.Words {
			if code := functions(t, dir, w.File)[w.Func]; code == "" {
				t.Errorf("%s/%s has no function %s", dir, w.File, w.Func)
			}
		}

		for _, x := range e.Survivors {
			if !strings.Contains(functions(t, dir, x.File)[x.Func], x.Code) {
				t.Errorf("%s/%s: %s has no code %s", dir, x.File, x.Func, x.Code)
			}

			if files := targets[i].files; x.Why == "" || len(files) > 0 && !slices.Contains(files, x.File) {
				t.Errorf("%s/%s is not mutated, or it is not explained why %s may survive", dir, x.File, x.Code)
			}
		}
	}
}

// functions returns the code of the functions in a file, with single spaces.
func functions(t *testing.T, dir, name string) map[string]string {
	t.Helper()

	path := filepath.Join("..", "..", dir, name)

	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	set := token.NewFileSet()

	tree, err := parser.ParseFile(set, path, text, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}

	out := map[string]string{}

	for _, d := range tree.Decls {
		if f, ok := d.(*ast.FuncDecl); ok {
			code := text[set.Position(f.Pos()).Offset:set.Position(f.End()).Offset]
			out[f.Name.Name] += strings.Join(strings.Fields(string(code)), " ")
		}
	}

	return out
}

// TestOneExplanationEach: an explanation covers one mutant. A second one with the same code has to be explained, too,
// and an explanation that nothing needed is reported.
func TestOneExplanationEach(t *testing.T) {
	x := &explanation{File: "next.go", Func: "id", Change: negated, Code: "c.Try", Why: "a hash"}
	y := &explanation{File: "next.go", Func: "id", Change: negated, Code: "c.Etcd", Why: "a hash, too"}
	e := &explanations{Survivors: []*explanation{x, y}}
	m := mutant{File: "next.go", Func: "id", Change: negated, Code: "c.Try"}

	if first, second := e.why(m), e.why(m); first != "a hash" || second != "" {
		t.Errorf("%q, then %q", first, second)
	}

	if got := e.unused(); !slices.Equal(got, []string{"next.go id: negated c.Etcd"}) {
		t.Errorf("unused: %q", got)
	}
}
