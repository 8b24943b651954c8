package main

import (
	"go/ast"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// pure are the packages that decide. They are given the time, and wait for nothing.
var pure = []string{"internal/safety", "internal/decide", "internal/check"}

// clocks are functions that read a clock or wait for one.
var clocks = map[string][]string{
	"time":   {"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick"},
	"metav1": {"Now", "NowMicro"},
}

// TestDecisionsHaveNoClock: the same evidence gives the same decision, whenever it is asked for.
func TestDecisionsHaveNoClock(t *testing.T) {
	read := 0

	for _, folder := range pure {
		for path, f := range sourcesBelow(t, folder) {
			read++

			for _, name := range clocksIn(f) {
				t.Errorf("%s uses %s: pass the time to it", path, name)
			}
		}
	}

	if read < 50 {
		t.Errorf("only %d files were read", read)
	}

	f := parseSource(t, "x.go", "package x\n\nvar a, b, c, d = time.Now(), metav1.Now, <-time.After(1), time.Time{}\n")
	if got, want := clocksIn(f), []string{"time.Now", "metav1.Now", "time.After"}; !slices.Equal(got, want) {
		t.Errorf("found %v, want %v", got, want)
	}
}

func clocksIn(f source) []string {
	var out []string

	ast.Inspect(f.parsed, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if pkg, ok := s.X.(*ast.Ident); ok && slices.Contains(clocks[pkg.Name], s.Sel.Name) {
				out = append(out, pkg.Name+"."+s.Sel.Name)
			}
		}

		return true
	})

	return out
}

// elsewhereWritten are the files other than status.go in which a controller may write a status, with the reason.
var elsewhereWritten = map[string]string{
	"frame/finish.go":                "the frame writes the status of every kind that uses it, at the end",
	"machine/controller.go":          "the static provider has no other status than the one that it fills in",
	"talosetcdbackup/work.go":        "the attempt is recorded before its first byte is written",
	"talosmachine/delete.go":         "the reset is recorded before it is requested",
	"talosmachine/forget.go":         "what was adopted is forgotten before the annotation that asked for it is removed",
	"talosmachine/resolveaddress.go": "Machine.status belongs to the provider, but for consumerRef",
}

// TestStatusIsWrittenInStatus: who knows where one controller writes its status knows it of all.
func TestStatusIsWrittenInStatus(t *testing.T) {
	const folder = "internal/controller"

	var found []string

	for path, f := range sourcesBelow(t, folder) {
		name := strings.TrimPrefix(path, folder+"/")

		if !writesStatus(f) || filepath.Base(path) == "status.go" {
			continue
		}

		found = append(found, name)

		if _, ok := elsewhereWritten[name]; !ok {
			t.Errorf("%s writes a status: move that to status.go", path)
		}
	}

	for name := range elsewhereWritten {
		if !slices.Contains(found, name) {
			t.Errorf("%s does not write a status: remove it from the list", name)
		}
	}

	for text, want := range map[string]bool{
		"r.Client.Status().Patch(ctx, o, p)": true, "c.Status().Update(ctx, o)": true, "kube.PatchStatus(ctx, c, o, b)": true,
		`c.SubResource("status").Patch(ctx, o, p)`: true, "r.Client.Patch(ctx, o, p)": false,
	} {
		if writesStatus(parseSource(t, "x.go", "package x\n\nvar _ = "+text+"\n")) != want {
			t.Errorf("%s: want %v", text, want)
		}
	}
}

// writesStatus reports whether a file has a call of a client for the status of an object.
func writesStatus(f source) bool {
	found := false

	ast.Inspect(f.parsed, func(n ast.Node) bool {
		s, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}

		if isIdent(s.X, "kube") && s.Sel.Name == "PatchStatus" {
			found = true
		}

		if call, ok := s.X.(*ast.CallExpr); ok && slices.Contains([]string{"Patch", "Update", "Apply", "Create"}, s.Sel.Name) {
			if of, ok := call.Fun.(*ast.SelectorExpr); ok && (of.Sel.Name == "Status" || of.Sel.Name == "SubResource") {
				found = true
			}
		}

		return true
	})

	return found
}

// sourcesBelow returns the files of a folder and those below it that are not tests, by their paths in the repository.
func sourcesBelow(t *testing.T, folder string) map[string]source {
	t.Helper()

	const module = "../../"

	out := map[string]source{}

	err := filepath.WalkDir(module+folder, func(path string, _ fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
			out[strings.TrimPrefix(path, module)] = parseSource(t, path, nil)
		}

		return err
	})
	if err != nil {
		t.Fatal(err)
	}

	return out
}
