package node_test

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/talos-operator/talos-operator/test/loopback"
	"github.com/talos-operator/talos-operator/test/wait"
)

// TestMaintenanceOfOlder: before 1.13, maintenance mode takes a config in three modes, tells about resources, and serves
// nothing else. A configured node serves the MachineService, and none of the services that came with 1.13.
func TestMaintenanceOfOlder(t *testing.T) {
	t.Parallel()

	for version, older := range map[string]bool{"v1.11.5": true, "v1.12.4": true, "v1.13.9": false} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()

			b := newBenchOf(t, loopback.Address(t), version)
			c := b.insecure()
			want := map[bool]codes.Code{true: codes.Unimplemented, false: codes.OK}

			wait.For(t, "it tells about its disks", func(ctx context.Context) error {
				disks, err := safe.ReaderListAll[*block.Disk](ctx, c.COSI)
				if err != nil {
					return err
				}

				return wait.True(disks.Len() > 0)
			})

			for name, call := range map[string]func(context.Context) error{
				"Version":     func(ctx context.Context) error { _, err := c.Version(ctx); return err },
				"ServiceList": func(ctx context.Context) error { _, err := c.ServiceList(ctx); return err },
				"Dependencies": func(ctx context.Context) error {
					_, err := c.InspectClient.ControllerRuntimeDependencies(ctx, &emptypb.Empty{})

					return err
				},
			} {
				if err := call(t.Context()); status.Code(err) != want[older] {
					t.Errorf("%s in maintenance mode: %v", name, err)
				}
			}

			_, err := b.apply(c, b.config, machine.ApplyConfigurationRequest_NO_REBOOT, true)
			if status.Code(err) != want[older] {
				t.Errorf("a config without a reboot in maintenance mode: %v", err)
			}

			c = b.configure()
			if _, err := c.Version(t.Context()); err != nil {
				t.Errorf("a configured node: %v", err)
			}

			images, err := c.ImageClient.List(t.Context(), &machine.ImageServiceListRequest{})
			if err == nil {
				_, err = images.Recv()
			}

			if got := status.Code(err) == codes.Unimplemented; got != older {
				t.Errorf("the ImageService: %v", err)
			}
		})
	}
}

// TestKubernetesOfOlder: a node refuses versions of Kubernetes that its own Talos does not support, and takes those
// that it does, whatever the Talos of the library supports.
func TestKubernetesOfOlder(t *testing.T) {
	t.Parallel()

	b := newBenchOf(t, loopback.Address(t), "v1.11.6")
	c := b.insecure()

	for kubernetes, want := range map[string]string{
		"v1.28.1": "kubelet image is not valid: version of Kubernetes 1.28.1 is too old to be used with Talos 1.11.6",
		"v1.35.1": "kubelet image is not valid: version of Kubernetes 1.35.1 is too new to be used with Talos 1.11.6",
		"v1.29.1": "", "v1.34.3": "",
	} {
		config := bytes.ReplaceAll(b.config, []byte("v1.34.3"), []byte(kubernetes))

		wait.For(t, kubernetes+" is answered", func(context.Context) error {
			_, err := b.apply(c, config, machine.ApplyConfigurationRequest_AUTO, true)
			if status.Code(err) == codes.Unavailable {
				return err // it still boots
			}

			if (err == nil) != (want == "") || !strings.Contains(status.Convert(err).Message(), want) {
				t.Errorf("%s: %v, want %q", kubernetes, err, want)
			}

			return nil
		})
	}
}
