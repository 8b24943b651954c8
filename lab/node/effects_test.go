package node_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	machineryconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	configmachine "github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/resources/config"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/talos-operator/talos-operator/lab/node"
	"github.com/talos-operator/talos-operator/test/pki"
)

// bench is one emulated machine with its cluster's config, and the unmodified official client.
type bench struct {
	t      *testing.T
	n      *node.Node
	config []byte
	talos  *clientconfig.Config
}

// newBench boots a machine with a modelled etcd into maintenance mode.
func newBench(t *testing.T, address string) *bench {
	t.Helper()

	n, err := node.New(node.Options{Name: "n1", Address: address, Dir: t.TempDir(), Modelled: true})
	if err != nil {
		t.Fatal(err)
	}

	if err := n.PowerOn(t.Context()); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(n.Kill)

	bundle, err := pki.Machinery()
	if err != nil {
		t.Fatal(err)
	}

	in, err := generate.NewInput("lab", "https://"+address+":6443", "1.36.2",
		generate.WithSecretsBundle(bundle),
		generate.WithVersionContract(machineryconfig.TalosVersion1_13), generate.WithInstallDisk("/dev/sda"),
		generate.WithEndpointList([]string{address}))
	if err != nil {
		t.Fatal(err)
	}

	cfg, err := in.Config(configmachine.TypeControlPlane)
	if err != nil {
		t.Fatal(err)
	}

	b := &bench{t: t, n: n}

	if b.config, err = cfg.Bytes(); err != nil {
		t.Fatal(err)
	}

	if b.talos, err = in.Talosconfig(); err != nil {
		t.Fatal(err)
	}

	return b
}

func (b *bench) insecure() *client.Client {
	b.t.Helper()

	c, err := client.New(b.t.Context(), client.WithEndpoints(b.n.Address()),
		client.WithTLSConfig(&tls.Config{InsecureSkipVerify: true}))
	if err != nil {
		b.t.Fatal(err)
	}

	b.t.Cleanup(func() { _ = c.Close() })

	return c
}

func (b *bench) secure() *client.Client {
	b.t.Helper()

	c, err := client.New(b.t.Context(), client.WithConfig(b.talos), client.WithEndpoints(b.n.Address()))
	if err != nil {
		b.t.Fatal(err)
	}

	b.t.Cleanup(func() { _ = c.Close() })

	return c
}

func (b *bench) apply(c *client.Client, data []byte, mode machine.ApplyConfigurationRequest_Mode, dry bool,
) (*machine.ApplyConfiguration, error) {
	b.t.Helper()

	ctx, cancel := context.WithTimeout(b.t.Context(), 10*time.Second)
	defer cancel()

	resp, err := c.ApplyConfiguration(ctx, &machine.ApplyConfigurationRequest{
		Data: data, Mode: mode, DryRun: dry, TryModeTimeout: durationpb.New(300 * time.Millisecond),
	})
	if err != nil {
		return nil, err
	}

	return resp.GetMessages()[0], nil
}

func (b *bench) patched(patch string) []byte {
	b.t.Helper()

	p, err := configpatcher.LoadPatch([]byte(patch))
	if err != nil {
		b.t.Fatal(err)
	}

	cfg, err := configloader.NewFromBytes(b.config)
	if err != nil {
		b.t.Fatal(err)
	}

	out, err := configpatcher.Apply(configpatcher.WithConfig(cfg), []configpatcher.Patch{p})
	if err != nil {
		b.t.Fatal(err)
	}

	data, err := out.Bytes()
	if err != nil {
		b.t.Fatal(err)
	}

	return data
}

func (b *bench) eventually(what string, check func(ctx context.Context) bool) {
	b.t.Helper()

	ctx, cancel := context.WithTimeout(b.t.Context(), 20*time.Second)
	defer cancel()

	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()

	for !check(ctx) {
		select {
		case <-ctx.Done():
			b.t.Fatalf("%s: not in time; %+v", what, b.n.Status())
		case <-tick.C:
		}
	}
}

