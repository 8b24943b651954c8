package machineconfig_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/talos-operator/talos-operator/internal/machineconfig"
)

// laughs is a few hundred bytes of YAML whose aliases stand for 9 to the power of a number of levels of texts.
func laughs(levels int) string {
	text := "x0: &x0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]\n"
	for i := range levels {
		text += fmt.Sprintf("x%d: &x%d [%s]\n", i+1, i+1, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*x%d, ", i), 9), ", "))
	}

	return text
}

// TestBombs: a small text does not become large in memory, wherever a user or a node puts it. Expanded, each would take
// gigabytes.
func TestBombs(t *testing.T) {
	in := plainInput(t, machineconfig.Worker)
	wanted := render(t, in).Bytes

	for name, text := range map[string]string{
		"aliases in a document":         "apiVersion: v1alpha1\nkind: Later\n" + laughs(9),
		"aliases in the main document":  "machine:\n" + strings.ReplaceAll("\n"+laughs(9), "\n", "\n  ") + "\n",
		"aliases in a list":             laughs(9) + "machine: {env: {A: *x9}}\n",
		"levels of lists":               "machine: {env: " + strings.Repeat("[", 30_000) + strings.Repeat("]", 30_000) + "}\n",
		"levels of objects":             "apiVersion: v1alpha1\nkind: Later\na: " + strings.Repeat("{a: ", 10_000) + strings.Repeat("}", 10_000) + "\n",
		"levels in JSON":                `[{"op": "add", "path": "/machine/env", "value": ` + strings.Repeat("[", 30_000) + strings.Repeat("]", 30_000) + "}]",
		"copies of copies":              `[{"op": "add", "path": "/machine/env", "value": {"A": "lol"}}` + strings.Repeat(`, {"op": "copy", "from": "/machine/env", "path": "/machine/env/B"}`, 40) + "]",
		"an alias to what it stands in": "machine: &a {env: *a}\n",
	} {
		patched := in
		patched.Patches.Machine = []string{text}

		var err error

		if size := allocated(func() { _, err = machineconfig.Render(patched) }); err == nil || size > 256<<20 {
			t.Errorf("%s: a patch of %d bytes takes %d bytes; it ends with %v", name, len(text), size, err)
		}

		if size := allocated(func() { _, err = machineconfig.Diff(wanted, []byte(text)) }); size > 256<<20 {
			t.Errorf("%s: a configuration of %d bytes takes %d bytes; it ends with %v", name, len(text), size, err)
		}
	}
}

// allocated is how much memory is allocated meanwhile. Other tests do not run then.
func allocated(do func()) uint64 {
	var before, after runtime.MemStats

	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)

	return after.TotalAlloc - before.TotalAlloc
}
