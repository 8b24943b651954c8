package cosi

import (
	"path"
	"reflect"
	"slices"
	"strings"
	"testing"

	_ "github.com/siderolabs/talos/pkg/machinery/api/resource/definitions/block"
	_ "github.com/siderolabs/talos/pkg/machinery/api/resource/definitions/cluster"
	_ "github.com/siderolabs/talos/pkg/machinery/api/resource/definitions/cri"
	_ "github.com/siderolabs/talos/pkg/machinery/api/resource/definitions/etcd"
	_ "github.com/siderolabs/talos/pkg/machinery/api/resource/definitions/extensions"
	_ "github.com/siderolabs/talos/pkg/machinery/api/resource/definitions/files"
	_ "github.com/siderolabs/talos/pkg/machinery/api/resource/definitions/hardware"
	_ "github.com/siderolabs/talos/pkg/machinery/api/resource/definitions/k8s"
	_ "github.com/siderolabs/talos/pkg/machinery/api/resource/definitions/kubeaccess"
	_ "github.com/siderolabs/talos/pkg/machinery/api/resource/definitions/kubespan"
	_ "github.com/siderolabs/talos/pkg/machinery/api/resource/definitions/network"
	_ "github.com/siderolabs/talos/pkg/machinery/api/resource/definitions/perf"
	_ "github.com/siderolabs/talos/pkg/machinery/api/resource/definitions/runtime"
	_ "github.com/siderolabs/talos/pkg/machinery/api/resource/definitions/secrets"
	_ "github.com/siderolabs/talos/pkg/machinery/api/resource/definitions/security"
	_ "github.com/siderolabs/talos/pkg/machinery/api/resource/definitions/siderolink"
	_ "github.com/siderolabs/talos/pkg/machinery/api/resource/definitions/time"
	_ "github.com/siderolabs/talos/pkg/machinery/api/resource/definitions/v1alpha1"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

const definitions = "talos.resource.definitions."

// specs are the messages that describe resources in the machinery library, except those that are parts of others.
func specs() []string {
	var all []string

	parts := map[protoreflect.FullName]bool{}

	protoregistry.GlobalFiles.RangeFiles(func(f protoreflect.FileDescriptor) bool {
		if !strings.HasPrefix(string(f.Package()), definitions) {
			return true
		}

		for i := range f.Messages().Len() {
			m := f.Messages().Get(i)
			all = append(all, string(m.FullName()))

			for j := range m.Fields().Len() {
				field := m.Fields().Get(j)
				if field.IsMap() {
					field = field.MapValue()
				}

				if part := field.Message(); part != nil {
					parts[part.FullName()] = true
				}
			}
		}

		return true
	})

	return slices.DeleteFunc(all, func(name string) bool { return parts[protoreflect.FullName(name)] })
}

// TestEveryDescribedResourceIsServed holds the list of types against the descriptors of the machinery library: a new
// version shows here which types are new. That those of this version are served as on real nodes is compared with the
// recordings.
func TestEveryDescribedResourceIsServed(t *testing.T) {
	served := map[string]bool{}

	for typ := range prototypes() {
		r, err := newResource(typ)
		if err != nil {
			t.Fatal(err)
		}

		spec := reflect.TypeOf(r.Spec())
		if spec.Kind() == reflect.Pointer {
			spec = spec.Elem()
		}

		served[path.Base(spec.PkgPath())+"."+spec.Name()] = true
	}

	described := specs()
	for _, name := range described {
		if !served[strings.TrimPrefix(name, definitions)] {
			t.Errorf("no node serves a resource with the spec %s", name)
		}
	}

	if len(described) < 140 {
		t.Errorf("the library describes %d types only", len(described))
	}
}
