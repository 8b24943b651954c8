package cli_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"k8s.io/client-go/tools/clientcmd"

	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/test/loopback"
	"github.com/talos-operator/talos-operator/test/wait"
)

// tree is every file below a folder with its mode.
func tree(t *testing.T, dir string) map[string]fs.FileMode {
	t.Helper()

	out := map[string]fs.FileMode{}

	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}

		info, err := d.Info()
		if err != nil {
			return err
		}

		name, err := filepath.Rel(dir, path)
		out[name] = info.Mode().Perm()

		return err
	})
	if err != nil {
		t.Fatal(err)
	}

	return out
}

func read(t *testing.T, path ...string) []byte {
	t.Helper()

	data, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}

	return data
}

// TestExport: everything is there, talosctl's own libraries read it, no other user can, and the node was only read.
func TestExport(t *testing.T) {
	s := newShell(t)
	c := s.sample("prod")
	n := s.bootControlPlane(c)
	calls := n.Faults().MutatingCalls()
	dir := filepath.Join(t.TempDir(), "out")

	out, warnings, failed := s.run("export", "prod", "--dir", dir, "-o", "json")
	if failed != "" {
		t.Fatal(failed)
	}

	want := map[string]fs.FileMode{
		".": 0o700, "controlplane": 0o700, "worker": 0o700, "talosconfig": 0o600, "kubeconfig": 0o600, "secrets.yaml": 0o600,
		"controlplane/prod-cp.yaml": 0o600, "worker/prod-w-0.yaml": 0o600,
	}
	if diff := cmp.Diff(want, tree(t, dir)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}

	var result struct {
		Cluster string
		Files   []struct{ Path, Machine, Source string }
	}
	if err := json.Unmarshal([]byte(out), &result); err != nil {
		t.Fatalf("%v: %s", err, out)
	}

	sources := map[string]string{}
	for _, f := range result.Files {
		sources[f.Machine] = f.Source
	}

	if result.Cluster != "prod" || sources["prod-cp"] != "node" || sources["prod-w-0"] != "rendered" {
		t.Errorf("result: %s", out)
	}

	if !strings.Contains(warnings, "prod-w-0") || strings.Contains(warnings, "prod-cp") || strings.Count(warnings, "\n") != 1 {
		t.Errorf("warnings: %q", warnings)
	}

	checkCredentials(t, dir, c)
	checkConfigs(t, dir, c)

	if got := n.Faults().MutatingCalls(); got != calls {
		t.Errorf("%d mutating calls", got-calls)
	}

	for _, text := range []string{out, warnings} {
		if strings.Contains(text, "PRIVATE KEY") || strings.Contains(text, c.state.Bundle.Secrets().TrustdInfo.Token) {
			t.Errorf("secrets are printed: %s", text)
		}
	}

	overwrites(t, s, dir)
}

func checkCredentials(t *testing.T, dir string, c *sample) {
	t.Helper()

	bundle, err := secrets.LoadBundle(filepath.Join(dir, "secrets.yaml"))
	if err != nil || bundle.Validate() != nil {
		t.Errorf("talosctl does not read the bundle: %v", err)
	}

	parsed, err := clusterstate.ParseBundle(read(t, dir, "secrets.yaml"))
	if err != nil || !parsed.Equal(c.state.Bundle) {
		t.Errorf("the bundle is another one: %v", err)
	}

	cfg, err := clientconfig.Open(filepath.Join(dir, "talosconfig"))
	if err != nil {
		t.Fatal(err)
	}

	cp, worker := c.machine[0].Spec.Address, c.machine[1].Spec.Address
	if ctx := cfg.Contexts["prod"]; cfg.Context != "prod" || !slices.Equal(ctx.Endpoints, []string{cp}) ||
		!slices.Equal(ctx.Nodes, []string{cp, worker}) {
		t.Errorf("talosconfig: context %s, %v", cfg.Context, cfg.Contexts)
	}

	rest, err := clientcmd.BuildConfigFromFlags("", filepath.Join(dir, "kubeconfig"))
	if err != nil || rest.Host != c.cp.Spec.Endpoint {
		t.Errorf("kubeconfig: %v, %v", rest, err)
	}
}

