package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
)

// pkg is a package with its types.
type pkg struct {
	dir, name string
	files     map[string]*source // by path
	set       *token.FileSet
	info      *types.Info
}

// source is one file.
type source struct {
	path, base string
	content    []byte
	tree       *ast.File
}

// listed is what go list says of a package.
type listed struct {
	Dir, ImportPath, Name, Export string
	GoFiles                       []string
}

// load reads the files that are mutated, and the types of the whole package.
func load(ctx context.Context, t target) (*pkg, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-export", "-deps", "-json=Dir,ImportPath,Name,Export,GoFiles",
		"./"+t.dir)

	var failure bytes.Buffer

	cmd.Stderr = &failure

	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("listing the package: %w\n%s", err, failure.Bytes())
	}

	exports := map[string]string{}

	var last listed

	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var l listed
		if err := d.Decode(&l); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("reading the list of packages: %w", err)
		}

		exports[l.ImportPath], last = l.Export, l // the package itself comes last
	}

	return parse(last, t, exports)
}

func parse(l listed, t target, exports map[string]string) (*pkg, error) {
	p := &pkg{
		dir: l.Dir, name: l.Name, files: map[string]*source{}, set: token.NewFileSet(),
		info: &types.Info{Types: map[ast.Expr]types.TypeAndValue{}},
	}

	var trees []*ast.File

	for _, name := range l.GoFiles {
		path := filepath.Join(l.Dir, name)

		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", path, err)
		}

		tree, err := parser.ParseFile(p.set, path, text, parser.SkipObjectResolution)
		if err != nil {
			return nil, fmt.Errorf("parsing: %w", err)
		}

		trees = append(trees, tree)

		if len(t.files) == 0 || slices.Contains(t.files, name) {
			p.files[path] = &source{path: path, base: name, content: text, tree: tree}
		}
	}

	open := func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) }
	config := types.Config{Importer: importer.ForCompiler(p.set, "gc", open)}

	if _, err := config.Check(l.ImportPath, p.set, trees, p.info); err != nil {
		return nil, fmt.Errorf("checking the types: %w", err)
	}

	return p, nil
}
