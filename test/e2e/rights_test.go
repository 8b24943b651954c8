package e2e

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/talos-operator/talos-operator/config"
	"github.com/talos-operator/talos-operator/lab/management"
)

// right is to do one thing with the objects of one resource.
type right struct{ group, resource, verb string }

// String names a right as a rule of RBAC does.
func (r right) String() string {
	return fmt.Sprintf("%s %s (API group %q)", r.verb, r.resource, r.group)
}

const (
	ownGroup = "talos-operator.io"
	// Some distributions of Kubernetes enable the admission plugin OwnerReferencesPermissionEnforcement: there a client that
	// names an owner whose deletion waits needs this right, without a request.
	blocksDeletion = "asked for by an admission plugin"
	// The tests of the controllers and of the manager run under the same roles, and fail without these.
	told    = "TestRun of internal/controller/notification records what was sent"
	pruned  = "TestKeptRecords of internal/controller/upgradehistory exceeds the number of records"
	retired = "TestHistory of internal/controller/talosetcdbackupschedule has too many backups"
	// What was written last is read live where the cache does not have it yet.
	behind = "a quick cache has every write"
)

// unproven are the rights that no scenario is sure to use, and the reason why the operator has them nevertheless.
var unproven = map[right]string{
	{"vitistack.io", "kubernetesclusters/finalizers", "update"}: blocksDeletion,
	{ownGroup, "taloscontrolplanes/finalizers", "update"}:       blocksDeletion,
	{ownGroup, "talosworkers/finalizers", "update"}:             blocksDeletion,
	{ownGroup, "talosmachines/finalizers", "update"}:            blocksDeletion,
	{"vitistack.io", "kubernetesclusters", "get"}:               behind,
	{"vitistack.io", "machines", "get"}:                         behind,
	{ownGroup, "talosworkers", "get"}:                           behind,
	{ownGroup, "talosupgrades", "get"}:                          behind,
	{ownGroup, "kubernetesupgrades", "get"}:                     behind,
	{"events.k8s.io", "events", "patch"}:                        "an event that occurs again soon is counted in the first one",
	{ownGroup, "talosupgrades", "patch"}:                        told,
	{ownGroup, "kubernetesupgrades", "patch"}:                   told,
	{ownGroup, "talosupgrades", "delete"}:                       pruned,
	{ownGroup, "kubernetesupgrades", "delete"}:                  pruned,
	{ownGroup, "talosetcdbackups", "delete"}:                    retired,
}

// rights are those that the operators of all worlds have used.
type rights struct {
	mu sync.Mutex
	// tests are those of the operators, by their user names.
	tests map[string]string
	// used has the test that used a right first.
	used map[right]string
	// refused are requests that no role grants.
	refused []string
}

// asked are the rights that the operators of this process asked for.
var asked = rights{tests: map[string]string{}, used: map[right]string{}}

// expect attributes the requests of an operator to a test.
func (r *rights) expect(user, test string) {
	r.mu.Lock()
	defer r.mu.Unlock()

	r.tests[user] = test
}

// see takes note of a request. Those of others than operators of this process do not count.
func (r *rights) see(req management.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()

	test, ours := r.tests[req.User]
	if !ours {
		return
	}

	if req.Forbidden {
		r.refused = append(r.refused, fmt.Sprintf("no role of the operator grants it to %s (%s)", req, test))

		return
	}

	verbs := []string{req.Verb}
	if req.Created {
		verbs = append(verbs, "create")
	}

	for _, verb := range verbs {
		if key := (right{req.Group, req.Resource, verb}); r.used[key] == "" {
			r.used[key] = test
		}
	}
}

// problems are the requests that were refused and, where every test ran, the rights of the roles that none used, and the
// exceptions that no role has.
func (r *rights) problems(roles map[string][]rbacv1.PolicyRule, complete bool) []string {
	r.mu.Lock()
	defer r.mu.Unlock()

	out := slices.Compact(slices.Sorted(slices.Values(r.refused)))
	if !complete {
		return out
	}

	granted := map[right]bool{}

	for _, role := range slices.Sorted(maps.Keys(roles)) {
		for _, key := range expand(roles[role]) {
			granted[key] = true

			if r.used[key] == "" && unproven[key] == "" {
				out = append(out, fmt.Sprintf("no test uses a rule of %s, so it has to go: %s", role, key))
			}
		}
	}

	exceptions := slices.SortedFunc(maps.Keys(unproven), func(a, b right) int {
		return strings.Compare(a.String(), b.String())
	})

	for _, key := range exceptions {
		if !granted[key] {
			out = append(out, fmt.Sprintf("unproven names a right that no role has: %s", key))
		}
	}

	return out
}

// expand lists the rights of rules.
func expand(rules []rbacv1.PolicyRule) []right {
	var out []right

	for _, rule := range rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					out = append(out, right{group, resource, verb})
				}
			}
		}
	}

	return out
}

// rolesOfOperator are the rules of the roles that an installation binds to the operator.
func rolesOfOperator() (map[string][]rbacv1.PolicyRule, error) {
	manifests, err := config.Manifests(config.RBAC)
	if err != nil {
		return nil, err
	}

	shards, err := config.Manifests(config.Shards)
	if err != nil {
		return nil, err
	}

	var objects []*unstructured.Unstructured

	for _, manifest := range slices.Concat(slices.Collect(maps.Values(manifests)), slices.Collect(maps.Values(shards))) {
		found, err := management.Decode(manifest)
		if err != nil {
			return nil, err
		}

		objects = append(objects, found...)
	}

	rules, bound := map[string][]rbacv1.PolicyRule{}, map[string][]rbacv1.PolicyRule{}

	for _, o := range objects {
		role := rbacv1.ClusterRole{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &role); err != nil {
			return nil, fmt.Errorf("reading the role %s: %w", o.GetName(), err)
		}

		rules[o.GetKind()+" "+o.GetName()] = role.Rules
	}

	for _, o := range objects {
		binding := rbacv1.ClusterRoleBinding{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &binding); err != nil {
			return nil, fmt.Errorf("reading the binding %s: %w", o.GetName(), err)
		}

		if of := binding.RoleRef; of.Name != "" {
			bound[of.Kind+" "+of.Name] = rules[of.Kind+" "+of.Name]
		}
	}

	return bound, nil
}