// configure takes the machine through its first config to a running one.
func (b *bench) configure() *client.Client {
	b.t.Helper()

	if _, err := b.apply(b.insecure(), b.config, machine.ApplyConfigurationRequest_AUTO, false); err != nil {
		b.t.Fatal(err)
	}

	c := b.secure()

	b.eventually("etcd waits for the bootstrap", func(ctx context.Context) bool {
		services, err := c.ServiceInfo(ctx, "etcd")

		return err == nil && len(services) == 1 && services[0].Service.GetState() == "Preparing"
	})

	return c
}

func (b *bench) has(c *client.Client, id resource.ID, text string) bool {
	res, err := safe.ReaderGet[*config.MachineConfig](b.t.Context(), c.COSI,
		resource.NewMetadata(config.NamespaceName, config.MachineConfigType, id, resource.VersionUndefined))
	if err != nil {
		return false
	}

	data, err := res.Container().Bytes()

	return err == nil && strings.Contains(string(data), text)
}

const (
	immediate = "machine: {sysctls: {net.core.somaxconn: \"4321\"}}"
	reboots   = "machine: {env: {FOO: bar}}"
)

func TestApplyModes(t *testing.T) {
	t.Parallel()

	b := newBench(t, "127.31.1.1")
	c := b.configure()

	if _, err := b.apply(b.secure(), []byte("machine: ["), machine.ApplyConfigurationRequest_AUTO, false); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a broken config: %v", err)
	}

	// A dry run names the mode, shows the difference and changes nothing.
	for patch, want := range map[string]machine.ApplyConfigurationRequest_Mode{
		immediate: machine.ApplyConfigurationRequest_NO_REBOOT, reboots: machine.ApplyConfigurationRequest_REBOOT,
	} {
		resp, err := b.apply(c, b.patched(patch), machine.ApplyConfigurationRequest_AUTO, true)
		if err != nil || resp.GetMode() != want || !strings.Contains(resp.GetModeDetails(), "@@") {
			t.Errorf("dry run of %s: %v, %v", patch, resp, err)
		}
	}

	if b.has(c, config.ActiveID, "4321") {
		t.Error("a dry run changed the config")
	}

	_, err := b.apply(c, b.patched(reboots), machine.ApplyConfigurationRequest_NO_REBOOT, false)
	if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "can't be applied in immediate mode") {
		t.Errorf("a change that needs a reboot, without one: %v", err)
	}

	// Try: applied at once, taken back when the time is up.
	if _, err := b.apply(c, b.patched(immediate), machine.ApplyConfigurationRequest_TRY, false); err != nil || !b.has(c, config.ActiveID, "4321") {
		t.Errorf("try: %v", err)
	}

	b.eventually("the tried config is taken back", func(context.Context) bool { return !b.has(c, config.ActiveID, "4321") })

	// Staged: only the persistent copy differs, until the next boot.
	boot := b.n.Status().BootID

	if _, err := b.apply(c, b.patched(reboots), machine.ApplyConfigurationRequest_STAGED, false); err != nil {
		t.Fatal(err)
	}

	if b.has(c, config.ActiveID, "FOO") || !b.has(c, config.PersistentID, "FOO") {
		t.Error("a staged config is not the persistent copy alone")
	}

	if err := c.Reboot(t.Context()); err != nil {
		t.Fatal(err)
	}

	b.eventually("the staged config is live after the reboot", func(context.Context) bool {
		return b.n.Status().BootID != boot && b.has(b.secure(), config.ActiveID, "FOO")
	})
}

func TestBootstrapAnswers(t *testing.T) {
	t.Parallel()

	b := newBench(t, "127.31.2.1")

	if err := b.insecure().Bootstrap(t.Context(), &machine.BootstrapRequest{}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("in maintenance mode: %v", err)
	}

	c := b.configure()

	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()

	if _, err := c.EtcdMemberList(ctx, &machine.EtcdMemberListRequest{QueryLocal: true}); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("etcd calls hang where etcd does not run: %v", err)
	}

	if err := c.Bootstrap(t.Context(), &machine.BootstrapRequest{}); err != nil {
		t.Fatal(err)
	}

	b.eventually("etcd answers", func(ctx context.Context) bool {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()

		resp, err := c.EtcdMemberList(ctx, &machine.EtcdMemberListRequest{QueryLocal: true})

		return err == nil && len(resp.GetMessages()[0].GetMembers()) == 1
	})

	err := c.Bootstrap(t.Context(), &machine.BootstrapRequest{})
	if status.Code(err) != codes.AlreadyExists || !strings.Contains(err.Error(), "etcd data directory is not empty") {
		t.Errorf("a second bootstrap: %v", err)
	}
}

