package commands_test

import (
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/spf13/cobra"

	"github.com/talos-operator/talos-operator/test/commands"
)

const module = "../.."

func all(t *testing.T) []commands.Command {
	t.Helper()

	out, err := commands.All(module)
	if err != nil {
		t.Fatal(err)
	}

	return out
}

// checked are the programs whose commands tests hold to what exists.
var checked = []string{"talos-operator", "talos-lab", "kubectl", "inside", "make"}

// unchecked are the other programs of the documents, with the reason why no test runs or reads their commands.
var unchecked = map[string]string{
	"age":      "encrypts a copy of the state Secret with a person's key; internal/backup tests the format",
	"awk":      "filters the output of another command",
	"base64":   "filters the output of another command",
	"cp":       "copies files of the reader",
	"crane":    "needs a registry; hack/image tests what an image holds",
	"etcdutl":  "is etcd's own; lab/etcd runs it",
	"git":      "needs the code host",
	"go":       "runs tests; TestSeedRows and make test run those",
	"grep":     "filters the output of another command",
	"jq":       "filters the output of another command",
	"sort":     "sorts the output of another command",
	"tail":     "shortens the output of another command",
	"curl":     "asks an Image Factory in the internet",
	"helm":     "needs a registry and a cluster; test/install installs, upgrades and uninstalls the chart",
	"mkdir":    "makes folders of the reader",
	"rm":       "removes folders of the reader",
	"sed":      "filters the output of another command",
	"talosctl": "belongs to Talos, and is not built here; lab/conformance holds the machine API to that of real nodes",
	"test":     "is of the shell",
	"umask":    "is of the shell",
	"cat":      "prints",
	"cd":       "is of the shell",
	"secret":   "is a function of the tutorial",
	"spec":     "is a function of the tutorial",
}

// TestPrograms: each program of a document is one that a test holds to what exists, or has a reason why not.
func TestPrograms(t *testing.T) {
	used := map[string]bool{}

	for _, c := range all(t) {
		used[c.Program] = true

		if unchecked[c.Program] == "" && !slices.Contains(checked, c.Program) {
			t.Errorf("%s: no test knows %s: check its commands, or say why not", c, c.Program)
		}
	}

	for program := range unchecked {
		if !used[program] {
			t.Errorf("no document shows %s any more", program)
		}
	}
}

// TestMakeTargets: the Makefile has each target that a document names.
func TestMakeTargets(t *testing.T) {
	makefile, err := os.ReadFile(module + "/Makefile")
	if err != nil {
		t.Fatal(err)
	}

	target := regexp.MustCompile(`^[a-z][a-z-]*$`)
	found := 0

	for _, c := range all(t) {
		if c.Program != "make" {
			continue
		}

		for _, arg := range c.Args {
			if !target.MatchString(arg) {
				continue
			}

			found++

			if !regexp.MustCompile(`(?m)^` + arg + `:`).Match(makefile) {
				t.Errorf("%s: there is no target %s", c, arg)
			}
		}
	}

	if found < 40 {
		t.Errorf("only %d targets were found", found)
	}
}

// TestOf: commands are found in blocks, sessions, substitutions and the text, and nothing else is.
func TestOf(t *testing.T) {
	const text = "Run `talos-operator plan prod`, not `plan`.\n" +
		"```sh\nexport A=$(kubectl get \"pods\" -n 'a b')   # a comment\n.bin/talos-lab up \\\n  --dir $B | grep x\n```\n" +
		"```console\n$ make demo\nmake test\n```\n```yaml\nkubectl: get\n```\n"

	got, err := commands.Of("x.md", text)
	if err != nil {
		t.Fatal(err)
	}

	want := []string{
		"x.md:1: talos-operator plan prod", "x.md:3: kubectl get pods -n a b", "x.md:3: talos-lab up --dir unknown",
		"x.md:3: grep x", "x.md:8: make demo",
	}

	for i, c := range got {
		if i >= len(want) || c.String() != want[i] {
			t.Errorf("found %s", c)
		}
	}

	if len(got) != len(want) || !got[0].Mention || got[1].Mention {
		t.Errorf("found %v, want %v", got, want)
	}
}

// TestCheck: a command, flag or argument that does not exist is refused.
func TestCheck(t *testing.T) {
	for script, ok := range map[string]bool{
		"tool do one --fast": true, "tool do": false, "tool do one two": false, "tool do one --slow": false, "tool make": false,
		"tool group do": false, "tool group": false,
	} {
		root := &cobra.Command{Use: "tool"}
		do := &cobra.Command{Use: "do", Args: cobra.ExactArgs(1), Run: func(*cobra.Command, []string) {}}
		do.Flags().Bool("fast", false, "")

		group := &cobra.Command{Use: "group"}
		group.AddCommand(&cobra.Command{Use: "inner", Run: func(*cobra.Command, []string) {}})
		root.AddCommand(do, group)

		found, err := commands.Of("x.md", "```sh\n"+script+"\n```\n")
		if err != nil || len(found) != 1 {
			t.Fatal(found, err)
		}

		if err := commands.Check(root, found[0]); (err == nil) != ok {
			t.Errorf("%s: %v", script, err)
		}
	}
}

// TestKubectlRefuses: what does not exist is found in each part of a command of kubectl.
func TestKubectlRefuses(t *testing.T) {
	crds := readCRDs(t)

	good := []string{
		"kubectl get tcp,tw prod -o wide",
		"kubectl wait tcp/prod --for=condition=EtcdHealthy",
		`kubectl get tm x -o jsonpath='{range .status.conditions[*]}{.type}{end}'`,
		`kubectl get tm -o custom-columns=N:.metadata.name,C:.status.change.phase`,
		`kubectl patch kc x --type merge -p '{"spec":{"rollout":{"approval":"Manual"}}}'`,
		`kubectl patch kc x --type json -p '[{"op":"replace","path":"/spec/workers/0/replicas","value":3}]'`,
		"kubectl annotate tcp x talos-operator.io/allow-new-etcd=true",
	}
	bad := []string{
		"kubectl get tcps",
		"kubectl fetch tcp",
		"kubectl get tcp --fast",
		"kubectl wait tw/prod --for=condition=EtcdHealthy",
		`kubectl get tm x -o jsonpath='{range .status.conditions[*]}{.kind}{end}'`,
		`kubectl get tm -o custom-columns=N:.metadata.name,C:.status.change.color`,
		`kubectl patch kc x --type merge -p '{"spec":{"rollout":{"approve":"Manual"}}}'`,
		`kubectl patch kc x --type json -p '[{"op":"replace","path":"/spec/workers/0/size","value":3}]'`,
		"kubectl annotate tw x talos-operator.io/allow-new-etcd=true",
		"kubectl apply -f examples/missing.yaml",
	}

	for i, script := range slices.Concat(good, bad) {
		found, err := commands.Of("x.md", "```sh\n"+script+"\n```\n")
		if err != nil || len(found) != 1 {
			t.Fatal(found, err)
		}

		if err := checkKubectl(crds, found[0]); (err == nil) != (i < len(good)) {
			t.Errorf("%s: %v", script, err)
		}
	}
}
