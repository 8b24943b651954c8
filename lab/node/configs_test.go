package node_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/resources/config"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/talos-operator/talos-operator/test/loopback"
	"github.com/talos-operator/talos-operator/test/wait"
)

// configLife is a machine and what it shows of its configs.
type configLife struct {
	*bench

	c *client.Client
}

// numbered is the config of the bench with a number in it that can change without a reboot.
func (l *configLife) numbered(n int) []byte {
	return l.patched(fmt.Sprintf("machine: {sysctls: {net.core.somaxconn: \"100%d\"}}", n))
}

// shown are the configs of the machine: identifier, version, and the number in it; 0 is the config of the bench.
func (l *configLife) shown(ctx context.Context) (string, error) {
	list, err := safe.ReaderList[*config.MachineConfig](ctx, l.c.COSI,
		resource.NewMetadata(config.NamespaceName, config.MachineConfigType, "", resource.VersionUndefined))
	if err != nil {
		return "", err
	}

	var out []string

	for res := range list.All() {
		data, err := res.Container().Bytes()
		if err != nil {
			return "", err
		}

		_, number, _ := strings.Cut(string(data), "net.core.somaxconn: \"100")
		out = append(out, fmt.Sprintf("%s %s (%s)", res.Metadata().ID(), res.Metadata().Version(), (number + "0")[:1]))
	}

	slices.Sort(out)

	return strings.Join(out, ", "), nil
}

// shows waits until the machine shows configs.
func (l *configLife) shows(what, want string) {
	l.t.Helper()
	wait.For(l.t, what, func(ctx context.Context) error {
		got, err := l.shown(ctx)
		if err == nil && got != want {
			err = fmt.Errorf("%s; want %s", got, want)
		}

		return err
	})
}

// must checks which configs the machine shows, now. Connections end when a config gives its API other certificates.
func (l *configLife) must(what, want string) {
	l.t.Helper()

	var got string

	wait.For(l.t, "the configs are read", func(ctx context.Context) (err error) {
		got, err = l.shown(ctx)

		return err
	})

	if got != want {
		l.t.Errorf("%s: %s; want %s", what, got, want)
	}
}

type configMode = machine.ApplyConfigurationRequest_Mode

const (
	noReboot = machine.ApplyConfigurationRequest_NO_REBOOT
	staged   = machine.ApplyConfigurationRequest_STAGED
	try      = machine.ApplyConfigurationRequest_TRY
)

func (l *configLife) send(number int, mode configMode, change ...func(*machine.ApplyConfigurationRequest)) {
	l.t.Helper()

	req := &machine.ApplyConfigurationRequest{
		Data: l.numbered(number), Mode: mode, TryModeTimeout: durationpb.New(time.Hour),
	}
	for _, f := range change {
		f(req)
	}

	if _, err := l.c.ApplyConfiguration(l.t.Context(), req); err != nil {
		l.t.Fatal(err)
	}
}

func shortly(r *machine.ApplyConfigurationRequest) { r.TryModeTimeout = durationpb.New(tryTime) }

func dry(r *machine.ApplyConfigurationRequest) { r.DryRun = true }

// TestConfigResources: what a node shows of its config over its life, as recorded in scenario-machineconfig-lifecycle.txt.
// The versions begin anew with each boot and grow with everything that is written, also without a change; the persistent
// one is there from the first apply after a boot, and no trial touches it.
func TestConfigResources(t *testing.T) {
	t.Parallel()

	b := newBench(t, loopback.Address(t))
	l := &configLife{bench: b, c: b.configure()}

	// It has installed itself and booted from its disk.
	l.shows("booted from its disk", "v1alpha1 1 (0)")
	l.send(0, try, func(r *machine.ApplyConfigurationRequest) { r.Data = b.config })
	l.must("a trial without a difference", "v1alpha1 2 (0)")
	l.send(3, try, shortly)
	l.shows("a trial is over", "v1alpha1 4 (0)")
	l.send(4, staged)
	l.must("staged, the first apply after the boot", "persistent 1 (4), v1alpha1 4 (0)")
	l.send(3, noReboot)
	l.must("another one replaces what was staged", "persistent 2 (3), v1alpha1 5 (3)")
	l.send(5, try, shortly)
	l.shows("a trial is over", "persistent 2 (3), v1alpha1 7 (3)")
	l.send(5, try)
	l.must("a trial", "persistent 2 (3), v1alpha1 8 (5)")
	l.send(5, noReboot)
	l.must("it is confirmed", "persistent 3 (5), v1alpha1 9 (5)")
	l.send(5, noReboot)
	l.must("the same bytes again", "persistent 4 (5), v1alpha1 10 (5)")
	l.send(6, staged)
	l.send(6, staged)
	l.must("staged twice", "persistent 6 (6), v1alpha1 10 (5)")
	l.send(7, staged, dry)
	l.send(7, noReboot, dry)
	l.must("dry runs", "persistent 6 (6), v1alpha1 10 (5)")

	if err := l.c.Reboot(t.Context()); err != nil {
		t.Fatal(err)
	}

	l.c = b.secure()
	l.shows("the staged config is live after the reboot", "v1alpha1 1 (6)")
	l.send(7, staged)
	l.must("staged again", "persistent 1 (7), v1alpha1 1 (6)")

	err := l.c.ResetGeneric(t.Context(), &machine.ResetRequest{
		Reboot: true, Mode: machine.ResetRequest_SYSTEM_DISK,
		SystemPartitionsToWipe: []*machine.ResetPartitionSpec{{Label: "EPHEMERAL", Wipe: true}},
	})
	if err != nil {
		t.Fatal(err)
	}

	l.c = b.secure()
	l.shows("what was staged is live after the loss of EPHEMERAL", "v1alpha1 1 (7)")
}
