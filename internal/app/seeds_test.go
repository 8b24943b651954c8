package app_test

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/yaml"

	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/config"
	"github.com/talos-operator/talos-operator/internal/app"
	"github.com/talos-operator/talos-operator/internal/metrics"
)

// module is the root of the module, where the documents are.
const module = "../.."

// seed reads a file of what the documents that this product was built from print.
func seed(t *testing.T, name string) string {
	t.Helper()

	return readFile(t, filepath.Join("testdata/seeds", name))
}

func readFile(t *testing.T, path string) string {
	t.Helper()

	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	return string(data)
}

func lines(text string) []string { return strings.Split(strings.TrimSpace(text), "\n") }

// TestSeedManifests: the API types and the API server know each field of the manifests that the documents print.
func TestSeedManifests(t *testing.T) {
	ns, admin := api.Namespace(t), client.WithFieldValidation(api.Admin(t), "Strict")

	for name, typed := range map[string]client.Object{
		"cluster.yaml": &vitistackv1alpha1.KubernetesCluster{}, "machine.yaml": &vitistackv1alpha1.Machine{},
	} {
		text := []byte(seed(t, name))
		if err := yaml.UnmarshalStrict(text, typed); err != nil {
			t.Errorf("%s: %v", name, err)
		}

		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(text, &o.Object); err != nil {
			t.Fatal(err)
		}

		o.SetNamespace(ns)

		if err := admin.Create(t.Context(), o, client.DryRunAll); err != nil {
			t.Errorf("the API server refuses %s: %v", name, err)
		}
	}

	c := &vitistackv1alpha1.KubernetesCluster{}
	if err := yaml.UnmarshalStrict([]byte(seed(t, "cluster.yaml")), c); err != nil {
		t.Fatal(err)
	}

	if !slices.Equal(c.Finalizers, []string{vitistackv1alpha1.ClusterFinalizer}) {
		t.Errorf("the finalizer is %s, and the document prints %v", vitistackv1alpha1.ClusterFinalizer, c.Finalizers)
	}
}

// TestSeedRights: the service account and the binding are those of the documents. The roles have rights to every resource
// that they print, and fewer: those that the operator uses.
func TestSeedRights(t *testing.T) {
	documents := strings.Split(seed(t, "rbac.yaml"), "\n---\n")
	role, account, binding := &rbacv1.ClusterRole{}, &corev1.ServiceAccount{}, &rbacv1.ClusterRoleBinding{}

	for i, into := range []any{role, account, binding} {
		if err := yaml.UnmarshalStrict([]byte(documents[i]), into); err != nil {
			t.Fatal(err)
		}
	}

	files, err := config.Manifests(config.RBAC)
	if err != nil {
		t.Fatal(err)
	}

	ours, lease := &rbacv1.ClusterRole{}, &rbacv1.Role{}
	ourAccount, ourBinding := &corev1.ServiceAccount{}, &rbacv1.ClusterRoleBinding{}

	for name, into := range map[string]any{
		"role.yaml": ours, "leader_election_role.yaml": lease, "service_account.yaml": ourAccount,
		"role_binding.yaml": ourBinding,
	} {
		if err := yaml.UnmarshalStrict(files[name], into); err != nil {
			t.Fatal(err)
		}
	}

	if diff := cmp.Diff([]any{role.Name, account, binding}, []any{ours.Name, ourAccount, ourBinding}); diff != "" {
		t.Errorf("(-document +config/rbac):\n%s", diff)
	}

	for _, document := range role.Rules {
		for _, resource := range document.Resources {
			var verbs []string

			for _, rule := range append(ours.Rules, lease.Rules...) {
				if contains(rule.APIGroups, document.APIGroups) && slices.Contains(rule.Resources, resource) {
					verbs = append(verbs, rule.Verbs...)
				}
			}

			if len(verbs) == 0 || !contains(document.Verbs, verbs) {
				t.Errorf("the verbs for %s are %q, and those of the document %q", resource, verbs, document.Verbs)
			}
		}
	}
}

func contains(have, want []string) bool {
	return !slices.ContainsFunc(want, func(s string) bool { return !slices.Contains(have, s) })
}

// TestSeedEnvironment: each variable of the documents has its default, and sets the option of its name.
func TestSeedEnvironment(t *testing.T) {
	flag := func(t *testing.T, variable string) *pflag.Flag {
		t.Helper()

		o, err := app.Defaults()
		if err != nil {
			t.Fatal(err)
		}

		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		o.AddFlags(flags)

		return flags.Lookup(strings.ToLower(strings.ReplaceAll(variable, "_", "-")))
	}

	for _, line := range lines(seed(t, "environment.txt")) {
		variable, standard, _ := strings.Cut(line, " ")

		// Only the tests and the lab read this one.
		if variable == "KUBEBUILDER_ASSETS" {
			continue
		}

		t.Run(variable, func(t *testing.T) {
			t.Setenv(variable, "")

			f := flag(t, variable)
			if f == nil || f.DefValue != standard {
				t.Fatalf("the default is %+v, want %s", f, standard)
			}

			other := map[string]string{"duration": "45s", "int": "7", "string": "other"}[f.Value.Type()]
			t.Setenv(variable, other)

			if f := flag(t, variable); f.DefValue != other {
				t.Errorf("with %s the option is %s", other, f.DefValue)
			}
		})
	}
}

