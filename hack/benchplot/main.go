// Command benchplot draws the curves of benchmarks as an SVG. It reads what talos-lab bench-scale printed from files
// that are named after their number of clusters, such as 50.jsonl, or what talos-lab bench-backup printed from one
// file.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// run is what one run measured, at a place of the horizontal axis.
type run struct {
	x      int
	values map[string]float64
}

// plot is a drawing of several panels over one axis.
type plot struct {
	axis   string
	panels []panel
}

// panel is one small plot.
type panel struct {
	title, unit string
	series      []series
	// target is what is to be reached; zero draws no line.
	target float64
	// proportional draws what would be proportional to the first run.
	proportional bool
}

type series struct{ metric, label, color string }

var scale = plot{axis: "clusters", panels: []panel{
	{title: "All clusters ready", unit: "s", target: 300, proportional: true, series: []series{
		{"all_ready_s", "all ready", "#0b62a4"},
	}},
	{title: "Processor time of the operator until then", unit: "s", proportional: true, series: []series{
		{"manager_cpu_s", "CPU", "#0b62a4"},
	}},
	{title: "Peak memory of the operator", unit: "MiB", target: 800, series: []series{
		{"manager_rss_peak_mib", "RSS", "#0b62a4"},
	}},
	{title: "Idle operator", unit: "cores", target: 0.05, series: []series{
		{"idle_cpu_share", "idle", "#0b62a4"},
	}},
	{title: "Dead node noticed", unit: "s", target: 5, series: []series{
		{"node_down_detect_p50_s", "p50", "#7cb5ec"}, {"node_down_detect_p99_s", "p99", "#0b62a4"},
	}},
	{title: "Caught up after a restart", unit: "s", target: 60, proportional: true, series: []series{
		{"restart_catchup_s", "caught up", "#0b62a4"},
	}},
}}

// Colors of the operator and of what it is compared with.
const (
	ours, theirs, bare = "#0b62a4", "#7cb5ec", "#aaa"
)

var backup = plot{axis: "MiB of database", panels: []panel{
	{title: "Plain", unit: "MiB/s", series: []series{
		{"operator_plain_mib_s", "operator", ours},
		{"libraries_with_node_plain_mib_s", "libraries", theirs},
		{"libraries_plain_mib_s", "from a file", bare},
	}},
	{title: "zstd and age", unit: "MiB/s", series: []series{
		{"operator_zstd_age_mib_s", "operator", ours},
		{"libraries_with_node_zstd_age_mib_s", "libraries", theirs},
		{"libraries_zstd_age_mib_s", "from a file", bare},
	}},
	{title: "Memory growth of the operator", unit: "MiB", target: 64, series: []series{
		{"rss_growth_mib", "RSS", ours},
	}},
}}

func main() {
	if err := draw(os.Stdout, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

// draw writes the SVG for some files.
func draw(out io.Writer, files []string) error {
	var runs []run

	p := scale

	for _, file := range files {
		values, err := read(file)
		if err != nil {
			return err
		}

		if bySize := sizes(values); len(bySize) > 0 {
			p, runs = backup, append(runs, bySize...)

			continue
		}

		clusters, err := strconv.Atoi(strings.TrimSuffix(filepath.Base(file), ".jsonl"))
		if err != nil || clusters < 1 {
			return fmt.Errorf("the name of %s has to be a number of clusters", file)
		}

		runs = append(runs, newRun(clusters, values))
	}

	if len(runs) == 0 {
		return fmt.Errorf("usage: benchplot 50.jsonl 100.jsonl ... > plot.svg, or benchplot backup.jsonl > plot.svg")
	}

	slices.SortFunc(runs, func(a, b run) int { return a.x - b.x })

	w := bufio.NewWriter(out)
	p.svg(w, runs)

	return w.Flush()
}

// value is one line of a benchmark.
type value struct {
	Name    string  `json:"name"`
	Value   float64 `json:"value"`
	SizeMiB int     `json:"size_mib"`
}

func read(file string) ([]value, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("opening a run: %w", err)
	}

	defer f.Close()

	var list []value

	for dec := json.NewDecoder(f); dec.More(); {
		var v value

		if err := dec.Decode(&v); err != nil {
			return nil, fmt.Errorf("reading %s: %w", file, err)
		}

		list = append(list, v)
	}

	return list, nil
}

func newRun(x int, values []value) run {
	r := run{x: x, values: map[string]float64{}}
	for _, v := range values {
		r.values[v.Name] = v.Value
	}

	return r
}

// sizes groups the values by the size that they were measured with; those without one are left out.
func sizes(values []value) []run {
	bySize := map[int][]value{}

	for _, v := range values {
		if v.SizeMiB > 0 {
			bySize[v.SizeMiB] = append(bySize[v.SizeMiB], v)
		}
	}

	var runs []run
	for size, list := range bySize {
		runs = append(runs, newRun(size, list))
	}

	return runs
}

// Sizes of the drawing.
const (
	columns       = 3
	panelWidth    = 320
	panelHeight   = 230
	left, right   = 52, 18
	top, bottom   = 34, 40
	plotWidth     = panelWidth - left - right
	plotHeight    = panelHeight - top - bottom
	headroom      = 1.1
	ticks         = 4
	legendSpacing = 62
)

func (pl plot) svg(w io.Writer, runs []run) {
	rows := (len(pl.panels) + columns - 1) / columns

	fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" `+
		`font-size="11">`+"\n<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n", columns*panelWidth,
		rows*panelHeight)

	for i, p := range pl.panels {
		fmt.Fprintf(w, "<g transform=\"translate(%d,%d)\">\n", i%columns*panelWidth, i/columns*panelHeight)
		p.draw(w, runs, pl.axis)
		fmt.Fprintln(w, "</g>")
	}

	fmt.Fprintln(w, "</svg>")
}

