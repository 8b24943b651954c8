package stack_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/interp"
	"mvdan.cc/sh/v3/syntax"

	"github.com/talos-operator/talos-operator/lab/stack"
	"github.com/talos-operator/talos-operator/test/commands"
	testoperator "github.com/talos-operator/talos-operator/test/operator"
)

// reader types what the documents show into one shell, in a folder with the files that they name.
type reader struct {
	t     *testing.T
	shell *interp.Runner
	words *strings.Replacer

	mu     sync.Mutex // guards the fields below: the commands of a pipe run at the same time
	out    bytes.Buffer
	failed []string
	// ran counts the commands, seen are those that only show something.
	ran  int
	seen map[string]bool
}

// Write implements io.Writer for the output of all commands.
func (r *reader) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()

	return r.out.Write(p)
}

// readDocuments runs the commands of all documents in a lab, page by page, in the order in which they are written.
func readDocuments(t *testing.T, s *stack.Stack) {
	t.Helper()

	pages, err := commands.Statements("../..")
	if err != nil {
		t.Fatal(err)
	}

	order := slices.Sorted(maps.Keys(pages))
	slices.SortStableFunc(order, func(a, b string) int { return rank(a) - rank(b) })

	r := newReader(t, s)
	used := map[int]bool{}

	for _, page := range order {
		for _, statement := range pages[page] {
			if i := slices.IndexFunc(exceptions, func(e exception) bool { return e.matches(statement) }); i >= 0 {
				used[i] = true

				continue
			}

			r.read(statement)
		}
	}

	for i, e := range exceptions {
		if !used[i] {
			t.Errorf("no document shows %q in %q any more, or another exception comes first", e.begins, e.page)
		}
	}

	t.Logf("%d commands of %d pages", r.ran, len(order))

	if r.ran < 80 {
		t.Errorf("only %d commands were run", r.ran)
	}
}

// read runs a statement and what comes after it, and checks what they print.
func (r *reader) read(s commands.Statement) {
	r.t.Helper()

	run := r.run
	if refused[s.Text] {
		run = r.refuse
	}

	printed := run(s.String(), r.inLab(s.Document, s.Text))
	printed += r.run("after "+s.String(), r.inLab(s.Document, after[s.Text]))

	if want := says[s.Text]; !strings.Contains(printed, want) {
		r.t.Errorf("%s prints no %q:\n%s", s, want, printed)
	}
}

func newReader(t *testing.T, s *stack.Stack) *reader {
	t.Helper()

	dir := t.TempDir()
	r := &reader{t: t, seen: map[string]bool{}, words: strings.NewReplacer(wordsOf(s)...)}

	for _, name := range []string{"examples", "config", "charts"} {
		path, err := filepath.Abs("../../" + name)
		if err != nil {
			t.Fatal(err)
		}

		if err := os.Symlink(path, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}

	// API servers of tests publish no OpenAPI documents, which kubectl would check a manifest with.
	files := map[string]string{
		".kube/kuberc": "apiVersion: kubectl.config.k8s.io/v1beta1\nkind: Preference\n" +
			"defaults: [{command: apply, options: [{name: validate, default: \"false\"}]}]\n",
		"ca.crt": string(s.Store.CA()), "talconfig.yaml": fleet,
	}
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}

	// A collection of garbage costs a short process more than it saves.
	env := append(os.Environ(), "HOME="+dir, "GOGC=off", "KUBECONFIG="+s.Kubeconfig(), "TALOS_LAB_DIR="+s.Dir(),
		"PATH="+programs(t, dir)+":"+os.Getenv("PATH"))

	var err error
	if r.shell, err = interp.New(interp.Dir(dir), interp.Env(expand.ListEnviron(env...)), interp.StdIO(nil, r, r),
		interp.ExecHandlers(r.watch)); err != nil {
		t.Fatal(err)
	}

	r.run("what the documents begin with", r.words.Replace(before))

	return r
}