var description = regexp.MustCompile(`fqName: "([^"]*)".*variableLabels: \{([^}]*)\}`)

// TestSeedMetrics: the metrics of the documents exist under their names, with their labels.
func TestSeedMetrics(t *testing.T) {
	found := make(chan *prometheus.Desc, 10_000)
	metrics.Clusters{}.Describe(found)

	registry, ok := ctrlmetrics.Registry.(prometheus.Collector)
	if !ok {
		t.Fatal("the registry does not describe its metrics")
	}

	registry.Describe(found)
	close(found)

	have := map[string][]string{}

	for d := range found {
		if m := description.FindStringSubmatch(d.String()); m != nil {
			have[m[1]] = strings.Split(m[2], ",")
		}
	}

	for _, line := range lines(seed(t, "metrics.txt")) {
		name, labels, _ := strings.Cut(line, " ")
		if got, ok := have[name]; !ok || !contains(got, strings.Split(labels, ",")) {
			t.Errorf("%s has the labels %v, want %s", name, got, labels)
		}
	}
}

// TestSeedLog: a log line is JSON with the fields of the documents that do not depend on the controller.
func TestSeedLog(t *testing.T) {
	var out bytes.Buffer

	log, err := app.NewLogger(&out, "info")
	if err != nil {
		t.Fatal(err)
	}

	log.Info("Successfully created machine")

	got := map[string]string{}
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}

	if _, err := time.Parse(time.RFC3339, got["timestamp"]); err != nil || got["level"] != "info" ||
		got["message"] != "Successfully created machine" {
		t.Errorf("%s: %v", out.String(), err)
	}
}

// TestSeedCommands: the documentation has each command of the documents, those for kubectl with a name filled in where
// they are needed.
func TestSeedCommands(t *testing.T) {
	table := readFile(t, filepath.Join(module, "docs/seeds.md"))
	guide := readFile(t, filepath.Join(module, "docs/state-secret.md"))

	for _, command := range lines(seed(t, "commands.txt")) {
		if !strings.Contains(table, command) {
			t.Errorf("docs/seeds.md does not tell of %q", command)
		}

		named := strings.NewReplacer("<tcp-name>", "prod", "taloscontrolplane.yaml", "prod.yaml").Replace(command)
		if strings.HasPrefix(command, "kubectl ") && !strings.Contains(guide, named) {
			t.Errorf("docs/state-secret.md does not show %q", named)
		}
	}
}

// TestSeedValues: the chart has the defaults of the documents; the tag is the version of the chart.
func TestSeedValues(t *testing.T) {
	var want, got map[string]any

	for text, into := range map[string]*map[string]any{
		seed(t, "values.yaml"): &want,
		readFile(t, filepath.Join(module, "charts/talos-operator/values.yaml")): &got,
	} {
		if err := yaml.Unmarshal([]byte(text), into); err != nil {
			t.Fatal(err)
		}
	}

	tag, _, err := unstructured.NestedString(got, "image", "tag")
	if err != nil || tag != "" {
		t.Errorf("image.tag is %q, %v", tag, err)
	}

	for _, path := range [][]string{
		{"image", "repository"},
		{"image", "pullPolicy"},
		{"replicaCount"},
		{"resources", "limits", "cpu"},
		{"resources", "requests", "cpu"},
		{"resources", "requests", "memory"},
	} {
		have, _, err := unstructured.NestedFieldNoCopy(got, path...)
		printed, found, _ := unstructured.NestedFieldNoCopy(want, path...)

		if !found || err != nil || !cmp.Equal(have, printed) {
			t.Errorf("%s is %v, the documents print %v: %v", strings.Join(path, "."), have, printed, err)
		}
	}
}

var (
	row      = regexp.MustCompile(`^\| (\d+) \| (.+) \| (kept|kept differently|not kept) \| (.+) \|$`)
	testName = regexp.MustCompile(`\bTest[A-Z]\w+`)
	testFunc = regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	link     = regexp.MustCompile(`\]\(([^)#]*)(?:#([^)]*))?\)`)
	heading  = regexp.MustCompile(`(?m)^#+ (.+)$`)
	notSlug  = regexp.MustCompile(`[^a-z0-9 _-]`)
)

