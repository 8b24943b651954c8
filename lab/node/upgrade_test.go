package node_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/talos-operator/talos-operator/lab/node"
	"github.com/talos-operator/talos-operator/test/wait"
)

const installer = "ghcr.io/siderolabs/installer:"

// install pulls an image and runs its installer; it returns the exit code.
func (f *fleet) install(c *client.Client, image string) (int32, error) {
	f.t.Helper()

	instance := &common.ContainerdInstance{
		Driver: common.ContainerDriver_CRI, Namespace: common.ContainerdNamespace_NS_SYSTEM,
	}

	pull, err := c.ImageClient.Pull(f.t.Context(), &machine.ImageServicePullRequest{Containerd: instance, ImageRef: image})
	if err != nil {
		return 0, err
	}

	name := ""

	for {
		msg, err := pull.Recv()
		if errors.Is(err, io.EOF) {
			break
		}

		if err != nil {
			return 0, err
		}

		name = msg.GetName()
	}

	if !strings.Contains(name, "@sha256:") {
		f.t.Errorf("the pulled image is called %q", name)
	}

	stream, err := c.LifecycleClient.Upgrade(f.t.Context(), &machine.LifecycleServiceUpgradeRequest{
		Containerd: instance, Source: &machine.InstallArtifactsSource{ImageName: name},
	})
	if err != nil {
		return 0, err
	}

	code := int32(-1)

	for {
		msg, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return code, nil
		}

		if err != nil {
			return 0, err
		}

		if exit, ok := msg.GetProgress().GetResponse().(*machine.LifecycleServiceInstallProgress_ExitCode); ok {
			code = exit.ExitCode
		}
	}
}

// rebooted reboots a machine and returns the Talos version that it comes back with.
func (f *fleet) rebooted(n *node.Node, c *client.Client) string {
	f.t.Helper()

	boot := n.Status().BootID
	if err := c.Reboot(f.t.Context()); err != nil {
		f.t.Fatal(err)
	}

	return f.back(n, boot)
}

// back waits for the next boot of a machine to be ready.
func (f *fleet) back(n *node.Node, boot string) string {
	f.t.Helper()
	wait.For(f.t, n.Name()+" has booted anew", shows(n, func(s node.Status) bool {
		return s.BootID != boot && s.Stage == "running" && s.Ready
	}))

	resp, err := f.client(n).Version(f.t.Context())
	if err != nil {
		f.t.Fatal(err)
	}

	return resp.GetMessages()[0].GetVersion().GetTag()
}

// TestUpgradeWithoutReboot takes one machine through upgrades by the LifecycleService.
func TestUpgradeWithoutReboot(t *testing.T) {
	t.Parallel()

	f := newFleet(t, true)
	n := f.boot(1)
	c := f.found(n)[0]

	if _, err := f.install(c, installer+"v1.13.9-missing"); status.Code(err) != codes.NotFound {
		t.Errorf("an image that is not there: %v", err)
	}

	if code, err := f.install(c, installer+"v1.14.0-broken-installer"); err != nil || code != 1 {
		t.Errorf("an installer that fails is no error of the call: %d, %v", code, err)
	}

	if got := f.rebooted(n, c); got != "v1.13.9" {
		t.Errorf("after a failed installer runs %s", got)
	}

	boot := n.Status().BootID

	if code, err := f.install(c, installer+"v1.14.0"); err != nil || code != 0 {
		t.Fatalf("upgrading: %d, %v", code, err)
	}

	if st := n.Status(); st.BootID != boot || st.TalosVersion != "v1.13.9" {
		t.Errorf("installing neither reboots nor changes what runs: %+v", st)
	}

	if got := f.rebooted(n, c); got != "v1.14.0" {
		t.Errorf("after the upgrade runs %s", got)
	}

	boot = n.Status().BootID
	if err := c.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}

	if got := f.back(n, boot); got != "v1.13.9" {
		t.Errorf("after the rollback runs %s", got)
	}

	if code, err := f.install(c, installer+"v1.14.1-broken-boot"); err != nil || code != 0 {
		t.Fatalf("installing what does not boot: %d, %v", code, err)
	}

	if got := f.rebooted(n, c); got != "v1.13.9" {
		t.Errorf("a system that does not boot falls back, here runs %s", got)
	}
}