func checkConfigs(t *testing.T, dir string, c *sample) {
	t.Helper()

	for path, kind := range map[string]string{"controlplane/prod-cp.yaml": "controlplane", "worker/prod-w-0.yaml": "worker"} {
		cfg, err := configloader.NewFromFile(filepath.Join(dir, path))
		if err != nil {
			t.Fatal(err)
		}

		if got := cfg.Machine().Type().String(); got != kind || cfg.Cluster().ID() != c.state.Bundle.ClusterID() {
			t.Errorf("%s is of a %s in %s", path, got, cfg.Cluster().ID())
		}
	}
}

// overwrites: without --force nothing is touched, also when only one of the files exists.
func overwrites(t *testing.T, s *shell, dir string) {
	t.Helper()

	if err := os.Remove(filepath.Join(dir, "talosconfig")); err != nil {
		t.Fatal(err)
	}

	before := read(t, dir, "kubeconfig")

	if _, _, failed := s.run("export", "prod", "--dir", dir); !strings.Contains(failed, "exists") ||
		!strings.Contains(failed, "--force") {
		t.Errorf("over existing files: %q", failed)
	}

	if _, ok := tree(t, dir)["talosconfig"]; ok || string(read(t, dir, "kubeconfig")) != string(before) {
		t.Error("something was written all the same")
	}

	out, _, failed := s.run("export", "prod", "--dir", dir, "--force")
	if failed != "" || !strings.Contains(out, "Wrote 5 files of cluster prod") {
		t.Errorf("with --force: %q, %q", out, failed)
	}

	if string(read(t, dir, "kubeconfig")) == string(before) || tree(t, dir)["kubeconfig"] != 0o600 {
		t.Error("not overwritten, or for all to read")
	}
}

// TestExportRefuses: what cannot be exported is said in a line, and nothing is written.
func TestExportRefuses(t *testing.T) {
	s := newShell(t)
	s.sample("broken")

	secret := s.secret("broken-state")
	secret.Data["secretBundle"] = []byte("hunter2: [")

	if err := s.client.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}

	top := &vitistackv1alpha1.KubernetesCluster{}
	top.Name = "young"
	top.Spec.TalosVersion, top.Spec.KubernetesVersion = talosV, kubernetes
	top.Spec.ControlPlane.Replicas = 1
	top.Spec.ClusterEndpoint = "https://10.0.0.1:6443"
	s.create(top)

	dir, silent := filepath.Join(t.TempDir(), "out"), loopback.Address(t)

	for name, tt := range map[string]struct {
		args []string
		says string
	}{
		"unknown":        {[]string{"missing"}, "no KubernetesCluster or TalosControlPlane missing in namespace " + s.ns},
		"no state":       {[]string{"young"}, "KubernetesCluster young has no control plane yet"},
		"broken state":   {[]string{"broken"}, "Secret broken-state cannot be used"},
		"other format":   {[]string{"broken", "-o", "xml"}, "unknown output format"},
		"no name":        {nil, "accepts 1 arg"},
		"other address":  {[]string{"broken", "--server", "https://" + silent + ":1"}, silent},
		"no such config": {[]string{"broken", "--context", "none"}, `context "none" does not exist`},
	} {
		_, _, failed := s.run(append([]string{"export", "--dir", dir}, tt.args...)...)
		if !strings.Contains(failed, tt.says) || strings.Contains(failed, "hunter2") {
			t.Errorf("%s: %q", name, failed)
		}
	}

	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the folder is there: %v", err)
	}
}

// TestCompletion: a shell completes the names of clusters, once each.
func TestCompletion(t *testing.T) {
	s := newShell(t)
	s.sample("alpha")
	s.sample("beta")

	// A shell that hangs is worse than one that knows nothing: on a busy computer it may know nothing.
	wait.For(t, "the completion", func(context.Context) error {
		out, _, failed := s.run("__complete", "export", "a")
		if failed != "" || !strings.HasPrefix(out, "alpha\n:4") {
			return fmt.Errorf("completion: %q, %q", out, failed)
		}

		return nil
	})
}
