package talconfig

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// Problem is one thing that is wrong in a talconfig.yaml.
type Problem struct {
	// File is the name of the file, without its folder.
	File string
	// Line in the file, from 1; 0 if it is not known.
	Line int
	// Path of the field, for example nodes[0].ipAddress.
	Path string
	// Text says what is wrong, and what would be right. It never has a value that may be a secret.
	Text string
}

// String renders the problem as compilers do.
func (p Problem) String() string {
	var b strings.Builder

	b.WriteString(p.File)

	if p.Line > 0 {
		fmt.Fprintf(&b, ":%d", p.Line)
	}

	b.WriteString(": ")

	if p.Path != "" {
		b.WriteString(p.Path + ": ")
	}

	b.WriteString(p.Text)

	return b.String()
}

// Problems are all things that are wrong, in the order of the file.
type Problems []Problem

// Error implements error.
func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i, problem := range p {
		lines[i] = problem.String()
	}

	return strings.Join(lines, "; ")
}

// report collects problems.
type report struct {
	file     string
	lines    map[string]int
	problems Problems
}

func (r *report) add(path, format string, args ...any) {
	r.problems = append(r.problems, Problem{
		File: filepath.Base(r.file), Line: r.lineOf(path), Path: path, Text: fmt.Sprintf(format, args...),
	})
}

// lineOf returns the line of the field, or of the nearest one above it.
func (r *report) lineOf(path string) int {
	for path != "" {
		if line, ok := r.lines[path]; ok {
			return line
		}

		path = path[:max(0, strings.LastIndexAny(path, ".["))]
	}

	return 0
}

func (r *report) err() error {
	if len(r.problems) == 0 {
		return nil
	}

	slices.SortStableFunc(r.problems, func(a, b Problem) int { return a.Line - b.Line })

	return slices.Compact(r.problems)
}
