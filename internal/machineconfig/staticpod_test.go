package machineconfig_test

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v4"
	"k8s.io/apimachinery/pkg/runtime"
	kyaml "sigs.k8s.io/yaml"

	"github.com/talos-operator/talos-operator/internal/machineconfig"
)

func podsOf(t *testing.T, text string) []runtime.RawExtension {
	t.Helper()

	var pods []runtime.RawExtension
	if err := kyaml.Unmarshal([]byte(text), &pods); err != nil {
		t.Fatal(err)
	}

	return pods
}

// TestStaticPods: static pods are in the main document of both generations of Talos as they were written, which its
// machinery accepts.
func TestStaticPods(t *testing.T) {
	t.Parallel()

	text, err := os.ReadFile("testdata/services/static-pods.yaml")
	if err != nil {
		t.Fatal(err)
	}

	var want any
	if err := kyaml.Unmarshal(text, &want); err != nil {
		t.Fatal(err)
	}

	for generation, version := range versions() {
		in := plainInput(t, machineconfig.ControlPlane)
		in.TalosVersion, in.StaticPods = version, podsOf(t, string(text))

		config := render(t, in).Bytes
		judge(t, config)

		var main struct {
			Machine struct {
				Pods []any `yaml:"pods"`
			} `yaml:"machine"`
		}
		if err := yaml.Unmarshal(config, &main); err != nil {
			t.Fatal(err)
		}

		raw, err := yaml.Marshal(main.Machine.Pods)
		if err != nil {
			t.Fatal(err)
		}

		golden(t, "static-pods-"+generation+".yaml", raw)

		got, err := kyaml.YAMLToJSON(raw)
		if err != nil {
			t.Fatal(err)
		}

		var read any
		if err := json.Unmarshal(got, &read); err != nil {
			t.Fatal(err)
		}

		if diff := cmp.Diff(want, read); diff != "" {
			t.Errorf("%s: (-written +rendered):\n%s", generation, diff)
		}
	}
}

// TestStaticPodRefusal: a pod that the kubelet would refuse, and all others of its machine with it, makes no config. What a
// pod holds is in no error and no difference.
func TestStaticPodRefusal(t *testing.T) {
	t.Parallel()

	in := plainInput(t, machineconfig.ControlPlane)
	before := render(t, in).Bytes
	in.StaticPods = podsOf(t, "[{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: "+
		"[{name: a, image: a, env: [{name: B, value: hunter2hunter2}]}]}}]")

	diff, err := machineconfig.Diff(before, render(t, in).Bytes)
	if err != nil || diff.Equal() {
		t.Fatalf("%+v, %v", diff, err)
	}

	for _, c := range diff.Changes {
		mustNotLeak(t, c.Old+c.New)
	}

	in.StaticPods = podsOf(t, "[{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: "+
		"[{name: a, env: [{name: B, value: hunter2hunter2}]}]}}]")
	refused(t, "no image", in, "staticPods[default/a].spec.containers[0].image", "not the name of an image")

	_, err = machineconfig.Render(in)
	mustNotLeak(t, err.Error())
}