// TestSeedRows: docs/seeds.md tells of every promise of both documents, in order, and counts them correctly. The tests
// and the sections that it names exist.
func TestSeedRows(t *testing.T) {
	text := readFile(t, filepath.Join(module, "docs/seeds.md"))
	tests := testsOf(t)
	counts := map[string]map[string]int{}
	document, last := "", 0

	for _, line := range lines(text) {
		if strings.HasPrefix(line, "## ") {
			document, last = line[3:], 0
			counts[document] = map[string]int{}
		}

		m := row.FindStringSubmatch(line)
		if m == nil {
			if len(line) > 2 && line[0] == '|' && line[2] >= '0' && line[2] <= '9' {
				t.Errorf("no verdict: %s", line)
			}

			continue
		}

		if n, _ := strconv.Atoi(m[1]); n != last+1 {
			t.Errorf("%s: row %s follows row %d", document, m[1], last)
		}

		last++
		counts[document][m[3]]++

		for _, name := range testName.FindAllString(m[4], -1) {
			if !tests[name] {
				t.Errorf("%s, row %d: there is no test %s", document, last, name)
			}
		}
	}

	for document, promises := range map[string]int{"State Secret": 25, "Talos Operator": 169} {
		c := counts[document]
		want := strings.Join([]string{
			"", document, strconv.Itoa(promises), strconv.Itoa(c["kept"]),
			strconv.Itoa(c["kept differently"]), strconv.Itoa(c["not kept"]), "",
		}, " | ")

		if c["kept"]+c["kept differently"]+c["not kept"] != promises || !strings.Contains(text, strings.TrimSpace(want)) {
			t.Errorf("%s: the rows are %v; the summary has to be %q", document, c, want)
		}
	}

	checkLinks(t, filepath.Join(module, "docs"), text)
}

// TestNamedTests: each test that a document names exists, such as those that keep the promises of docs/upgrades.md. Each
// end-to-end test is in docs/testing.md, once, but for those of the suite itself.
func TestNamedTests(t *testing.T) {
	tests := testsOf(t)

	var pages []string

	for _, pattern := range []string{"*.md", "docs/*.md", "docs/adr/*.md"} {
		found, err := filepath.Glob(filepath.Join(module, pattern))
		if err != nil {
			t.Fatal(err)
		}

		pages = append(pages, found...)
	}

	named := 0

	for _, page := range pages {
		for _, name := range testName.FindAllString(readFile(t, page), -1) {
			if named++; !tests[name] {
				t.Errorf("%s: there is no test %s", filepath.Base(page), name)
			}
		}
	}

	if named < 100 {
		t.Errorf("the documents name %d tests", named)
	}

	_, scenarios, _ := strings.Cut(readFile(t, filepath.Join(module, "docs/testing.md")), "\n## Scenarios\n")
	scenarios, _, _ = strings.Cut(scenarios, "\nOther packages use real etcd")
	times := map[string]int{}

	for _, name := range testName.FindAllString(scenarios, -1) {
		times[name]++
	}

	files, err := filepath.Glob(filepath.Join(module, "test/e2e/*_test.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files of end-to-end tests, %v", len(files), err)
	}

	for _, file := range files {
		for _, m := range testFunc.FindAllStringSubmatch(readFile(t, file), -1) {
			if !slices.Contains([]string{"TestMain", "TestPlaces", "TestRights", "TestRightsOfEveryTest"}, m[1]) && times[m[1]] != 1 {
				t.Errorf("docs/testing.md names %s of %s %d times among the scenarios", m[1], filepath.Base(file), times[m[1]])
			}
		}
	}
}

// testsOf are the names of all tests of the module.
func testsOf(t *testing.T) map[string]bool {
	t.Helper()

	out := map[string]bool{}

	err := filepath.WalkDir(module, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && strings.HasPrefix(d.Name(), ".") && path != module:
			return fs.SkipDir
		case strings.HasSuffix(path, "_test.go"):
			for _, m := range testFunc.FindAllStringSubmatch(readFile(t, path), -1) {
				out[m[1]] = true
			}
		}

		return nil
	})
	if err != nil {
		t.Fatal(err)
	}

	return out
}

// checkLinks checks that the files and the headings that a document refers to exist.
func checkLinks(t *testing.T, folder, text string) {
	t.Helper()

	headings := map[string]map[string]bool{}

	for _, m := range link.FindAllStringSubmatch(text, -1) {
		path := filepath.Join(folder, m[1])
		if _, err := os.Stat(path); err != nil {
			t.Errorf("%s: %v", m[0], err)

			continue
		}

		if m[2] == "" {
			continue
		}

		if headings[path] == nil {
			headings[path] = map[string]bool{}
			for _, h := range heading.FindAllStringSubmatch(readFile(t, path), -1) {
				slug := notSlug.ReplaceAllString(strings.ToLower(h[1]), "")
				headings[path][strings.ReplaceAll(slug, " ", "-")] = true
			}
		}

		if !headings[path][m[2]] {
			t.Errorf("%s: there is no such heading among %v", m[0], slices.Sorted(maps.Keys(headings[path])))
		}
	}
}
