package cosi

import (
	"context"
	"strings"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/resource/meta"
	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Filter narrows a node's state to what a caller of its API may do: read registered types in registered namespaces,
// and sensitive types only as administrator. The role function tells who calls.
func Filter(st state.State, roles func(context.Context) role.Set) state.CoreState {
	return state.Filter(st, func(ctx context.Context, access state.Access) error {
		if !access.Verb.Readonly() {
			return status.Error(codes.PermissionDenied, "write access is not allowed")
		}

		definition, err := safe.StateGet[*meta.ResourceDefinition](ctx, st, metaPointer(
			meta.ResourceDefinitionType, strings.ToLower(access.ResourceType)))
		if state.IsNotFoundError(err) {
			return status.Errorf(codes.PermissionDenied, "resource type %q is not supported", access.ResourceType)
		}

		if err != nil {
			return err
		}

		if definition.TypedSpec().Sensitivity == meta.Sensitive && !roles(ctx).Includes(role.Admin) {
			return status.Error(codes.PermissionDenied, "not authorized")
		}

		_, err = safe.StateGet[*meta.Namespace](ctx, st, metaPointer(meta.NamespaceType, access.ResourceNamespace))
		if state.IsNotFoundError(err) {
			return status.Errorf(codes.PermissionDenied, "namespace %q is not supported", access.ResourceNamespace)
		}

		return err
	})
}

func metaPointer(typ resource.Type, id resource.ID) resource.Metadata {
	return resource.NewMetadata(meta.NamespaceName, typ, id, resource.VersionUndefined)
}