// checked runs the tests, and compares what the operators asked for with their roles while the management plane is there.
type checked struct{ *testing.M }

// Run implements plane.Runner.
func (c checked) Run() int {
	code := c.M.Run()
	if flagOf("list") != "" {
		return code
	}

	problems, err := checkRights(code == 0)
	if err != nil {
		problems = append(problems, err.Error())
	}

	for _, p := range problems {
		fmt.Fprintln(os.Stderr, "FAIL: rights of the operator:", p)
	}

	if len(problems) > 0 {
		return max(code, 1)
	}

	return code
}

func checkRights(passed bool) ([]string, error) {
	if err := shared.Requests(asked.see); err != nil {
		return nil, err
	}

	roles, err := rolesOfOperator()
	if err != nil {
		return nil, err
	}

	sources, err := filepath.Glob("*_test.go")
	if err != nil {
		return nil, fmt.Errorf("listing the tests: %w", err)
	}

	tests, err := testsOf(sources)
	if err != nil {
		return nil, err
	}

	return asked.problems(roles, passed && all(tests, flagOf("run"), flagOf("skip"))), nil
}

var testFunction = regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`)

// testsOf lists the tests of files, apart from those with a build tag.
func testsOf(files []string) ([]string, error) {
	var out []string

	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("listing the tests: %w", err)
		}

		if strings.HasPrefix(string(content), "//go:build") {
			continue
		}

		for _, found := range testFunction.FindAllSubmatch(content, -1) {
			out = append(out, string(found[1]))
		}
	}

	return out, nil
}

// all: the flags run and skip of go test leave none of the tests out. Patterns for subtests leave some out.
func all(tests []string, run, skip string) bool {
	for _, pattern := range []string{run, skip} {
		if _, err := regexp.Compile(pattern); err != nil || strings.Contains(pattern, "/") {
			return false
		}
	}

	return len(tests) > 0 && !slices.ContainsFunc(tests, func(name string) bool {
		return !regexp.MustCompile(run).MatchString(name) || skip != "" && regexp.MustCompile(skip).MatchString(name)
	})
}

// TestRights: what no role grants fails the run with the test, also where not every test ran; what no test uses fails it
// where every one did. Operators of other processes, on the same management plane, do not count.
func TestRights(t *testing.T) {
	roles := map[string][]rbacv1.PolicyRule{"Role r": {{
		APIGroups: []string{""}, Resources: []string{"secrets", "pods"}, Verbs: []string{"get", "create"},
	}}}
	none := maps.Clone(unproven)

	for _, key := range expand(roles["Role r"]) {
		delete(none, key)
	}

	r := rights{tests: map[string]string{"ours": "TestOne"}, used: map[right]string{}}
	for _, req := range []management.Request{
		{User: "ours", Verb: "get", Resource: "secrets"},
		{User: "ours", Verb: "patch", Resource: "pods", Created: true},
		{User: "ours", Verb: "list", Resource: "secrets", Namespace: "n", Forbidden: true},
		{User: "ours", Verb: "list", Resource: "secrets", Namespace: "n", Forbidden: true},
		{User: "theirs", Verb: "get", Resource: "pods"},
		{User: "theirs", Verb: "delete", Resource: "pods", Forbidden: true},
	} {
		r.see(req)
	}

	refused := `no role of the operator grants it to list secrets of the API group "", object "", namespace "n" (TestOne)`
	if diff := cmp.Diff([]string{refused}, r.problems(roles, false)); diff != "" {
		t.Error(diff)
	}

	got := slices.DeleteFunc(r.problems(roles, true), func(p string) bool { return strings.HasPrefix(p, "unproven names") })

	want := []string{
		refused,
		`no test uses a rule of Role r, so it has to go: create secrets (API group "")`,
		`no test uses a rule of Role r, so it has to go: get pods (API group "")`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}

	if n := len(r.problems(roles, true)) - len(got); n != len(none) {
		t.Errorf("%d exceptions are told, of %d that no role has", n, len(none))
	}
}

// TestRightsOfEveryTest: flags that leave a test out leave out the search for rights that none uses.
func TestRightsOfEveryTest(t *testing.T) {
	tests, err := testsOf([]string{"rights_test.go", "underfaults_test.go"})
	if err != nil || !slices.Contains(tests, "TestRights") || slices.Contains(tests, "TestUpgradeUnderFaults") {
		t.Fatalf("the tests are %q: %v", tests, err)
	}

	for flags, want := range map[[2]string]bool{
		{"", ""}: true, {"", "^TestElsewhere$"}: true, {"Rights", ""}: true,
		{"", "TestRightsOf"}: false, {"EveryTest", ""}: false, {"Rights/one", ""}: false, {"(", ""}: false,
	} {
		if got := all(tests, flags[0], flags[1]); got != want {
			t.Errorf("-run %q -skip %q: %t", flags[0], flags[1], got)
		}
	}

	roles, err := rolesOfOperator()
	if err != nil || len(roles) != 5 {
		t.Fatalf("the roles are %v: %v", slices.Collect(maps.Keys(roles)), err)
	}

	for name, rules := range roles {
		if len(expand(rules)) == 0 {
			t.Errorf("%s has no rules", name)
		}
	}
}
