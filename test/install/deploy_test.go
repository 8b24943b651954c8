package install

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
)

// TestDeploy: make deploy applies everything, with the image that it is told, and the API server takes it. make undeploy deletes that, but nothing that
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

		if tc.target == "deploy" && tc.image == "" {
			served(t, found)
		}
	}
}
