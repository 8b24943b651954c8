package talconfig_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

var imports = []string{"import", "-c", "FOLDER/talconfig.yaml", "-n", "clusters"}

// TestImport: the manifests are private, complete, and paused; what is printed has no secrets unless it is asked for.
func TestImport(t *testing.T) {
	f := newFolder(t)
	f.write("talconfig.yaml", strings.Replace(config, "10.0.0.11,fd00::11", "10.0.0.11", 1))

	out := f.mustRun(imports...)
	if !strings.Contains(out, "Would write Secret/prod-import, ") || !strings.Contains(out, "machine.env.TOKEN") ||
		strings.Contains(out, "hunter2") {
		t.Errorf("got %s", out)
	}

	out = f.mustRun(append(imports, "--out", "FOLDER/objects")...)
	if !strings.Contains(out, "talosworker prod-workers talos-operator.io/paused-\n") {
		t.Errorf("got %s", out)
	}

	var cp v1alpha1.TalosControlPlane

	secrets := map[string]corev1.Secret{}

	paths, err := filepath.Glob(f.path("objects/*.yaml"))
	if err != nil {
		t.Fatal(err)
	}

	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", path, info, err)
		}

		text := f.read("objects/" + filepath.Base(path))

		switch {
		case strings.Contains(path, "-taloscontrolplane-"):
			if err := yaml.UnmarshalStrict([]byte(text), &cp); err != nil {
				t.Fatal(err)
			}
		case strings.Contains(path, "-secret-"):
			var s corev1.Secret
			if err := yaml.UnmarshalStrict([]byte(text), &s); err != nil {
				t.Fatal(err)
			}

			secrets[s.Name] = s

			continue
		}

		if !strings.Contains(text, v1alpha1.PausedAnnotation+`: "true"`) || strings.Contains(text, "hunter2") {
			t.Errorf("%s is not paused, or has a secret:\n%s", path, text)
		}
	}

	from := cp.Spec.ClusterConfigPatchesFrom
	if len(from) != 1 || !strings.Contains(string(secrets[from[0].Name].Data[from[0].Key]), "hunter2hunter2") ||
		len(secrets[cp.Spec.Import.SecretRef.Name].Data) != 2 {
		t.Errorf("the control plane refers to %+v; there are %d Secrets", from, len(secrets))
	}

	if _, _, err := f.run(append(imports, "--out", "FOLDER/objects")...); err == nil || !strings.Contains(err.Error(), "exists") {
		t.Errorf("over manifests that exist: %v", err)
	}
}

func TestImportPrints(t *testing.T) {
	f := newFolder(t)

	out, errOut, err := f.run(append(imports, "-o", "yaml")...)
	if err != nil || strings.Contains(out, "hunter2") || !strings.Contains(out, "secrets.yaml: '(not shown") ||
		!strings.Contains(errOut, "the other addresses of its ipAddress are not in the objects: fd00::11") {
		t.Errorf("got %s, %s, %v", out, errOut, err)
	}

	shown := f.mustRun(append(imports, "-o", "yaml", "--show-secrets", "--new-cluster")...)
	if !strings.Contains(shown, "name: prod-state") || strings.Contains(shown, "(not shown") {
		t.Errorf("got %s", shown)
	}

	f.write("talconfig.yaml", strings.Replace(config, "ipAddress: 10.0.0.12", "ipAddress: w-1.example.org", 1))

	_, errOut, err = f.run(append(imports, "--out", "FOLDER/objects")...)
	if err == nil || !strings.Contains(errOut, "nodes[1] (w-1): ipAddress has no IP address") {
		t.Errorf("got %s, %v", errOut, err)
	}

	if _, err := os.Stat(f.path("objects")); !os.IsNotExist(err) {
		t.Errorf("something was written: %v", err)
	}
}
