package manifest_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/manifest"
)

func machine(name string) *vitistackv1alpha1.Machine {
	m := &vitistackv1alpha1.Machine{}
	m.Name, m.Namespace = name, "default"

	return m
}

func TestSyncAndRemove(t *testing.T) {
	operations := map[string]int{}
	s := manifest.Store{Root: t.TempDir(), Count: func(o, status string) { operations[o+" "+status]++ }}

	sync := func(owner string, names ...string) error {
		var list []*vitistackv1alpha1.Machine
		for _, n := range names {
			list = append(list, machine(n))
		}

		return s.Sync("prod", owner, list)
	}

	files := func() string {
		found, err := filepath.Glob(filepath.Join(s.Root, "prod", "*.yaml"))
		if err != nil {
			t.Fatal(err)
		}

		for i := range found {
			found[i] = filepath.Base(found[i])
		}

		return strings.Join(found, " ")
	}

	if err := sync("a/prod", "prod-cp-0", "prod-cp-1"); err != nil || files() != "prod-cp-0.yaml prod-cp-1.yaml" {
		t.Fatalf("%v: %s", err, files())
	}

	// Again: nothing is written.
	if err := sync("a/prod", "prod-cp-0", "prod-cp-1"); err != nil || operations["create success"] != 2 || operations["update success"] != 0 {
		t.Errorf("%v: %v", err, operations)
	}

	// A machine less: its file goes.
	if err := sync("a/prod", "prod-cp-0"); err != nil || files() != "prod-cp-0.yaml" {
		t.Errorf("%v: %s", err, files())
	}

	// A cluster of the same name elsewhere: it is left alone, also when it is deleted.
	if err := sync("b/prod", "prod-cp-0"); !errors.Is(err, manifest.ErrForeign) {
		t.Errorf("another owner: %v", err)
	}

	if err := s.Remove("prod", "b/prod"); err != nil || files() != "prod-cp-0.yaml" {
		t.Errorf("removed for another owner: %v %s", err, files())
	}

	if err := s.Remove("prod", "a/prod"); err != nil {
		t.Fatal(err)
	}

	if _, err := os.Stat(filepath.Join(s.Root, "prod")); !os.IsNotExist(err) {
		t.Errorf("the folder is still there: %v", err)
	}
}

func TestUnwritableFolder(t *testing.T) {
	root := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(root, nil, 0o600); err != nil {
		t.Fatal(err)
	}

	s := manifest.Store{Root: root}
	if err := s.Sync("prod", "a/prod", []*vitistackv1alpha1.Machine{machine("x")}); err == nil {
		t.Error("writing below a file succeeded")
	}
}

// TestHostileNames: nothing is written or removed outside of the folder, or in the place of what the store keeps there.
func TestHostileNames(t *testing.T) {
	root := filepath.Join(t.TempDir(), "a", "results")
	outside := filepath.Join(filepath.Dir(root), ".owner")
	s := manifest.Store{Root: root}

	if err := os.MkdirAll(root, 0o700); err != nil {
		t.Fatal(err)
	}

	// A folder that would be removed as one of the cluster.
	if err := os.WriteFile(outside, []byte("a/c"), 0o600); err != nil {
		t.Fatal(err)
	}

	for _, name := range []string{
		"", ".", "..", "../x", "../../etc/passwd", "/etc/shadow", "a/b", "./a", "a/..", ".owner", ".hidden", "a\x00b", "a\nb",
		"a\x1b[2J", strings.Repeat("../", 1<<16),
	} {
		for what, err := range map[string]error{
			"a folder": s.Sync(name, "a/c", []*vitistackv1alpha1.Machine{machine("m")}), "a file": s.Sync("c", "a/c", []*vitistackv1alpha1.Machine{machine(name)}),
			"what is removed": s.Remove(name, "a/c"),
		} {
			if !errors.Is(err, manifest.ErrName) {
				t.Errorf("%.40q is %s: %v", name, what, err)
			}
		}
	}

	if _, err := os.Stat(outside); err != nil {
		t.Errorf("a file outside of the folder: %v", err)
	}

	entries, err := os.ReadDir(filepath.Join(root, "c"))
	if err != nil || len(entries) != 1 || entries[0].Name() != ".owner" {
		t.Errorf("files of the cluster: %v, %v", entries, err)
	}
}
