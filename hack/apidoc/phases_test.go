package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestPhases: each phase of a reconciler is in the file of its name, so that readers find it.
func TestPhases(t *testing.T) {
	folders, err := filepath.Glob("../../internal/controller/*")
	if err != nil {
		t.Fatal(err)
	}

	found := 0

	for _, folder := range folders {
		paths, err := filepath.Glob(filepath.Join(folder, "*.go"))
		if err != nil {
			t.Fatal(err)
		}

		var files []source

		for _, path := range paths {
			if !strings.HasSuffix(path, "_test.go") {
				files = append(files, parseSource(t, path, nil))
			}
		}

		phases, misplaced := placesOf(files)
		found += len(phases)

		for _, m := range misplaced {
			t.Errorf("%s: %s", strings.TrimPrefix(folder, "../../"), m)
		}
	}

	if found < 75 {
		t.Errorf("only %d phases were found", found)
	}
}

// TestPlacesOf: a phase is found however it is passed on, and one in another file is told.
func TestPlacesOf(t *testing.T) {
	const controller = `package x

func (r *Reconciler) Reconcile(s *scope) {
	frame.Run(ctx, s, r.first, frame.Always(r.second), frame.Always(r.third(upgrade.Talos)))
}

func (r *Reconciler) observeOnly(s *scope) {
	phases := []frame.Phase[*scope]{r.fourth}
	phases = append(phases, r.fifthOne)
	names = append(names, r.noPhase)
	frame.Run(ctx, s, phases...)
	r.noPhase()
}

func (r *Reconciler) second() {}
func (r *Reconciler) noPhase() {}
func (s *scope) first() {}
`

	const others = `package x

func (r *Reconciler) fifthOne() {}
func (r *Reconciler) fourth() {}
`

	phases, misplaced := placesOf([]source{
		parseSource(t, "controller.go", controller), parseSource(t, "fifthone.go", others),
		parseSource(t, "first.go", "package x\n\nfunc (r *Reconciler) first() {}\n"),
		parseSource(t, "third.go", "package x\n\nfunc (r Reconciler) third() {}\n"),
	})

	if want := []string{"fifthOne", "first", "fourth", "second", "third"}; !slices.Equal(phases, want) {
		t.Errorf("found the phases %v, want %v", phases, want)
	}

	want := []string{
		"the phase fourth is in fifthone.go; move it to fourth.go",
		"the phase second is in controller.go; move it to second.go",
	}
	if !slices.Equal(misplaced, want) {
		t.Errorf("got %q, want %q", misplaced, want)
	}
}

// source is a file of a controller.
type source struct {
	name   string
	parsed *ast.File
}

func parseSource(t *testing.T, path string, text any) source {
	t.Helper()

	parsed, err := parser.ParseFile(token.NewFileSet(), path, text, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}

	return source{name: filepath.Base(path), parsed: parsed}
}

// placesOf returns the names of a controller's phases, and which of them are not in the file of their name.
func placesOf(files []source) (phases, misplaced []string) {
	for _, f := range files {
		for _, d := range f.parsed.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && receiverOf(fn) != "" {
				phases = append(phases, phasesIn(fn)...)
			}
		}
	}

	slices.Sort(phases)
	phases = slices.Compact(phases)

	for _, p := range phases {
		want := strings.ToLower(p) + ".go"
		if in := declaredIn(files, p); in != want {
			misplaced = append(misplaced, fmt.Sprintf("the phase %s is in %s; move it to %s", p, in, want))
		}
	}

	return phases, misplaced
}

// declaredIn returns the name of the file that declares a method of the Reconciler; empty if none does.
func declaredIn(files []source, method string) string {
	for _, f := range files {
		for _, d := range f.parsed.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Name.Name != method || receiverOf(fn) == "" {
				continue
			}

			of := fn.Recv.List[0].Type
			if star, ok := of.(*ast.StarExpr); ok {
				of = star.X
			}

			if name, ok := of.(*ast.Ident); ok && name.Name == "Reconciler" {
				return f.name
			}
		}
	}

	return ""
}

func receiverOf(fn *ast.FuncDecl) string {
	if fn.Recv == nil || len(fn.Recv.List[0].Names) == 0 {
		return ""
	}

	return fn.Recv.List[0].Names[0].Name
}

// phasesIn returns the methods that a function passes to frame.Run, or collects in a list of phases.
func phasesIn(fn *ast.FuncDecl) []string {
	receiver, lists := receiverOf(fn), map[string]bool{}

	var out []string

	collect := func(of []ast.Expr) {
		for _, e := range of {
			ast.Inspect(e, func(n ast.Node) bool {
				if s, ok := n.(*ast.SelectorExpr); ok && isIdent(s.X, receiver) {
					out = append(out, s.Sel.Name)
				}

				return true
			})
		}
	}

	ast.Inspect(fn, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			if list, ok := n.Rhs[0].(*ast.CompositeLit); ok && isPhases(list.Type) {
				if name, ok := n.Lhs[0].(*ast.Ident); ok {
					lists[name.Name] = true
				}
			}
		case *ast.CompositeLit:
			if isPhases(n.Type) {
				collect(n.Elts)
			}
		case *ast.CallExpr:
			if s, ok := n.Fun.(*ast.SelectorExpr); ok && isIdent(s.X, "frame") && s.Sel.Name == "Run" {
				collect(n.Args[2:])
			}

			if isIdent(n.Fun, "append") {
				if list, ok := n.Args[0].(*ast.Ident); ok && lists[list.Name] {
					collect(n.Args[1:])
				}
			}
		}

		return true
	})

	return out
}

// isPhases reports whether a type is a list of frame.Phase.
func isPhases(e ast.Expr) bool {
	list, ok := e.(*ast.ArrayType)
	if !ok {
		return false
	}

	of, ok := list.Elt.(*ast.IndexExpr)
	if !ok {
		return false
	}

	phase, ok := of.X.(*ast.SelectorExpr)

	return ok && isIdent(phase.X, "frame") && phase.Sel.Name == "Phase"
}

func isIdent(e ast.Expr, name string) bool {
	i, ok := e.(*ast.Ident)

	return ok && i.Name == name
}
