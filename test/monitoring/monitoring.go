// Package monitoring reads the dashboards and the alerts that come with the operator, and finds the programs that tests
// run them with.
package monitoring

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"sigs.k8s.io/yaml"

	testoperator "github.com/talos-operator/talos-operator/test/operator"
)

// Query is one query of a panel.
type Query struct {
	// Dashboard is the name of the file, Panel the title.
	Dashboard, Panel string
	// Expr is the query, with the variables of the dashboard.
	Expr string
}

// Name is how the panel is called in tests.
func (q Query) Name() string { return q.Dashboard + ": " + q.Panel }

// dashboard is what the tests need of one.
type dashboard struct {
	Panels []struct {
		Title, Type string
		Targets     []struct{ Expr string }
	}
	Templating struct {
		List []struct{ Name, Definition string }
	}
}

func read(root string) (map[string]dashboard, error) {
	found, err := filepath.Glob(filepath.Join(root, "config/grafana/*.json"))
	if err != nil {
		return nil, fmt.Errorf("listing the dashboards: %w", err)
	}

	out := map[string]dashboard{}

	for _, path := range found {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("reading a dashboard: %w", err)
		}

		d := dashboard{}
		if err := json.Unmarshal(text, &d); err != nil {
			return nil, fmt.Errorf("reading the dashboard %s: %w", path, err)
		}

		out[filepath.Base(path)] = d
	}

	return out, nil
}

// Queries are those of all panels of all dashboards of a checkout.
func Queries(root string) ([]Query, error) {
	all, err := read(root)
	if err != nil {
		return nil, err
	}

	var out []Query

	for name, d := range all {
		for _, p := range d.Panels {
			if p.Type != "row" && len(p.Targets) == 0 {
				return nil, fmt.Errorf("the panel %s of %s has no query", p.Title, name)
			}

			for _, t := range p.Targets {
				out = append(out, Query{Dashboard: name, Panel: p.Title, Expr: t.Expr})
			}
		}
	}

	return out, nil
}

// Variables are the queries behind the variables of all dashboards of a checkout.
func Variables(root string) ([]string, error) {
	all, err := read(root)
	if err != nil {
		return nil, err
	}

	var out []string

	for _, d := range all {
		for _, v := range d.Templating.List {
			if v.Definition != "" {
				out = append(out, v.Definition)
			}
		}
	}

	return out, nil
}

// Alert is one alert.
type Alert struct {
	Alert, Expr string
	Annotations map[string]string
}

// Alerts are those of a checkout, and the file that promtool and Prometheus take them from.
func Alerts(root string) (alerts []Alert, rules []byte, err error) {
	text, err := os.ReadFile(filepath.Join(root, "config/prometheus/rule.yaml"))
	if err != nil {
		return nil, nil, fmt.Errorf("reading the alerts: %w", err)
	}

	rule := struct {
		Spec map[string]any
	}{}
	if err := yaml.Unmarshal(text, &rule); err != nil {
		return nil, nil, fmt.Errorf("reading the alerts: %w", err)
	}

	if rules, err = yaml.Marshal(rule.Spec); err != nil {
		return nil, nil, fmt.Errorf("reading the alerts: %w", err)
	}

	spec := struct {
		Groups []struct{ Rules []Alert }
	}{}
	if err := yaml.Unmarshal(rules, &spec); err != nil {
		return nil, nil, fmt.Errorf("reading the alerts: %w", err)
	}

	for _, g := range spec.Groups {
		alerts = append(alerts, g.Rules...)
	}

	return alerts, rules, nil
}

// Programs is the folder of prometheus and promtool. Where make has not built them, they are built now, into a folder.
func Programs(root, into string) (string, error) {
	dir := os.Getenv(testoperator.ToolsEnvironment)
	if dir == "" {
		dir = into

		build := exec.Command("go", "build", "-C", filepath.Join(root, "hack/prometheus"),
			"-tags", "remove_all_sd", "-o", dir,
			"github.com/prometheus/prometheus/cmd/prometheus", "github.com/prometheus/prometheus/cmd/promtool")
		if out, err := build.CombinedOutput(); err != nil {
			return "", fmt.Errorf("building Prometheus: %w\n%s", err, out)
		}
	}

	for _, name := range []string{"prometheus", "promtool"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			return "", fmt.Errorf("finding Prometheus (%s): %w", testoperator.ToolsEnvironment, err)
		}
	}

	return dir, nil
}
