// Command recording makes a moving picture of a terminal from the output of a program, as an SVG for the README. It has
// no script and loads nothing, and is legible on light and dark pages.
//
// The lines scroll at one rate: the output of the demo has the times itself.
package main

import (
	"bufio"
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

const (
	// rows and columns of the terminal.
	rows, columns = 26, 112
	// lineHeight in pixels, and tenths of pixels that a character is wide.
	lineHeight, charWidth = 18, 73
	margin                = 14
	// perLine is how long a line stays the last one, and perPage how long the first and the last page do, in seconds.
	perLine, perPage = 0.25, 6.0
)

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func run(in io.Reader, out io.Writer) error {
	var lines []string

	scanner := bufio.NewScanner(in)
	for scanner.Scan() {
		lines = append(lines, shorten(scanner.Text()))
	}

	if err := scanner.Err(); err != nil {
		return fmt.Errorf("reading the output: %w", err)
	}

	if len(lines) == 0 {
		return errors.New("the program wrote nothing")
	}

	picture, err := draw(lines)
	if err != nil {
		return err
	}

	_, err = out.Write(picture)

	return err
}

// shorten ends a line that is wider than the terminal.
func shorten(line string) string {
	text := []rune(strings.TrimRight(line, " "))
	if len(text) > columns {
		return string(text[:columns-1]) + "…"
	}

	return string(text)
}

// style has the colours of GitHub's pages. A reader who wants no motion sees the last page.
const style = `<style>
.page { fill: #f6f8fa; stroke: #d0d7de }
text { font: 12px ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace }
text { fill: #1f2328; white-space: pre }
.step { font-weight: bold; fill: #0969da }
.good { fill: #1a7f37 }
.bad { fill: #cf222e }
@media (prefers-color-scheme: dark) {
  .page { fill: #0d1117; stroke: #30363d }
  text { fill: #e6edf3 }
  .step { fill: #58a6ff }
  .good { fill: #3fb950 }
  .bad { fill: #f85149 }
}
.lines { transform: translateY(%[1]dpx); animation: scroll %.1[2]fs infinite }
@keyframes scroll {
  0%% { transform: translateY(0) }
  %.2[3]f%% { transform: translateY(0); animation-timing-function: steps(%[4]d) }
  %.2[5]f%%, 100%% { transform: translateY(%[1]dpx) }
}
@media (prefers-reduced-motion: reduce) { .lines { animation: none } }
</style>
`

func draw(lines []string) ([]byte, error) {
	var out bytes.Buffer

	width, height := columns*charWidth/10+2*margin, rows*lineHeight+2*margin
	below := max(len(lines)-rows, 1)
	whole := float64(below)*perLine + 2*perPage

	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 %[1]d %[2]d"
width="%[1]d" height="%[2]d"><title>The output of make demo</title>
`, width, height)
	fmt.Fprintf(&out, style, min(rows-len(lines), 0)*lineHeight, whole, perPage/whole*100, below, (1-perPage/whole)*100)
	fmt.Fprintf(&out, `<rect class="page" x=".5" y=".5" width="%d" height="%d" rx="6"/>
<clipPath id="page"><rect x="%d" y="%[3]d" width="%d" height="%d"/></clipPath>
<g clip-path="url(#page)"><g class="lines">
`, width-1, height-1, margin, width-2*margin, rows*lineHeight)

	for i, line := range lines {
		if line == "" {
			continue
		}

		fmt.Fprintf(&out, `<text x="%d" y="%d"%s xml:space="preserve">`, margin, margin+i*lineHeight+13, class(line))

		if err := xml.EscapeText(&out, []byte(line)); err != nil {
			return nil, fmt.Errorf("writing a line: %w", err)
		}

		fmt.Fprint(&out, "</text>\n")
	}

	fmt.Fprint(&out, "</g></g>\n</svg>\n")

	return out.Bytes(), nil
}

// class is the colour of a line: of a heading, of something that was reached, of a disaster.
func class(line string) string {
	switch {
	case line[0] >= '1' && line[0] <= '9' && strings.Contains(line, ". "), strings.HasPrefix(line, "$ "):
		return ` class="step"`
	case strings.HasPrefix(line, "Disaster"):
		return ` class="bad"`
	case strings.HasSuffix(line, "ready"), strings.Contains(line, "healthy with"), strings.Contains(line, "Complete"),
		strings.HasPrefix(line, "The cluster is back"), strings.HasPrefix(line, "From one YAML"),
		strings.HasPrefix(line, "Every "):
		return ` class="good"`
	}

	return ""
}
