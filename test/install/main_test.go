// Package install installs the operator as users do: with Helm and with kustomize.
package install

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/talos-operator/talos-operator/lab/management"
	testoperator "github.com/talos-operator/talos-operator/test/operator"
	"github.com/talos-operator/talos-operator/test/plane"
)

const root = "../.."

var (
	shared *plane.Plane
	// Programs, and copies of what they read.
	helmPath, kustomizePath, operatorPath, chart, manifests string
	// environment of the programs: Helm must not read the settings of the user who runs the tests.
	environment []string
)

func TestMain(m *testing.M) {
	path, remove, err := testoperator.Binary()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}

	operatorPath = path

	dir, err := os.MkdirTemp("", "talos-operator-install-")
	if err == nil {
		err = prepare(dir)
	}

	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}

	plane.Main(m, &shared, remove, func() { _ = os.RemoveAll(dir) })
}

func prepare(dir string) error {
	environment = append(os.Environ(), "HELM_CONFIG_HOME="+dir, "HELM_CACHE_HOME="+dir, "HELM_DATA_HOME="+dir)
	chart, manifests = filepath.Join(dir, "chart"), filepath.Join(dir, "config")

	tools := os.Getenv(testoperator.ToolsEnvironment)
	if tools == "" {
		tools = dir

		build := exec.Command("go", "build", "-C", filepath.Join(root, "hack/helm"), "-o", dir, "./cmd/helm", "./cmd/kustomize")
		if out, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("building Helm and kustomize: %w\n%s", err, out)
		}
	}

	helmPath, kustomizePath = filepath.Join(tools, "helm"), filepath.Join(tools, "kustomize")

	// Go runs cached tests again when a file that the test itself has opened is another one.
	_, noHelm := os.Stat(helmPath)
	_, noKustomize := os.Stat(kustomizePath)
	_, noMakefile := os.ReadFile(filepath.Join(root, "Makefile"))

	return errors.Join(noHelm, noKustomize, noMakefile,
		os.CopyFS(chart, os.DirFS(filepath.Join(root, "charts/talos-operator"))),
		os.CopyFS(manifests, os.DirFS(filepath.Join(root, "config"))))
}

// run returns what a program prints. Where it fails, that is the error.
func run(path string, args ...string) ([]byte, error) {
	cmd := exec.Command(path, args...)
	cmd.Env = environment

	out, err := cmd.Output()

	exited := &exec.ExitError{}
	if errors.As(err, &exited) {
		return nil, fmt.Errorf("%s %q: %w\n%s%s", filepath.Base(path), args, err, out, exited.Stderr)
	}

	return out, err
}

// template renders the chart as a release with the names of config/default.
func template(t *testing.T, args ...string) []*unstructured.Unstructured {
	t.Helper()

	return objects(t, helmPath, append([]string{
		"template", "talos-operator", chart, "--namespace", management.ManagerNamespace, "--kube-version", "1.37.0",
	}, args...)...)
}

func objects(t *testing.T, path string, args ...string) []*unstructured.Unstructured {
	t.Helper()

	out, err := run(path, args...)
	if err != nil {
		t.Fatal(err)
	}

	found, err := management.Decode(out)
	if err != nil || len(found) == 0 {
		t.Fatalf("%d objects, error %v", len(found), err)
	}

	return found
}
