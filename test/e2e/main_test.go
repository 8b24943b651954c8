package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/test/plane"
)

// shared is the management plane that most worlds are namespaces of.
var shared *plane.Plane

// TestMain builds the binary under test, so that no test runs an old one.
func TestMain(m *testing.M) {
	dir, err := build()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}

	plane.Main(m, &shared, func() { _ = os.RemoveAll(dir) })
}

func build() (dir string, err error) {
	dir, err = os.MkdirTemp("", "talos-operator-e2e-")
	if err != nil {
		return "", err
	}

	operator = filepath.Join(dir, "talos-operator")

	if out, err := exec.Command("go", "build", "-o", operator, "../../cmd/talos-operator").CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the operator: %w\n%s", err, out)
	}

	return dir, nil
}

func clusterConditions(o client.Object) []metav1.Condition {
	if c, ok := o.(*vitistackv1alpha1.KubernetesCluster); ok {
		return c.Status.Conditions
	}

	return nil
}
