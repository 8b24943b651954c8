package staticpod_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/talos-operator/talos-operator/internal/machineconfig/staticpod"
)

// FuzzCheck: a static pod is refused with its place, or has a name and becomes a part of a machine config as it is.
func FuzzCheck(f *testing.F) {
	for _, pod := range []string{
		`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","namespace":"b"},"spec":{"containers":[{"name":"c","image":"d"}]}}`,
		`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"hostNetwork":true,"containers":[{"name":"c","image":"d",` +
			`"ports":[{"containerPort":80,"hostPort":80}],"resources":{"limits":{"cpu":"1e9999"}},"env":[{"name":"A","value":"b"}]}],` +
			`"volumes":[{"name":"v","hostPath":{"path":"/a/../b"}}]}}`,
		`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"containers":[{"name":"c","image":"d","livenessProbe":` +
			`{"httpGet":{"port":"x"}}}],"initContainers":[{}],"securityContext":{"sysctls":[{}]}}}`,
		`{"metadata":{"Name":"a","name":null},"metadata":{"name":"b"}}`, `[]`, `null`, `{"spec":{"containers":[null]}}`, `{`,
	} {
		f.Add([]byte(pod), []byte(`{"metadata":{"name":"a"}}`))
	}

	f.Fuzz(func(t *testing.T, first, second []byte) {
		pods := []runtime.RawExtension{{Raw: first}, {Raw: second}}

		problems := staticpod.Check(field.NewPath(staticpod.Root), pods, 7445)
		for i, again := range staticpod.Check(field.NewPath(staticpod.Root), pods, 7445) {
			if again.Error() != problems[i].Error() {
				t.Errorf("it has another problem the next time: %v; %v", problems[i], again)
			}
		}

		if len(problems) > 0 {
			return
		}

		objects, err := staticpod.Objects(pods)
		if err != nil {
			t.Fatalf("what passed cannot be read: %v", err)
		}

		for i, o := range objects {
			read, ok := staticpod.NameOf(pods[i])
			if written, named := staticpod.NameOfObject(o.Object); !ok || !named || read != written {
				t.Errorf("a pod with the name %q is written with %q", read, written)
			}
		}

		if merged := staticpod.Merge(pods, pods); len(merged) != len(pods) {
			t.Errorf("of %d pods become %d", len(pods), len(merged))
		}
	})
}
