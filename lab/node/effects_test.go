package node_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
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
	"github.com/talos-operator/talos-operator/test/loopback"
	"github.com/talos-operator/talos-operator/test/pki"
	"github.com/talos-operator/talos-operator/test/wait"
)

// tryTime is how long a config that is tried stays. What a test sees of it in between is luck on a busy computer.
const tryTime = time.Second

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

	return newBenchOf(t, address, node.DefaultTalosVersion)
}

// newBenchOf boots one with a release of Talos.
func newBenchOf(t *testing.T, address, talos string) *bench {
	t.Helper()

	n, err := node.New(node.Options{Name: "n1", Address: address, Dir: t.TempDir(), Modelled: true, TalosVersion: talos})
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

	kubernetes := "1.36.2"
	if talos != node.DefaultTalosVersion {
		kubernetes = "1.34.3" // which each of them supports
	}

	in, err := generate.NewInput("lab", "https://"+address+":6443", kubernetes,
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

	resp, err := c.ApplyConfiguration(b.t.Context(), &machine.ApplyConfigurationRequest{
		Data: data, Mode: mode, DryRun: dry, TryModeTimeout: durationpb.New(tryTime),
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

// configure takes the machine through its first config to a running one.
func (b *bench) configure() *client.Client {
	b.t.Helper()

	insecure := b.insecure()

	// Its API comes up a moment after its power, and the answer may get lost in the reboot.
	wait.For(b.t, "the machine takes its config", func(context.Context) error {
		_, err := b.apply(insecure, b.config, machine.ApplyConfigurationRequest_AUTO, false)
		if b.n.Status().Installed {
			return nil
		}

		return err
	})

	c := b.secure()

	wait.For(b.t, "etcd waits for the bootstrap", func(ctx context.Context) error {
		services, err := c.ServiceInfo(ctx, "etcd")
		if err == nil && (len(services) != 1 || services[0].Service.GetState() != "Preparing") {
			err = fmt.Errorf("%v; %+v", services, b.n.Status())
		}

		return err
	})

	return c
}

// has reads a config and looks for a text in it. The text must hold a character that base64 has not: of the random keys
// in thirty configs, one holds any three letters.
func (b *bench) has(c *client.Client, id resource.ID, text string) bool {
	b.t.Helper()

	var data []byte

	// Connections end when the API of a node gets its certificates.
	wait.For(b.t, "the config "+id+" is read", func(ctx context.Context) error {
		res, err := safe.ReaderGet[*config.MachineConfig](ctx, c.COSI,
			resource.NewMetadata(config.NamespaceName, config.MachineConfigType, id, resource.VersionUndefined))
		if err != nil && !state.IsNotFoundError(err) {
			return err
		}

		if err == nil {
			data, _ = res.Container().Bytes()
		}

		return nil
	})

	return strings.Contains(string(data), text)
}

const (
	immediate = "machine: {sysctls: {net.core.somaxconn: \"4321\"}}"
	reboots   = "machine: {env: {FOO: bar}}"
)

func TestApplyModes(t *testing.T) {
	t.Parallel()

	b := newBench(t, loopback.Address(t))
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

	if b.has(c, config.ActiveID, "net.core.somaxconn") {
		t.Error("a dry run changed the config")
	}

	_, err := b.apply(c, b.patched(reboots), machine.ApplyConfigurationRequest_NO_REBOOT, false)
	if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "can't be applied in immediate mode") {
		t.Errorf("a change that needs a reboot, without one: %v", err)
	}

	b.checkTry(c)

	// Staged: only the persistent copy differs, until the next boot.
	boot := b.n.Status().BootID

	if _, err := b.apply(c, b.patched(reboots), machine.ApplyConfigurationRequest_STAGED, false); err != nil {
		t.Fatal(err)
	}

	if b.has(c, config.ActiveID, "FOO: bar") || !b.has(c, config.PersistentID, "FOO: bar") {
		t.Error("a staged config is not the persistent copy alone")
	}

	if err := c.Reboot(t.Context()); err != nil {
		t.Fatal(err)
	}

	wait.For(t, "the staged config is live after the reboot", func(context.Context) error {
		if st := b.n.Status(); st.BootID == boot || !b.has(b.secure(), config.ActiveID, "FOO: bar") {
			return fmt.Errorf("%+v", st)
		}

		return nil
	})
}

// checkTry: a config is applied at once, and taken back when the time is up. A watch has received both even when the
// computer is too busy to look in between.
func (b *bench) checkTry(c *client.Client) {
	b.t.Helper()

	var seen []bool

	// Streams end when the API of a node gets its certificates, which may be now: then it is tried again.
	wait.For(b.t, "a whole trial", func(ctx context.Context) error {
		if b.has(c, config.ActiveID, "net.core.somaxconn") {
			return errors.New("the config of another trial is live")
		}

		var err error

		seen, err = b.watchTry(ctx, c)

		return err
	})

	if want := []bool{false, true, false}; !slices.Equal(seen, want) {
		b.t.Errorf("before, during and after the try: %v, want %v", seen, want)
	}
}

// watchTry tries a config, and tells of three live configs whether they are that one. A stream that ends is an error.
func (b *bench) watchTry(ctx context.Context, c *client.Client) ([]bool, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	events := make(chan safe.WrappedStateEvent[*config.MachineConfig])

	err := safe.StateWatch(ctx, c.COSI, resource.NewMetadata(config.NamespaceName, config.MachineConfigType,
		config.ActiveID, resource.VersionUndefined), events)
	if err != nil {
		return nil, err
	}

	if _, err := b.apply(c, b.patched(immediate), machine.ApplyConfigurationRequest_TRY, false); err != nil {
		return nil, err
	}

	var seen []bool

	for len(seen) < 3 {
		e := wait.Done(b.t, fmt.Sprintf("another config after %v", seen), events)

		res, err := e.Resource()
		if err != nil {
			return nil, errors.Join(err, e.Error())
		}

		data, err := res.Container().Bytes()
		if err != nil {
			return nil, err
		}

		seen = append(seen, strings.Contains(string(data), "net.core.somaxconn"))
	}

	return seen, nil
}

func TestBootstrapAnswers(t *testing.T) {
	t.Parallel()

	b := newBench(t, loopback.Address(t))

	wait.For(t, "maintenance mode", shows(b.n, func(s node.Status) bool { return s.Stage == "maintenance" }))

	if err := b.insecure().Bootstrap(t.Context(), &machine.BootstrapRequest{}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("in maintenance mode: %v", err)
	}

	c := b.configure()

	if !hangs(t.Context(), func(ctx context.Context) error {
		_, err := c.EtcdMemberList(ctx, &machine.EtcdMemberListRequest{QueryLocal: true})

		return err
	}) {
		t.Error("an etcd call is answered where etcd does not run")
	}

	if err := c.Bootstrap(t.Context(), &machine.BootstrapRequest{}); err != nil {
		t.Fatal(err)
	}

	wait.For(t, "etcd answers", sees(c, "n1"))

	err := c.Bootstrap(t.Context(), &machine.BootstrapRequest{})
	if status.Code(err) != codes.AlreadyExists || !strings.Contains(err.Error(), "etcd data directory is not empty") {
		t.Errorf("a second bootstrap: %v", err)
	}
}

func TestResetGoesBackToMaintenance(t *testing.T) {
	t.Parallel()

	b := newBench(t, loopback.Address(t))
	c := b.configure()

	err := c.ResetGeneric(t.Context(), &machine.ResetRequest{
		Reboot: true, Mode: machine.ResetRequest_SYSTEM_DISK,
		SystemPartitionsToWipe: []*machine.ResetPartitionSpec{{Label: "STATE", Wipe: true}, {Label: "EPHEMERAL", Wipe: true}},
	})
	if err != nil {
		t.Fatal(err)
	}

	wait.For(t, "the machine is in maintenance mode", shows(b.n, func(s node.Status) bool {
		return s.Stage == "maintenance"
	}))

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

	b := newBench(t, loopback.Address(t))
	c := b.configure()
	boot := b.n.Status().BootID

	b.n.Kill()

	if _, err := c.Version(t.Context()); status.Code(err) != codes.Unavailable {
		t.Errorf("a machine without power answers %v", err)
	}

	if err := b.n.PowerOn(t.Context()); err != nil {
		t.Fatal(err)
	}

	wait.For(t, "it is the same machine with a new boot ID", shows(b.n, func(s node.Status) bool {
		return s.ClusterName == "lab" && s.BootID != boot && s.BootID != ""
	}))

	if err := b.n.WipeDisk(); err != nil {
		t.Fatal(err)
	}

	if err := b.n.PowerOn(t.Context()); err != nil {
		t.Fatal(err)
	}

	wait.For(t, "without its disk it knows nothing", shows(b.n, func(s node.Status) bool {
		return s.Stage == "maintenance"
	}))
}

func TestEventsLogsAndFiles(t *testing.T) {
	t.Parallel()

	b := newBench(t, loopback.Address(t))
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

	warm := newBench(t, loopback.Address(t))
	warm.configure()

	before := used()

	for range count {
		b := newBench(t, loopback.Address(t))
		b.configure()
	}

	if each := (used() - before) / count; each > 1<<20 {
		t.Errorf("a configured node and its client use %d KiB", each>>10)
	} else {
		t.Logf("a configured node and its client use %d KiB", each>>10)
	}
}
