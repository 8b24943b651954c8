package apid_test

import (
	"bufio"
	"context"
	_ "embed"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	talosclient "github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

//go:embed testdata/recorded-roles.txt
var recordedRoles string

// recording maps methods to who may call them on a real node.
func recording(t *testing.T) map[string][]string {
	t.Helper()

	out := map[string][]string{}

	for lines := bufio.NewScanner(strings.NewReader(recordedRoles)); lines.Scan(); {
		if fields := strings.Fields(lines.Text()); len(fields) > 0 && fields[0] != "#" && fields[0][0] == '/' {
			out[fields[0]] = fields[1:]
		}
	}

	if len(out) < 70 {
		t.Fatalf("only %d methods recorded", len(out))
	}

	return out
}

// call makes any call with an empty request and waits for its first answer.
func call(t *testing.T, c *talosclient.Client, method string) error {
	t.Helper()

	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()

	stream, err := c.Conn().NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
	if err != nil {
		return err
	}

	if err := stream.SendMsg(&emptypb.Empty{}); err != nil && !errors.Is(err, io.EOF) {
		return err
	}

	if err := stream.CloseSend(); err != nil {
		return err
	}

	if err := stream.RecvMsg(&emptypb.Empty{}); !errors.Is(err, io.EOF) {
		return err
	}

	return nil
}

func refused(err error) bool {
	return status.Code(err) == codes.PermissionDenied && status.Convert(err).Message() == "not authorized"
}

func TestRolesAreThoseOfRecordedNodes(t *testing.T) {
	cluster, addr := newPKI(t), addresses(t, 1)[0]
	n := startNode(t, "cp-1", addr, cluster.controlPlane(t, "cp-1", addr))

	for name, r := range map[string]role.Role{
		"admin": role.Admin, "operator": role.Operator, "reader": role.Reader, "etcd-backup": role.EtcdBackup,
	} {
		c := cluster.client(t, n, r)

		for method, allowed := range recording(t) {
			err := call(t, c, method)
			if want := name != "admin" && !slices.Contains(allowed, name); refused(err) != want {
				t.Errorf("%s as %s: got %v, want refusal %v", method, name, err, want)
			}
		}
	}
}

func TestRolesInMaintenanceAreThoseOfRecordedNodes(t *testing.T) {
	addr := addresses(t, 1)[0]
	n := startNode(t, "m-1", addr, maintenance(t, "m-1", addr))
	c := insecure(t, n)

	for method, allowed := range recording(t) {
		err := call(t, c, method)
		if want := !slices.Contains(allowed, "maintenance"); refused(err) != want {
			t.Errorf("%s: got %v, want refusal %v", method, err, want)
		}
	}
}

func TestSpecialRoles(t *testing.T) {
	cluster, addr := newPKI(t), addresses(t, 1)[0]
	n := startNode(t, "cp-1", addr, cluster.controlPlane(t, "cp-1", addr))

	for _, test := range []struct {
		role    role.Role
		method  string
		refused bool
	}{
		{role.MetaWriter, "/machine.MachineService/MetaWrite", false},
		{role.MetaWriter, "/machine.MachineService/Version", true},
		{role.ImageVerifier, "/machine.ImageService/Verify", false},
		{role.ImageVerifier, "/machine.ImageService/List", true},
		{role.Impersonator, "/machine.MachineService/Version", true},
		{role.Role("os:unheard-of"), "/machine.MachineService/Version", true},
	} {
		if err := call(t, cluster.client(t, n, test.role), test.method); refused(err) != test.refused {
			t.Errorf("%s as %s: got %v, want refusal %v", test.method, test.role, err, test.refused)
		}
	}
}

func TestUnknownMethodsAreUnimplemented(t *testing.T) {
	cluster, addr := newPKI(t), addresses(t, 1)[0]
	n := startNode(t, "cp-1", addr, cluster.controlPlane(t, "cp-1", addr))
	c := cluster.client(t, n, role.Reader)

	wantCode(t, call(t, c, "/machine.MachineService/Levitate"), codes.Unimplemented,
		"unknown method Levitate for service machine.MachineService")
	wantCode(t, call(t, c, "/machine.LVMService/VolumeGroupRemove"), codes.Unimplemented,
		"unknown service machine.LVMService")
	// Registered, but not served by this node.
	wantCode(t, call(t, c, "/machine.MachineService/Memory"), codes.Unimplemented, "method Memory not implemented")
}

func TestPanicOfAHandlerIsAnError(t *testing.T) {
	addr := addresses(t, 1)[0]
	n := startNode(t, "m-1", addr, maintenance(t, "m-1", addr))
	c := insecure(t, n)

	wantCode(t, call(t, c, "/machine.MachineService/Hostname"), codes.Internal, "lost it")

	if _, err := c.Version(within(t, patience)); err != nil {
		t.Errorf("after a panic: %v", err)
	}
}
