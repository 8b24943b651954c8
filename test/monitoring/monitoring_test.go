package monitoring_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/talos-operator/talos-operator/test/monitoring"
)

const root = "../.."

// TestAlertsFire: promtool accepts the rules, and each alert fires when it should, with its annotations, and not otherwise.
func TestAlertsFire(t *testing.T) {
	t.Parallel()

	alerts, rules, err := monitoring.Alerts(root)
	if err != nil {
		t.Fatal(err)
	}

	tests, err := os.ReadFile("testdata/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}

	for _, a := range alerts {
		fires := "  - alertname: " + a.Alert + "\n    eval_time: [0-9]+m\n    exp_alerts:\n"
		silent := "  - alertname: " + a.Alert + "\n    eval_time: [0-9]+m\n  - "

		for what, pattern := range map[string]string{"fires": fires, "is silent": silent} {
			if !regexp.MustCompile(pattern).Match(tests) {
				t.Errorf("no test of testdata/alerts.yaml has that %s %s", a.Alert, what)
			}
		}
	}

	promtool(t, map[string][]byte{"rules.yaml": rules, "tests.yaml": tests},
		[]string{"check", "rules", "--lint-fatal", "rules.yaml"}, []string{"test", "rules", "tests.yaml"})
}

// TestEmptyPanels: what is empty in a healthy fleet shows what it is about once there is something, and nothing of other
// clusters.
func TestEmptyPanels(t *testing.T) {
	t.Parallel()

	queries, err := monitoring.Queries(root)
	if err != nil {
		t.Fatal(err)
	}

	panels, err := monitoring.EmptyPanels()
	if err != nil || len(panels) == 0 {
		t.Fatalf("%d panels, error %v", len(panels), err)
	}

	type sample struct {
		Labels string  `json:"labels"`
		Value  float64 `json:"value"`
	}

	var tests []any

	for _, p := range panels {
		var exprs []string

		for _, q := range queries {
			if q.Name() == p.Panel {
				exprs = append(exprs, monitoring.Fill(q.Expr, "clusters", "prod"))
			}
		}

		if len(exprs) != 1 || p.Why == "" || len(p.Want) == 0 {
			t.Errorf("%s: %d queries, a reason %q and %d values", p.Panel, len(exprs), p.Why, len(p.Want))

			continue
		}

		var (
			series []map[string]string
			want   []sample
		)

		for name, values := range p.Series {
			series = append(series, map[string]string{"series": name, "values": values})
		}

		for labels, value := range p.Want {
			want = append(want, sample{labels, value})
		}

		// A rate of a minute needs more than one value in it.
		tests = append(tests, map[string]any{"name": p.Panel, "interval": "1m", "input_series": series, "promql_expr_test": []any{
			map[string]any{"expr": strings.ReplaceAll(exprs[0], "[1m]", "[2m]"), "eval_time": "5m", "exp_samples": want},
		}})
	}

	text, err := yaml.Marshal(map[string]any{"evaluation_interval": "1m", "tests": tests})
	if err != nil {
		t.Fatal(err)
	}

	promtool(t, map[string][]byte{"tests.yaml": text}, []string{"test", "rules", "tests.yaml"})
}

// promtool runs the program in a folder with files.
func promtool(t *testing.T, files map[string][]byte, commands ...[]string) {
	t.Helper()

	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}

	programs, err := monitoring.Programs(root, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}

	for _, args := range commands {
		cmd := exec.Command(filepath.Join(programs, "promtool"), args...)
		cmd.Dir = dir

		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

var metric = regexp.MustCompile(`talos_operator_\w+`)

// TestMetricsExist: dashboards and alerts name only metrics of the operator that docs/metrics.md describes, and each alert and
// each panel is about metrics.
func TestMetricsExist(t *testing.T) {
	t.Parallel()

	page, err := os.ReadFile(filepath.Join(root, "docs/metrics.md"))
	if err != nil {
		t.Fatal(err)
	}

	queries, err := monitoring.Queries(root)
	if err != nil || len(queries) < 50 {
		t.Fatalf("%d queries, error %v", len(queries), err)
	}

	variables, err := monitoring.Variables(root)
	if err != nil || len(variables) < 4 {
		t.Fatalf("%d variables, error %v", len(variables), err)
	}

	alerts, _, err := monitoring.Alerts(root)
	if err != nil || len(alerts) < 20 {
		t.Fatalf("%d alerts, error %v", len(alerts), err)
	}

	named := map[string]string{}
	for _, q := range queries {
		named[q.Name()] += q.Expr + "\n"
	}

	for _, v := range variables {
		named["variable "+v] = v
	}

	for _, a := range alerts {
		named[a.Alert] = a.Expr

		if !metric.MatchString(a.Expr) {
			t.Errorf("%s is about no metric of the operator", a.Alert)
		}
	}

	for name, text := range named {
		for _, m := range metric.FindAllString(text, -1) {
			// A histogram has these series.
			m = regexp.MustCompile("(_seconds)_(bucket|count|sum)$").ReplaceAllString(m, "$1")

			if !strings.Contains(string(page), "\n| `"+m+"` |") {
				t.Errorf("%s: docs/metrics.md has no %s", name, m)
			}
		}
	}
}

// parts of a section, in their order.
var parts = []string{"**Meaning**", "**Impact**", "**Diagnosis**", "```sh\n", "**Mitigation**"}

// TestRunbooks: each alert has a section of docs/runbooks.md, which its runbook_url leads to, and each section an alert. Each
// says what the alert means, what it leads to, what to check and what to do.
func TestRunbooks(t *testing.T) {
	t.Parallel()

	page, err := os.ReadFile(filepath.Join(root, "docs/runbooks.md"))
	if err != nil {
		t.Fatal(err)
	}

	alerts, _, err := monitoring.Alerts(root)
	if err != nil {
		t.Fatal(err)
	}

	var named, described []string

	for _, a := range alerts {
		named = append(named, a.Alert)

		want := "https://github.com/talos-operator/talos-operator/blob/main/docs/runbooks.md#" + strings.ToLower(a.Alert)
		if got := a.Annotations["runbook_url"]; got != want {
			t.Errorf("%s leads to %q, want %q", a.Alert, got, want)
		}

		if a.Annotations["summary"] == "" || a.Annotations["description"] == "" {
			t.Errorf("%s has no summary or no description", a.Alert)
		}
	}

	for _, text := range strings.Split(string(page), "\n## ")[1:] {
		name, body, _ := strings.Cut(text, "\n")
		described = append(described, name)

		at := -1

		for _, part := range parts {
			next := strings.Index(body, part)
			if next <= at {
				t.Errorf("the section %s has no %s after what comes before it", name, part)
			}

			at = next
		}
	}

	slices.Sort(named)
	slices.Sort(described)

	if diff := cmp.Diff(named, described); diff != "" {
		t.Errorf("alerts (-) and sections of docs/runbooks.md (+):\n%s", diff)
	}
}
