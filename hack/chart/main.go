// Command chart writes what config/ and the Helm chart have in common, from the one that is its source: rules, CRDs,
// the admission policy, alerts and dashboards come from config/, README.md and values.schema.json of the chart from its
// values.yaml.
package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: chart CONFIG-FOLDER CHART-FOLDER")
		os.Exit(2)
	}

	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func run(config, chart string) error {
	files, err := generate(config, chart)
	if err != nil {
		return err
	}

	// A CRD or a dashboard that is no more leaves its file behind.
	for _, folder := range []string{filepath.Join("templates", "crds"), dashboards} {
		if err := os.RemoveAll(filepath.Join(chart, folder)); err != nil {
			return fmt.Errorf("removing generated files of the chart: %w", err)
		}
	}

	for _, path := range slices.Sorted(maps.Keys(files)) {
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			return fmt.Errorf("making the folder of %s: %w", path, err)
		}

		if err := os.WriteFile(path, []byte(files[path]), 0o600); err != nil {
			return fmt.Errorf("writing a generated file: %w", err)
		}
	}

	return nil
}

// generate returns the content of all generated files by path.
func generate(config, chart string) (map[string]string, error) {
	files := map[string]string{}

	for _, add := range []func(map[string]string, string, string) error{
		addParts, addNamespaced, addCRDs, addDashboards, addReference,
	} {
		if err := add(files, config, chart); err != nil {
			return nil, err
		}
	}

	return files, nil
}

// part of a manifest in config/ that a template of the chart includes.
type part struct {
	// file of the manifest, document in it by its name, or its name and kind, and key of the part.
	file, document, key string
	// to is the file in the chart.
	to string
}

var parts = []part{
	{"rbac/role.yaml", "talos-operator", "rules", "manager-rules.yaml"},
	{"rbac/leader_election_role.yaml", "talos-operator-leader-election", "rules", "leader-election-rules.yaml"},
	{"shards/role.yaml", "ClusterRole talos-operator-shards", "rules", "shard-rules.yaml"},
	{"shards/role.yaml", "Role talos-operator-shards", "rules", "shard-leases-rules.yaml"},
	{"rbac/metrics_auth_role.yaml", "talos-operator-metrics-auth", "rules", "metrics-auth-rules.yaml"},
	{"rbac/metrics_reader_role.yaml", "talos-operator-metrics-reader", "rules", "metrics-reader-rules.yaml"},
	{"rbac/user_roles.yaml", "talos-operator-view", "rules", "view-rules.yaml"},
	{"rbac/user_roles.yaml", "talos-operator-edit", "rules", "edit-rules.yaml"},
	{"rbac/user_roles.yaml", "talos-operator-admin", "rules", "admin-rules.yaml"},
	{"admission/annotations.yaml", "talos-operator-annotations", "spec", "annotations.yaml"},
	{"prometheus/rule.yaml", "talos-operator", "groups", "alerts.yaml"},
}

func addParts(files map[string]string, config, chart string) error {
	for _, p := range parts {
		text, err := p.read(config)
		if err != nil {
			return err
		}

		files[filepath.Join(chart, "files", p.to)] = "# Generated from config/" + p.file + " by make generate.\n" + text
	}

	return nil
}

func (p part) read(config string) (string, error) {
	content, err := os.ReadFile(filepath.Join(config, p.file))
	if err != nil {
		return "", fmt.Errorf("reading a manifest: %w", err)
	}

	kind, name, ok := strings.Cut(p.document, " ")
	if !ok {
		kind, name = "", p.document
	}

	for document := range strings.SplitSeq(string(content), "\n---\n") {
		if !strings.Contains(document, "\n  name: "+name+"\n") || ok && !strings.Contains(document, "\nkind: "+kind+"\n") {
			continue
		}

		if text := strings.TrimSpace(block(document, p.key)); text != "" {
			return text + "\n", nil
		}
	}

	return "", fmt.Errorf("reading %s: there is no %s of %s", p.file, p.key, p.document)
}

// block returns the lines below a key as they are, with their comments, without the indentation that they share. The
// items of a list may stand below its key without any.
func block(document, key string) string {
	var out strings.Builder

	depth, cut := -1, -1

	for line := range strings.Lines(document) {
		content := strings.TrimLeft(line, " ")
		indent := len(line) - len(content)

		switch {
		case depth < 0:
			if strings.TrimSpace(content) == key+":" {
				depth = indent
			}
		case strings.TrimSpace(content) == "":
			out.WriteString("\n")
		case indent < depth, indent == depth && !strings.HasPrefix(content, "- "):
			return out.String()
		default:
			if cut < 0 {
				cut = indent
			}

			out.WriteString(line[min(cut, indent):])
		}
	}

	return out.String()
}

// dashboards is the folder of the chart for dashboards.
var dashboards = filepath.Join("files", "dashboards")

// addDashboards copies the dashboards. JSON has no comments, so the copies do not say where they come from.
func addDashboards(files map[string]string, config, chart string) error {
	found, err := filepath.Glob(filepath.Join(config, "grafana", "*.json"))
	if err != nil {
		return fmt.Errorf("listing the dashboards: %w", err)
	}

	for _, path := range found {
		text, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("reading a dashboard: %w", err)
		}

		files[filepath.Join(chart, dashboards, filepath.Base(path))] = string(text)
	}

	return nil
}

// namespaced is the head of the Role of an operator that watches single namespaces.
const namespaced = `# Generated from config/rbac/role.yaml by make generate.
# What the manager may do in one namespace, where it watches that one alone (--namespaces): the rules of
# config/rbac/role.yaml without any right outside of it. Apply this folder to each namespace:
# kubectl apply -n NAMESPACE -f config/namespaced
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: talos-operator
rules:
`

func addNamespaced(files map[string]string, config, _ string) error {
	rules, err := parts[0].read(config)
	if err != nil {
		return err
	}

	files[filepath.Join(config, "namespaced", "role.yaml")] = namespaced + indent(rules)

	return nil
}

func indent(text string) string {
	var out strings.Builder

	for line := range strings.Lines(text) {
		out.WriteString("  " + line)
	}

	return out.String()
}
