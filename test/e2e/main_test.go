package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
)

// TestMain builds the binary under test, so that no test runs an old one.
func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	ctrl.SetLogger(logr.Discard())

	dir, err := os.MkdirTemp("", "talos-operator-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)

		return 1
	}
	defer os.RemoveAll(dir)

	operator = filepath.Join(dir, "talos-operator")

	build := exec.Command("go", "build", "-o", operator, "../../cmd/talos-operator")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building the operator: %v\n%s", err, out)

		return 1
	}

	return m.Run()
}

func clusterConditions(o client.Object) []metav1.Condition {
	if c, ok := o.(*vitistackv1alpha1.KubernetesCluster); ok {
		return c.Status.Conditions
	}

	return nil
}
