package main

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	module = "github.com/talos-operator/talos-operator/"
	// kinds is the level of the packages that have one kind each.
	kinds = 10
)

// TestLadder: each package of the product has a level in docs/architecture.md, and imports nothing above it. A package of
// one kind imports that of no other one.
func TestLadder(t *testing.T) {
	levels := readLevels(t)
	listed := len(levels)

	out, err := exec.Command("go", "list", "-f", "{{.ImportPath}} {{join .Imports \" \"}}",
		"../../api/...", "../../internal/...", "../../cmd/talos-operator/...").Output()
	if err != nil {
		t.Fatal(err)
	}

	lines := strings.Split(strings.TrimSpace(string(out)), "\n")

	for _, line := range lines {
		fields := strings.Fields(line)
		name := strings.TrimPrefix(fields[0], module)

		level, ok := levels[name]
		if !ok {
			t.Errorf("docs/architecture.md gives %s no level", name)

			continue
		}

		for _, i := range fields[1:] {
			of, ours := strings.CutPrefix(i, module)
			if !ours || strings.HasPrefix(of, "config") || strings.HasPrefix(of, "examples") {
				continue
			}

			if up := levels[of]; up > level || up == kinds && level == kinds {
				t.Errorf("%s of level %d imports %s of level %d", name, level, of, up)
			}
		}
	}

	if len(lines) != listed {
		t.Errorf("docs/architecture.md lists %d packages, and there are %d", listed, len(lines))
	}
}

// TestLabLadder: each package of the lab is in its table, and imports only those of the rows above and of its own.
func TestLabLadder(t *testing.T) {
	text, err := os.ReadFile("../../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}

	_, table, ok := strings.Cut(string(text), "| packages of `lab/` |")
	if !ok {
		t.Fatal("docs/architecture.md has no table of the lab")
	}

	table, _, _ = strings.Cut(table, "\n\n")
	rows := map[string]int{}

	for i, row := range strings.Split(table, "\n")[2:] {
		for _, name := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(strings.Split(row, "|")[1], -1) {
			for _, one := range expand(name[1]) {
				rows["lab/"+one] = i + 1
			}
		}
	}

	rows["lab"] = rows["lab/lab"]
	delete(rows, "lab/lab")

	out, err := exec.Command("go", "list", "-f", "{{.ImportPath}} {{join .Imports \" \"}}", "../../lab/...").Output()
	if err != nil {
		t.Fatal(err)
	}

	lines := strings.Split(strings.TrimSpace(string(out)), "\n")

	for _, line := range lines {
		fields := strings.Fields(line)
		name := strings.TrimPrefix(fields[0], module)

		if rows[name] == 0 {
			t.Errorf("docs/architecture.md has no row for %s", name)

			continue
		}

		for _, i := range fields[1:] {
			if of := strings.TrimPrefix(i, module); strings.HasPrefix(of, "lab") && rows[of] > rows[name] {
				t.Errorf("%s of row %d imports %s of row %d", name, rows[name], of, rows[of])
			}
		}
	}

	if len(lines) != len(rows) {
		t.Errorf("docs/architecture.md lists %d packages of the lab, and there are %d", len(rows), len(lines))
	}
}

// readLevels returns the level of each package in the table of docs/architecture.md.
func readLevels(t *testing.T) map[string]int {
	t.Helper()

	text, err := os.ReadFile("../../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}

	levels := map[string]int{}
	row := regexp.MustCompile(`(?m)^\| (\d+) \| (.*?) \|`)

	for _, m := range row.FindAllStringSubmatch(string(text), -1) {
		level, err := strconv.Atoi(m[1])
		if err != nil {
			t.Fatal(err)
		}

		for _, name := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(m[2], -1) {
			for _, one := range expand(name[1]) {
				levels[one] = level
			}
		}
	}

	return levels
}

// expand returns what a name with alternatives in braces stands for.
func expand(name string) []string {
	before, rest, ok := strings.Cut(name, "{")
	if !ok {
		return []string{name}
	}

	inside, after, _ := strings.Cut(rest, "}")
	out := strings.Split(inside, ",")

	for i := range out {
		out[i] = before + out[i] + after
	}

	return slices.Compact(out)
}
