// Command conditions writes the reference of conditions and reasons from their constants. The comment of a constant is
//
//	ReasonX: what it means.
//
//	Next: what to do.
//
// and that of a type of a condition has "On: its kinds. Expected: its status." in between. A mention of a document,
// such as docs/restore.md#what-is-refused, becomes a link.
package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: conditions MODULE-FOLDER OUTPUT")
		os.Exit(2)
	}

	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func run(module, output string) error {
	text, err := render(module)
	if err != nil {
		return err
	}

	return os.WriteFile(output, text, 0o600)
}

const preface = `# Conditions and reasons

Generated from the constants by ` + "`make generate`" + `. Each condition of each object, and each reason: what it
means, and what to do. The event of a transition has the reason of the condition; a few reasons are those of events
only. [Troubleshooting](troubleshooting.md) begins with symptoms.
`

// render makes the page.
func render(module string) ([]byte, error) {
	groups, err := read(module)
	if err != nil {
		return nil, err
	}

	l := linker{docs: filepath.Join(module, "docs")}
	out := bytes.NewBufferString(preface)

	writeKinds(out, groups)

	for _, g := range groups {
		if !g.conditions {
			continue
		}

		fmt.Fprintf(out, "\n## %s\n\n| condition | expected | what it means | what to do otherwise |\n", g.title)
		fmt.Fprint(out, "|---|---|---|---|\n")

		for _, c := range g.constants {
			fmt.Fprintf(out, "| `%s` | %s | %s | %s |\n", c.value, c.expected, l.cell(c.cause), l.cell(c.next))
		}
	}

	fmt.Fprint(out, "\n## Reasons\n")

	for _, g := range groups {
		if g.conditions {
			continue
		}

		fmt.Fprintf(out, "\n### %s\n\n| reason | what it means | what to do |\n|---|---|---|\n", g.title)

		for _, c := range g.constants {
			fmt.Fprintf(out, "| `%s` | %s | %s |\n", c.value, l.cell(c.cause), l.cell(c.next))
		}
	}

	return out.Bytes(), l.err
}

// writeKinds lists the conditions of each kind of object.
func writeKinds(out *bytes.Buffer, groups []group) {
	conditions := map[string][]string{}

	for _, g := range groups {
		for _, c := range g.constants {
			for _, kind := range c.on {
				if !slices.Contains(conditions[kind], "`"+c.value+"`") {
					conditions[kind] = append(conditions[kind], "`"+c.value+"`")
				}
			}
		}
	}

	fmt.Fprint(out, "\n## Conditions of each object\n\n| object | conditions |\n|---|---|\n")

	for _, kind := range kinds(conditions) {
		fmt.Fprintf(out, "| %s | %s |\n", kind, strings.Join(conditions[kind], ", "))
	}
}

// kinds are the kinds of objects, in their order in the alphabet.
func kinds(conditions map[string][]string) []string {
	out := make([]string, 0, len(conditions))
	for kind := range conditions {
		out = append(out, kind)
	}

	slices.Sort(out)

	return out
}

// linker makes links of the documents that a text mentions.
type linker struct {
	// docs is the folder of the documents.
	docs string
	// err is the first mention that leads nowhere.
	err error
}

var mention = regexp.MustCompile(`docs/([\w-]+\.md)(#[\w-]+)?`)

// cell is a text as the cell of a table.
func (l *linker) cell(text string) string {
	return strings.ReplaceAll(mention.ReplaceAllStringFunc(text, func(m string) string {
		parts := mention.FindStringSubmatch(m)

		title, err := l.title(parts[1], strings.TrimPrefix(parts[2], "#"))
		if err != nil && l.err == nil {
			l.err = err
		}

		return "[" + title + "](" + parts[1] + parts[2] + ")"
	}), "|", `\|`)
}

var (
	heading = regexp.MustCompile(`(?m)^#+ +(.+)$`)
	dropped = regexp.MustCompile(`[^\p{L}\p{N}\-_ ]`)
)

// title is the heading of a section of a document, or of the document itself.
func (l *linker) title(name, section string) (string, error) {
	text, err := os.ReadFile(filepath.Join(l.docs, name))
	if err != nil {
		return "", fmt.Errorf("reading a document that a constant mentions: %w", err)
	}

	for _, h := range heading.FindAllStringSubmatch(string(text), -1) {
		address := strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(h[1]), ""), " ", "-")
		if section == "" || address == section {
			return h[1], nil
		}
	}

	return "", fmt.Errorf("docs/%s has no section %s", name, section)
}
