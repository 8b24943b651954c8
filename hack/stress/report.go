package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// failure is a test that has failed.
type failure struct {
	runs []int
	log  string // of the first time
}

// event is a line of what go test -json prints.
type event struct {
	Action, Package, Test, Output string
}

// collect adds the tests that failed in a run. A test whose parts have failed is not named beside them.
func collect(dir string, number int, found map[string]*failure) error {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return fmt.Errorf("listing the reports of a run: %w", err)
	}

	for _, file := range files {
		if err := collectFile(file, number, found); err != nil {
			return err
		}
	}

	return nil
}

func collectFile(file string, number int, found map[string]*failure) error {
	f, err := os.Open(file)
	if err != nil {
		return fmt.Errorf("reading the report of a run: %w", err)
	}
	defer f.Close()

	var failed []string

	logs := map[string]*strings.Builder{}

	for d := json.NewDecoder(f); ; {
		var e event

		if err := d.Decode(&e); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return fmt.Errorf("reading the report %s: %w", file, err)
		}

		name := strings.TrimSpace(e.Package + " " + e.Test)

		switch e.Action {
		case "output":
			if logs[name] == nil {
				logs[name] = &strings.Builder{}
			}

			logs[name].WriteString(e.Output)
		case "fail":
			failed = append(failed, name)
		}
	}

	for _, name := range failed {
		if hasParts(failed, name) {
			continue
		}

		if found[name] == nil {
			found[name] = &failure{}
			if l := logs[name]; l != nil {
				found[name].log = l.String()
			}
		}

		found[name].runs = append(found[name].runs, number)
	}

	return nil
}

// hasParts: a package whose tests, or a test whose subtests, are named as failed.
func hasParts(failed []string, name string) bool {
	return slices.ContainsFunc(failed, func(other string) bool {
		return strings.HasPrefix(other, name+" ") || strings.HasPrefix(other, name+"/")
	})
}

// again: a test that had failed before has failed in this run, too.
func again(found map[string]*failure, number int) bool {
	for _, f := range found {
		if slices.Contains(f.runs, number) {
			return true
		}
	}

	return false
}

// report prints each test that failed, with its log, and ends with the number of them.
func report(out io.Writer, runs int, found map[string]*failure) {
	for _, name := range slices.Sorted(maps.Keys(found)) {
		_, _ = fmt.Fprintf(out, "\n--- FAIL: %s, in run %v\n%s", name, found[name].runs, found[name].log)
	}

	_, _ = fmt.Fprintf(out, "\n%d runs under stress, %d tests failed\n", runs, len(found))
}
