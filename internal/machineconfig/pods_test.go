package machineconfig_test

import (
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/talos-operator/talos-operator/internal/machineconfig"
	"github.com/talos-operator/talos-operator/internal/machineconfig/staticpod"
)

// TestSame: of two configs, what both have alike is told, and neither what differs nor what only one has.
func TestSame(t *testing.T) {
	t.Parallel()

	const first = `version: v1alpha1
machine: {pods: [{metadata: {name: a}, spec: {x: 1}}, {metadata: {name: b}, spec: {x: 1}}, {metadata: {name: c}}, {}]}
---
{apiVersion: v1alpha1, kind: ExtensionServiceConfig, name: a, environment: [A=1]}
---
{apiVersion: v1alpha1, kind: ExtensionServiceConfig, name: b, environment: [A=1]}
---
{apiVersion: v1alpha1, kind: OfAnotherVersion, name: c}
`

	const second = `version: v1alpha1
machine: {pods: [{metadata: {name: b}, spec: {x: 2}}, {metadata: {name: a}, spec: {x: 1}}]}
---
{apiVersion: v1alpha1, kind: ExtensionServiceConfig, name: b, environment: [A=2]}
---
{apiVersion: v1alpha1, kind: ExtensionServiceConfig, name: a, environment: [A=1]}
`

	pods, err := machineconfig.SameStaticPods([]byte(first), []byte(second))
	if err != nil || !maps.Equal(pods, map[staticpod.Name]bool{{Namespace: "default", Name: "a"}: true}) {
		t.Errorf("pods: %v, %v", pods, err)
	}

	services, err := machineconfig.SameExtensionServices([]byte(first), []byte(second))
	if err != nil {
		t.Fatal(err)
	}

	if diff := cmp.Diff(map[string]bool{"a": true}, services); diff != "" {
		t.Errorf("services (-want +got):\n%s", diff)
	}
}
