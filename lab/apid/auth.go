package apid

import (
	"context"
	"net/netip"

	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// Metadata keys of the Talos API.
const (
	keyNode      = "node"
	keyNodes     = "nodes"
	keyProxyFrom = "proxyfrom"
	keyRole      = "talos-role"
	keyContext   = "context"
	keyRuntime   = "runtime"
	keyAuthority = ":authority"
)

var (
	errNotAuthorized = status.Error(codes.PermissionDenied, "not authorized")
	readers          = role.MakeSet(role.Reader)
)

// caller is who makes a call, as found out before it is authorized.
type caller struct {
	roles       role.Set
	maintenance bool
	peer        netip.Addr
}

type callerKey struct{}

// Roles returns the roles of the caller of a handler. It is empty outside of a call.
func Roles(ctx context.Context) role.Set {
	c, ok := ctx.Value(callerKey{}).(*caller)
	if !ok {
		return role.Zero
	}

	return c.roles
}

// identify finds out who calls.
func identify(ctx context.Context, maintenance bool) *caller {
	c := &caller{roles: role.Zero, maintenance: maintenance}

	p, ok := peer.FromContext(ctx)
	if !ok {
		return c
	}

	c.peer = addrOf(p.Addr)

	if maintenance {
		c.roles = readers

		return c
	}

	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.PeerCertificates) == 0 {
		return c
	}

	c.roles, _ = role.Parse(info.State.PeerCertificates[0].Subject.Organization)

	// Another node speaks for its caller, whose roles it names.
	if c.roles.Includes(role.Impersonator) {
		if md, _ := metadata.FromIncomingContext(ctx); len(md[keyRole]) > 0 {
			c.roles, _ = role.Parse(md[keyRole])
		}
	}

	return c
}

// authorize checks the caller against the rules of a method.
func (c *caller) authorize(method string) error {
	if c.maintenance && maintenanceMethods[method] {
		return nil
	}

	allowed, ok := rules[method]
	if !ok {
		allowed = admins
	}

	if !allowed.IncludesAny(c.roles) {
		return errNotAuthorized
	}

	return nil
}
