package main

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "../.."

// TestPageIsCurrent: the page is what the constants say.
func TestPageIsCurrent(t *testing.T) {
	want, err := render(module)
	if err != nil {
		t.Fatal(err)
	}

	got, err := os.ReadFile(filepath.Join(module, "docs/conditions.md"))
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("docs/conditions.md is not what the constants say (%v): run make generate", err)
	}
}

// TestConstantsAreDocumented: each type of a condition and each reason says what it means and what to do, and each type which
// kinds have it.
func TestConstantsAreDocumented(t *testing.T) {
	groups, err := read(module)
	if err != nil {
		t.Fatal(err)
	}

	crds := kindsOf(t)
	found := 0

	for _, g := range groups {
		if g.title == "" {
			t.Errorf("the block of %s says not what its constants are about", g.constants[0].name)
		}

		for _, c := range g.constants {
			found++

			if c.cause == "" || c.next == "" {
				t.Errorf("the comment of %s (%s) needs %q and %q", c.name, c.value, c.name+": what it means.", "Next: what to do.")
			}

			if g.conditions && (len(c.on) == 0 || c.expected == "") {
				t.Errorf("the comment of %s (%s) needs %q", c.name, c.value, "On: kinds. Expected: status.")
			}

			for _, kind := range c.on {
				if !slices.Contains(crds, kind) {
					t.Errorf("%s is on %s, which is no kind", c.name, kind)
				}
			}
		}
	}

	if found < 150 {
		t.Errorf("only %d conditions and reasons were found", found)
	}
}

// TestReasonsAreConstants: no reason is set that is not one of the constants.
func TestReasonsAreConstants(t *testing.T) {
	sources := parseAll(t, module+"/internal", module+"/api", module+"/cmd/talos-operator")

	for _, where := range literalReasons(sources) {
		t.Errorf("%s sets a reason that is no constant: users find it in no reference", where)
	}
}

// TestLiteralReasons: a reason is found wherever it is set, and nothing else is.
func TestLiteralReasons(t *testing.T) {
	const source = `package x

func put(kind, reason string) {}
func wait(reason, message string) {}
func (s set) wait(a int) {}
func other(name string) {}

func f() {
	put("Ready", "One")
	wait("Two", "m")
	x.Eventf(o, nil, kind, "Three", "Act", "%s")
	c := C{Reason: "Four"}
	c.Reason = "Five"
	c.Status, c.Reason = 1, "Six"
	c.Reason, c.Status = both()
	put("Ready", ReasonFine)
	put("Ready", "")
	other("Fine")
	s.wait(1)
	if c.Reason == "Fine" {
	}
}
`

	files := token.NewFileSet()

	file, err := parser.ParseFile(files, "x.go", source, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}

	got := literalReasons(sources{files: files, parsed: []*ast.File{file}})
	want := []string{"x.go:9:15", "x.go:10:7", "x.go:11:25", "x.go:12:17", "x.go:13:13", "x.go:14:26"}

	if !slices.Equal(got, want) {
		t.Errorf("found %v, want %v", got, want)
	}
}

// sources are parsed files.
type sources struct {
	files  *token.FileSet
	parsed []*ast.File
}

// functionName tells functions of the same name in several packages apart. Those that are exported are called from others.
func (s sources) functionName(at token.Pos, name string) string {
	if ast.IsExported(name) {
		return name
	}

	return filepath.Dir(s.files.Position(at).Filename) + "." + name
}

func parseAll(t *testing.T, folders ...string) sources {
	t.Helper()

	s := sources{files: token.NewFileSet()}

	for _, folder := range folders {
		err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}

			file, err := parser.ParseFile(s.files, path, nil, parser.SkipObjectResolution)
			s.parsed = append(s.parsed, file)

			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}

	return s
}

// literalReasons are the places where a reason is a word in the code: an argument for a parameter named reason of any
// function of these files, a field Reason, and the reason of an event.
func literalReasons(s sources) []string {
	// The recorder belongs to another module.
	parameters := map[string][]int{"Eventf": {3}}

	for _, file := range s.parsed {
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok {
				if i := reasonOf(f); i >= 0 {
					name := s.functionName(f.Pos(), f.Name.Name)
					parameters[name] = append(parameters[name], i)
				}
			}
		}
	}

	var out []string

	found := func(e ast.Expr) {
		if lit, ok := e.(*ast.BasicLit); ok && lit.Kind == token.STRING && lit.Value != `""` {
			out = append(out, s.files.Position(e.Pos()).String())
		}
	}

	for _, file := range s.parsed {
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.KeyValueExpr:
				if key, ok := n.Key.(*ast.Ident); ok && key.Name == "Reason" {
					found(n.Value)
				}
			case *ast.AssignStmt:
				for i, to := range n.Lhs {
					field, ok := to.(*ast.SelectorExpr)
					if ok && field.Sel.Name == "Reason" && len(n.Rhs) == len(n.Lhs) {
						found(n.Rhs[i])
					}
				}
			case *ast.CallExpr:
				for _, i := range parameters[s.functionName(n.Pos(), callee(n))] {
					if i < len(n.Args) {
						found(n.Args[i])
					}
				}
			}

			return true
		})
	}

	return out
}

// reasonOf is the index of the parameter named reason, or -1.
func reasonOf(f *ast.FuncDecl) int {
	i := 0

	for _, field := range f.Type.Params.List {
		for _, name := range field.Names {
			if name.Name == "reason" {
				return i
			}

			i++
		}
	}

	return -1
}

func callee(call *ast.CallExpr) string {
	switch f := call.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		return f.Sel.Name
	}

	return ""
}

// kindsOf are the kinds of the CRDs.
func kindsOf(t *testing.T) []string {
	t.Helper()

	paths, err := filepath.Glob(module + "/config/crd/*.yaml")
	if err != nil {
		t.Fatal(err)
	}

	var out []string

	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}

		if m := regexp.MustCompile(`(?m)^    kind: (\w+)$`).FindSubmatch(text); m != nil {
			out = append(out, string(m[1]))
		}
	}

	return out
}

// TestParse: the parts of a comment are found, in any order, and what is missing stays empty.
func TestParse(t *testing.T) {
	doc := &ast.CommentGroup{List: []*ast.Comment{
		{Text: "// ConditionX: it"}, {Text: "// works."}, {Text: "//"}, {Text: "// On: A, B. Expected: True."}, {Text: "//"}, {Text: "// Next: wait."},
	}}

	c := parse("ConditionX", strconv.Quote("X"), doc)
	if c.cause != "it works." || c.next != "wait." || c.expected != "True" || !slices.Equal(c.on, []string{"A", "B"}) {
		t.Errorf("got %+v", c)
	}

	if c := parse("ConditionX", strconv.Quote("X"), nil); c.cause != "" || c.next != "" || c.on != nil {
		t.Errorf("from no comment: %+v", c)
	}
}
