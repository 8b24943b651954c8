package main

import (
	"go/ast"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
)

// TestAnnotationsAreListed: each annotation of the operator, wherever it is declared, is in the reference that users read.
func TestAnnotationsAreListed(t *testing.T) {
	var listed []string
	for _, a := range slices.Concat(v1alpha1.Annotations(), v1alpha1.ManagedAnnotations(), vitistackv1alpha1.Annotations()) {
		listed = append(listed, a.Name)
	}

	var declared []string

	for _, root := range []string{"../../api", "../../internal"} {
		err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
			if err == nil && strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
				declared = append(declared, annotationsIn(parseSource(t, path, nil))...)
			}

			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}

	for _, name := range declared {
		if !slices.Contains(listed, name) {
			t.Errorf("the annotation %s is not in the tables of docs/api.md: add it to a list of api", name)
		}
	}

	for _, name := range listed {
		if !slices.Contains(declared, name) {
			t.Errorf("the annotation %s is listed, and no constant whose name ends with Annotation declares it", name)
		}
	}
}

// annotationsIn returns the values of constants whose names say that they are annotations of the operator.
func annotationsIn(f source) []string {
	var out []string

	ast.Inspect(f.parsed, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}

		for i, name := range spec.Names {
			if !strings.HasSuffix(name.Name, "Annotation") || i >= len(spec.Values) {
				continue
			}

			literal, ok := spec.Values[i].(*ast.BasicLit)
			if !ok {
				continue
			}

			value, err := strconv.Unquote(literal.Value)
			if err == nil && (strings.HasPrefix(value, v1alpha1.AnnotationPrefix) || strings.HasPrefix(value, "cluster.vitistack.io/")) {
				out = append(out, value)
			}
		}

		return true
	})

	return out
}