// programs is a folder with the programs of the documents.
func programs(t *testing.T, dir string) string {
	t.Helper()

	into := filepath.Join(dir, "programs")
	if err := os.Mkdir(into, 0o700); err != nil {
		t.Fatal(err)
	}

	lab := filepath.Join(filepath.Dir(operator), "talos-lab")
	if _, err := os.Stat(lab); err != nil {
		build(t, into, "../..", "./cmd/talos-lab")

		lab = ""
	}

	paths := []string{operator, lab}

	for _, name := range []string{"kubectl", "helm"} {
		if tools := os.Getenv(testoperator.ToolsEnvironment); tools != "" {
			paths = append(paths, filepath.Join(tools, name))
		} else {
			build(t, into, "../../hack/helm", "./cmd/"+name)
		}
	}

	for _, path := range paths {
		if path == "" {
			continue
		}

		if err := os.Symlink(path, filepath.Join(into, filepath.Base(path))); err != nil {
			t.Fatal(err)
		}

		// Go runs cached tests again when a file that they asked for has changed.
		if _, err := os.Stat(path); err != nil {
			t.Fatal(err)
		}
	}

	return into
}

func build(t *testing.T, into, module, path string) {
	t.Helper()

	if out, err := exec.CommandContext(t.Context(), "go", "build", "-C", module, "-o", into, path).CombinedOutput(); err != nil {
		t.Fatalf("building %s: %v\n%s", path, err, out)
	}
}

// showsChanges reports whether a command ends with 2 where something would change.
func showsChanges(args []string) bool {
	return slices.Contains(args[:min(len(args), 3)], "plan") ||
		len(args) > 1 && args[1] == "talconfig" && slices.Contains(args, "--dry-run")
}

// watch notes which commands are run, and which fail: those within a pipe, too.
func (r *reader) watch(next interp.ExecHandlerFunc) interp.ExecHandlerFunc {
	return func(ctx context.Context, args []string) error {
		err := next(ctx, args)

		var status interp.ExitStatus

		r.mu.Lock()
		defer r.mu.Unlock()

		switch r.ran++; {
		case err == nil:
		case args[0] == "grep": // it has found nothing
		case errors.As(err, &status) && status == 2 && showsChanges(args): // something changes
		default:
			r.failed = append(r.failed, fmt.Sprintf("%s: %v", strings.Join(args, " "), err))
		}

		return err
	}
}

// inLab is a statement with what its words stand for in the lab.
func (r *reader) inLab(page, text string) string {
	for _, words := range [][]string{wordsOfPage[page], everywhere} {
		for i := 0; i < len(words); i += 2 {
			text = replaceWord(text, words[i], words[i+1])
		}
	}

	// What is watched does not end.
	if strings.Contains(text, "kubectl get") {
		text = replaceWord(text, "-w", "")
	}

	return r.words.Replace(text)
}

// shows are the beginnings of commands that change nothing.
var shows = []string{
	"kubectl get ", "kubectl describe ", "kubectl -n ", "inside get ", "talos-lab status", "talos-lab node list",
	"talos-operator plan ", "talos-operator upgrade plan ", "talos-operator upgrade status ", "talos-operator backup list ",
}

// limit is how long a statement may take: as long as the waits in it.
const limit = 6 * time.Minute

// run returns what a statement prints. It fails the test if a command of it fails.
func (r *reader) run(what, text string) string {
	r.t.Helper()

	out, failed := r.execute(what, text)
	if len(failed) > 0 {
		r.t.Errorf("%s\n%s\n%s", what, strings.Join(failed, "\n"), out)
	}

	return out
}

// refuse returns what a statement prints. It fails the test if no command of it fails.
func (r *reader) refuse(what, text string) string {
	r.t.Helper()

	out, failed := r.execute(what, text)
	if len(failed) == 0 {
		r.t.Errorf("%s is not refused:\n%s", what, out)
	}

	return out
}

func (r *reader) execute(what, text string) (out string, failed []string) {
	r.t.Helper()

	// What was shown once costs time and proves nothing when it is shown again.
	if text == "" || r.seen[text] {
		return "", nil
	}

	r.seen[text] = slices.ContainsFunc(shows, func(begin string) bool { return strings.HasPrefix(text, begin) })

	file, err := syntax.NewParser().Parse(strings.NewReader(text), what)
	if err != nil {
		r.t.Fatal(err)
	}

	ctx, cancel := context.WithTimeout(r.t.Context(), limit)
	defer cancel()

	r.out.Reset()

	var result error

	for _, stmt := range file.Stmts {
		result = r.shell.Run(ctx, stmt)
	}

	var status interp.ExitStatus
	if result != nil && !errors.As(result, &status) {
		r.t.Fatalf("%s: %v", what, result)
	}

	failed, r.failed = r.failed, nil

	return r.out.String(), failed
}