// TestUpgradeFallsBack: a system may run for a while, with its API, before the node falls back to the one before.
func TestUpgradeFallsBack(t *testing.T) {
	t.Parallel()

	f := newFleet(t, true)
	n := f.boot(1)
	c := f.found(n)[0]

	if code, err := f.install(c, installer+"v1.14.0-falls-back"); err != nil || code != 0 {
		t.Fatalf("installing: %d, %v", code, err)
	}

	// A boot that is timed has come to an API that responds.
	boots := func() (count int) {
		for _, timing := range n.Timings() {
			if timing.Phase == "boot" {
				count++
			}
		}

		return count
	}
	before := boots()

	if got := f.rebooted(n, c); got != "v1.13.9" || boots() != before+2 {
		t.Errorf("after %d boots runs %s", boots()-before, got)
	}
}

// TestUpgradeUntilColdBoot: a system may survive reboots, and not that the machine is powered on.
func TestUpgradeUntilColdBoot(t *testing.T) {
	t.Parallel()

	f := newFleet(t, true)
	n := f.boot(1)
	c := f.found(n)[0]

	if code, err := f.install(c, installer+"v1.14.0-no-cold-boot"); err != nil || code != 0 {
		t.Fatalf("installing: %d, %v", code, err)
	}

	for range 2 {
		if got := f.rebooted(n, f.client(n)); got != "v1.14.0" {
			t.Errorf("after a reboot runs %s", got)
		}
	}

	boot := n.Status().BootID
	n.Kill()

	if err := n.PowerOn(t.Context()); err != nil {
		t.Fatal(err)
	}

	if got := f.back(n, boot); got != "v1.13.9" {
		t.Errorf("after a cold boot runs %s", got)
	}
}

// TestLegacyUpgrade: the call of the MachineService guards etcd, installs and reboots by itself.
func TestLegacyUpgrade(t *testing.T) {
	t.Parallel()

	f := newFleet(t, true)
	n := f.boot(1)
	c := f.found(n)[0]

	upgrade := func(req *machine.UpgradeRequest) (string, error) {
		boot := n.Status().BootID

		if _, err := c.MachineClient.Upgrade(t.Context(), req); err != nil {
			return "", err
		}

		return f.back(n, boot), nil
	}

	if _, err := upgrade(&machine.UpgradeRequest{Image: installer + "v9-missing"}); err == nil ||
		!strings.Contains(err.Error(), "error validating installer image") {
		t.Errorf("an image that is not there: %v", err)
	}

	if got, err := upgrade(&machine.UpgradeRequest{Image: installer + "v1.13.10"}); err != nil || got != "v1.13.10" {
		t.Errorf("upgrading: %s, %v", got, err)
	}

	n.FailInstaller("v1.13.11")

	if got, err := upgrade(&machine.UpgradeRequest{Image: installer + "v1.13.11"}); err != nil || got != "v1.13.10" {
		t.Errorf("a failed installer reboots into the old system: %s, %v", got, err)
	}

	n.FailInstaller("")

	boot := n.Status().BootID
	if _, err := c.MachineClient.Upgrade(t.Context(), &machine.UpgradeRequest{
		Image: installer + "v1.13.12", Stage: true,
	}); err != nil {
		t.Fatal(err)
	}

	wait.For(t, "the staged upgrade is installed on the way", shows(n, func(s node.Status) bool {
		return s.BootID != boot && s.TalosVersion == "v1.13.12" && s.Ready && s.Stage == "running"
	}))
}

// TestUpgradeGuardsEtcd: two members would lose their quorum. Talos before 1.13 refuses that also where data is kept.
func TestUpgradeGuardsEtcd(t *testing.T) {
	t.Parallel()

	f := newFleet(t, true)
	n := f.boot(1)
	clients := f.found(n, f.boot(2))
	upgrade := func(c *client.Client, keep bool) error {
		_, err := c.MachineClient.Upgrade(t.Context(), &machine.UpgradeRequest{
			Image: installer + "v1.12.4", Preserve: keep,
		})

		return err
	}
	refuses := func(c *client.Client, keep bool) {
		t.Helper()

		if err := upgrade(c, keep); err == nil || !strings.Contains(err.Error(), "etcd member count(2) is insufficient") {
			t.Errorf("upgrading one of two members: %v", err)
		}
	}

	refuses(clients[0], false)

	boot := n.Status().BootID
	if err := upgrade(clients[0], true); err != nil {
		t.Fatalf("Talos 1.13, with data kept: %v", err)
	}

	if got := f.back(n, boot); got != "v1.12.4" {
		t.Fatalf("runs %s", got)
	}

	wait.For(t, "etcd serves", func(context.Context) error { return wait.True(n.Status().EtcdMember != "") })
	refuses(f.client(n), true)
}