// scaleOf is the highest value of the vertical axis.
func (p panel) scaleOf(runs []run) float64 {
	highest := p.target

	for _, r := range runs {
		for _, s := range p.series {
			highest = max(highest, r.values[s.metric])
		}
	}

	return nice(highest * headroom)
}

// nice rounds up to a number that a person likes on an axis.
func nice(v float64) float64 {
	if v <= 0 {
		return 1
	}

	unit := math.Pow(10, math.Floor(math.Log10(v)))

	for _, step := range []float64{1, 1.2, 1.6, 2, 2.4, 3.2, 4, 5, 6, 8, 10} {
		if v <= step*unit {
			return step * unit
		}
	}

	return v
}

func (p panel) draw(w io.Writer, runs []run, axis string) {
	highest, most := p.scaleOf(runs), float64(runs[len(runs)-1].x)*headroom
	x := func(at float64) float64 { return left + at/most*plotWidth }
	y := func(v float64) float64 { return top + plotHeight - min(v/highest, 1)*plotHeight }

	fmt.Fprintf(w, "<text x=\"%d\" y=\"16\" font-weight=\"bold\">%s (%s)</text>\n", left, p.title, p.unit)

	for i := range ticks + 1 {
		v := highest * float64(i) / ticks
		p.line(w, "#ddd", [][2]float64{{left, y(v)}, {panelWidth - right, y(v)}}, "")
		fmt.Fprintf(w, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\" fill=\"#555\">%.4g</text>\n", left-6, y(v)+4, v)
	}

	for _, r := range runs {
		fmt.Fprintf(w, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\" fill=\"#555\">%d</text>\n", x(float64(r.x)),
			top+plotHeight+16, r.x)
	}

	fmt.Fprintf(w, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\" fill=\"#555\">%s</text>\n", left+plotWidth/2,
		top+plotHeight+32, axis)

	if p.target > 0 {
		p.line(w, "#c0392b", [][2]float64{{left, y(p.target)}, {panelWidth - right, y(p.target)}}, "5,3")
		fmt.Fprintf(w, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\" fill=\"#c0392b\">target</text>\n", panelWidth-right,
			y(p.target)-4)
	}

	if p.proportional {
		slope := runs[0].values[p.series[0].metric] / float64(runs[0].x)
		end := min(most, highest/slope)
		p.line(w, "#999", [][2]float64{{x(0), y(0)}, {x(end), y(slope * end)}}, "2,3")
	}

	p.curves(w, runs, axis, x, y)
}

func (p panel) curves(w io.Writer, runs []run, axis string, x, y func(float64) float64) {
	for i, s := range p.series {
		var points [][2]float64

		for _, r := range runs {
			v, ok := r.values[s.metric]
			if !ok {
				continue
			}

			point := [2]float64{x(float64(r.x)), y(v)}
			points = append(points, point)

			fmt.Fprintf(w, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\"><title>%d %s: %.4g %s</title></circle>\n",
				point[0], point[1], s.color, r.x, axis, v, p.unit)
		}

		p.line(w, s.color, points, "")

		if len(p.series) > 1 {
			fmt.Fprintf(w, "<text x=\"%d\" y=\"28\" fill=\"%s\">%s</text>\n", left+i*legendSpacing, s.color, s.label)
		}
	}
}

func (panel) line(w io.Writer, color string, points [][2]float64, dash string) {
	text := make([]string, 0, len(points))
	for _, p := range points {
		text = append(text, fmt.Sprintf("%.1f,%.1f", p[0], p[1]))
	}

	fmt.Fprintf(w, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"1.5\" stroke-dasharray=\"%s\" "+
		"points=\"%s\"/>\n", color, dash, strings.Join(text, " "))
}
