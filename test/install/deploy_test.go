package install

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestDeploy: make deploy applies everything, with the image that it is told. make undeploy deletes that, but nothing that
// holds clusters.
func TestDeploy(t *testing.T) {
	t.Parallel()

	for _, tc := range []struct {
		target, image, verb string
		want                string
	}{
		{"deploy", "registry.example.com:5000/talos-operator@sha256:12", "apply --server-side", "registry.example.com:5000/talos-operator@sha256:12"},
		{"deploy", "", "apply --server-side", "ghcr.io/vitistack/talos-operator:0.1.0"},
		{"undeploy", "", "delete --ignore-not-found", "ghcr.io/vitistack/talos-operator:0.1.0"},
	} {
		// Where kubectl would be called, its arguments are printed.
		out, err := run("make", "-C", root, "--no-print-directory", tc.target, "IMG="+tc.image, "KUBECTL=echo")
		if err != nil {
			t.Fatal(err)
		}

		verb, folder, ok := strings.Cut(strings.TrimSpace(string(out)), " -k ")
		if !ok || verb != tc.verb {
			t.Fatalf("make %s runs kubectl %q", tc.target, out)
		}

		found := objects(t, kustomizePath, folder)

		if got := only[appsv1.Deployment](t, found, "Deployment").Spec.Template.Spec.Containers[0].Image; got != tc.want {
			t.Errorf("make %s: image %s, want %s", tc.target, got, tc.want)
		}

		for kind, there := range map[string]bool{
			"CustomResourceDefinition": tc.target == "deploy", "Namespace": tc.target == "deploy", "ClusterRole": true,
			"Role": true, "ServiceAccount": true, "Service": true, "NetworkPolicy": true, "ValidatingAdmissionPolicy": true,
		} {
			if got := len(of(found, kind)) > 0; got != there {
				t.Errorf("make %s: objects of the kind %s: %t", tc.target, kind, got)
			}
		}
	}
}

// TestAlerts: alerts are about metrics that there are.
func TestAlerts(t *testing.T) {
	t.Parallel()

	sources, err := filepath.Glob(filepath.Join(root, "internal/metrics/*.go"))
	if err != nil {
		t.Fatal(err)
	}

	var code strings.Builder

	for _, path := range sources {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}

		code.Write(text)
	}

	rendered := of(template(t, "--set", "prometheusRule.enabled=true"), "PrometheusRule")

	groups, _, err := unstructured.NestedSlice(rendered[0].Object, "spec", "groups")
	if err != nil || len(groups) != 1 {
		t.Fatalf("%d groups of alerts: %v", len(groups), err)
	}

	rules := groups[0].(map[string]any)["rules"].([]any)
	if len(rules) == 0 {
		t.Fatal("there are no alerts")
	}

	for _, r := range rules {
		alert, _, _ := unstructured.NestedString(r.(map[string]any), "alert")
		expression, _, _ := unstructured.NestedString(r.(map[string]any), "expr")

		metrics := regexp.MustCompile(`talos_operator_\w+`).FindAllString(expression, -1)
		if alert == "" || len(metrics) == 0 {
			t.Errorf("alert %q is about none of the operator's metrics: %s", alert, expression)
		}

		for _, m := range metrics {
			if !strings.Contains(code.String(), `"`+m+`"`) {
				t.Errorf("%s: there is no metric %s", alert, m)
			}
		}
	}
}
