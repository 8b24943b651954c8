package talos

import (
	"context"
	"strings"
	"testing"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/cosi-project/runtime/pkg/state/impl/inmem"
	"github.com/cosi-project/runtime/pkg/state/impl/namespaced"
	talosclient "github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// denying is the state of a node that lists nothing for this client.
type denying struct{ state.State }

func (denying) List(context.Context, resource.Kind, ...state.ListOption) (resource.List, error) {
	return resource.List{}, status.Error(codes.PermissionDenied, "not authorized")
}

// TestTold: a node has told all about its image once it shows its security state, and only if it lists its extensions.
func TestTold(t *testing.T) {
	shown := state.WrapCore(namespaced.NewState(inmem.Build))

	read := func(what string, of state.State, told bool, extensions int) {
		t.Helper()

		got, err := readImage(t.Context(), &talosclient.Client{COSI: of})
		if err != nil || got.Told != told || len(got.Names) != extensions {
			t.Errorf("%s: %+v, %v", what, got, err)
		}
	}

	read("it boots", shown, false, 0)

	one := runtime.NewExtensionStatus(runtime.NamespaceName, "0")
	one.TypedSpec().Metadata.Name = "iscsi-tools"

	if err := shown.Create(t.Context(), one); err != nil {
		t.Fatal(err)
	}

	read("its extensions", shown, false, 1)

	if err := shown.Create(t.Context(), runtime.NewSecurityStateSpec(runtime.NamespaceName)); err != nil {
		t.Fatal(err)
	}

	read("all of it", shown, true, 1)
	read("not for this client", denying{shown}, false, 0)
}

// TestSchematicText: what is in a schematic is kept if the node shows all of it.
func TestSchematicText(t *testing.T) {
	for name, c := range map[string]struct{ shown, want string }{
		"shown": {"customization: {}\n", "customization: {}\n"}, "long": {strings.Repeat("a", maxSchematicText+1), ""},
	} {
		node, one := state.WrapCore(namespaced.NewState(inmem.Build)), runtime.NewExtensionStatus(runtime.NamespaceName, "0")
		one.TypedSpec().Metadata.Name, one.TypedSpec().Metadata.ExtraInfo = schematicExtension, c.shown

		if err := node.Create(t.Context(), one); err != nil {
			t.Fatal(err)
		}

		if got, err := readImage(t.Context(), &talosclient.Client{COSI: node}); err != nil || got.SchematicText != c.want {
			t.Errorf("%s: %q, %v", name, got.SchematicText, err)
		}
	}
}
