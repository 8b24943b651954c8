// Command releasenotes prints what changed since a release, from the subjects of the commits, grouped by their scopes.
package main

import (
	"bytes"
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
)

func main() {
	from := flag.String("from", "", "release before, which is not included; empty for all commits")
	to := flag.String("to", "HEAD", "release that the notes are for")
	flag.Parse()

	subjects, err := log(*from, *to)
	if err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}

	fmt.Print(render(*from, *to, subjects))
}

// log are the subjects of the commits, the oldest first. A merge is none: what it merged is listed.
func log(from, to string) ([]string, error) {
	revisions := to
	if from != "" {
		revisions = from + ".." + to
	}

	var stderr bytes.Buffer

	args := []string{"log", "--no-merges", "--reverse", "--format=%s", revisions, "--"}
	cmd := exec.CommandContext(context.Background(), "git", args...)
	cmd.Stderr = &stderr

	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("reading the commits of %s: %w: %s", revisions, err, bytes.TrimSpace(stderr.Bytes()))
	}

	return strings.Split(strings.TrimSpace(string(out)), "\n"), nil
}

// other is the heading of commits without a scope.
const other = "other"

// render makes the notes. Commits of several scopes, such as "cli, app: …", stand under the first one.
func render(from, to string, subjects []string) string {
	type group struct {
		scope   string
		changes []string
	}

	var groups []*group

	for _, subject := range subjects {
		scope, change := split(subject)
		if change == "" {
			continue
		}

		i := slices.IndexFunc(groups, func(g *group) bool { return g.scope == scope })
		if i < 0 {
			i = len(groups)
			groups = append(groups, &group{scope: scope})
		}

		groups[i].changes = append(groups[i].changes, change)
	}

	slices.SortFunc(groups, func(a, b *group) int {
		return cmp.Or(boolean(a.scope == other)-boolean(b.scope == other), strings.Compare(a.scope, b.scope))
	})

	var out strings.Builder

	fmt.Fprintf(&out, "# Changes in %s", to)

	if from != "" {
		fmt.Fprintf(&out, " since %s", from)
	}

	out.WriteString("\n")

	for _, g := range groups {
		fmt.Fprintf(&out, "\n## %s\n\n", g.scope)

		for _, change := range g.changes {
			fmt.Fprintf(&out, "* %s\n", change)
		}
	}

	return out.String()
}

// split takes a subject apart. A scope is a list of words without spaces, so that a sentence with a colon has none.
func split(subject string) (scope, change string) {
	before, after, ok := strings.Cut(strings.TrimSpace(subject), ": ")
	scope, _, _ = strings.Cut(before, ", ")

	for part := range strings.SplitSeq(before, ", ") {
		ok = ok && part != "" && !strings.Contains(part, " ")
	}

	if !ok {
		return other, strings.TrimSpace(subject)
	}

	return scope, strings.TrimSpace(after)
}

func boolean(b bool) int {
	if b {
		return 1
	}

	return 0
}