func TestResetGoesBackToMaintenance(t *testing.T) {
	t.Parallel()

	b := newBench(t, "127.31.3.1")
	c := b.configure()

	err := c.ResetGeneric(t.Context(), &machine.ResetRequest{
		Reboot: true, Mode: machine.ResetRequest_SYSTEM_DISK,
		SystemPartitionsToWipe: []*machine.ResetPartitionSpec{{Label: "STATE", Wipe: true}, {Label: "EPHEMERAL", Wipe: true}},
	})
	if err != nil {
		t.Fatal(err)
	}

	b.eventually("the machine is in maintenance mode", func(context.Context) bool { return b.n.Status().Stage == "maintenance" })

	if s := b.n.Status(); s.ClusterID != "" || !s.Installed {
		t.Errorf("after the reset: %+v", s)
	}

	// Its certificate is its own again, and a client certificate does not help.
	if _, err := b.secure().Version(t.Context()); err == nil || !strings.Contains(err.Error(), "x509") {
		t.Errorf("with the certificate of the old cluster: %v", err)
	}
}

func TestPowerCutKeepsTheDisk(t *testing.T) {
	t.Parallel()

	b := newBench(t, "127.31.4.1")
	c := b.configure()
	boot := b.n.Status().BootID

	b.n.Kill()

	if _, err := c.Version(t.Context()); status.Code(err) != codes.Unavailable {
		t.Errorf("a machine without power answers %v", err)
	}

	if err := b.n.PowerOn(t.Context()); err != nil {
		t.Fatal(err)
	}

	b.eventually("it is the same machine with a new boot ID", func(context.Context) bool {
		s := b.n.Status()

		return s.ClusterName == "lab" && s.BootID != boot && s.BootID != ""
	})

	if err := b.n.WipeDisk(); err != nil {
		t.Fatal(err)
	}

	if err := b.n.PowerOn(t.Context()); err != nil {
		t.Fatal(err)
	}

	b.eventually("without its disk it knows nothing", func(context.Context) bool { return b.n.Status().Stage == "maintenance" })
}

func TestEventsLogsAndFiles(t *testing.T) {
	t.Parallel()

	b := newBench(t, "127.31.5.1")
	c := b.configure()

	stream, err := c.Dmesg(t.Context(), false, false)
	if err != nil {
		t.Fatal(err)
	}

	lines := 0

	for {
		if _, err := stream.Recv(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}

		lines++
	}

	if lines < 5 {
		t.Errorf("the kernel log has %d lines", lines)
	}

	r, err := c.Read(t.Context(), "/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Fatal(err)
	}

	data, err := io.ReadAll(r)
	if err != nil || strings.TrimSpace(string(data)) != b.n.Status().BootID {
		t.Errorf("boot ID %q, %v", data, err)
	}
}

// TestMemory: a node uses under 1 MiB apart from its etcd and Kubernetes.
func TestMemory(t *testing.T) {
	const count = 12

	used := func() uint64 {
		runtime.GC()
		runtime.GC()

		var m runtime.MemStats

		runtime.ReadMemStats(&m)

		return m.HeapAlloc + m.StackInuse
	}

	warm := newBench(t, "127.31.6.1")
	warm.configure()

	before := used()

	for i := range count {
		b := newBench(t, fmt.Sprintf("127.31.6.%d", i+10))
		b.configure()
	}

	if each := (used() - before) / count; each > 1<<20 {
		t.Errorf("a configured node and its client use %d KiB", each>>10)
	} else {
		t.Logf("a configured node and its client use %d KiB", each>>10)
	}
}
