package talos_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	configmachine "github.com/siderolabs/talos/pkg/machinery/config/machine"

	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/talos"
	"github.com/talos-operator/talos-operator/test/loopback"
	"github.com/talos-operator/talos-operator/test/wait"
)

// TestApply: a dry run changes nothing and quotes no secret, a refusal is terminal and quotes none either, and each
// mode does what it says.
func TestApply(t *testing.T) {
	t.Parallel()

	address := loopback.Address(t)
	c := newCluster(t, address)
	n := boot(t, address)
	c.configure(n)

	b := &applyBench{cluster: c, conn: c.open(n, c.creds())}
	b.live = b.read(b.conn.MachineConfig)
	b.fromDisk()

	t.Run("dry run", func(t *testing.T) { b.dryRun(t) })
	t.Run("refusals", func(t *testing.T) { b.refusals(t) })
	t.Run("try", func(t *testing.T) { b.try(t) })
	t.Run("now", func(t *testing.T) { b.now(t) })
	t.Run("staged", func(t *testing.T) { b.staged(t) })
	t.Run("reboot", func(t *testing.T) { b.reboot(t) })
}

// applyBench is a configured machine and its live config.
type applyBench struct {
	*cluster

	conn *talos.Node
	live []byte
}

func (b *applyBench) read(read func(context.Context) ([]byte, error)) []byte {
	b.t.Helper()

	data, err := read(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}

	return data
}

func (b *applyBench) state() talos.ConfigState {
	b.t.Helper()

	st, err := b.conn.ConfigState(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}

	return st
}

// fromDisk: a node that has booted from its disk, and was sent nothing since, boots into the same config again.
func (b *applyBench) fromDisk() {
	b.t.Helper()

	want := talos.ConfigState{Type: "controlplane", NextBoot: talos.NextBootLive, NextType: "controlplane"}
	if st := b.state(); st != want {
		b.t.Errorf("after a boot: %+v", st)
	}
}

// with adds a field of .machine to the live config, next to a secret, so that a diff shows that as context.
func (b *applyBench) with(field string) []byte {
	return bytes.Replace(b.live, []byte("    token: "), []byte("    "+field+"\n    token: "), 1)
}

const (
	// immediate and needsReboot are fields that can and cannot change without a reboot.
	immediate   = `nodeAnnotations: {shelf: seven}`
	needsReboot = `env: {SHELF: seven}`
)

func (b *applyBench) has(read func(context.Context) ([]byte, error), text string) bool {
	b.t.Helper()

	data, err := read(b.t.Context())

	return err == nil && bytes.Contains(data, []byte(text))
}

func (b *applyBench) dryRun(t *testing.T) {
	for field, want := range map[string]talos.ApplyMode{
		immediate: talos.ApplyNoReboot, needsReboot: talos.ApplyReboot,
	} {
		got, err := b.conn.Apply(t.Context(), b.with(field), talos.ApplyOptions{Mode: talos.ApplyAuto, DryRun: true})
		if err != nil || got.Mode != want {
			t.Errorf("%s: mode %d, %v; want %d", field, got.Mode, err, want)
		}

		key, _, _ := strings.Cut(field, ":")
		if !strings.Contains(got.Diff, key) || strings.Contains(got.Diff, "seven") {
			t.Errorf("a diff without the field, or with a value that may be secret:\n%s", got.Diff)
		}

		b.quotesNothing(got.Diff)
	}

	if same, err := b.conn.Apply(t.Context(), b.live, talos.ApplyOptions{DryRun: true}); err != nil || same.Diff != "" {
		t.Errorf("a dry run of the live config: %+v, %v", same, err)
	}

	// Everything changes, so the node prints all that it has.
	other := newCluster(t, loopback.Address(t))

	got, err := b.conn.Apply(t.Context(), other.config(configmachine.TypeControlPlane), talos.ApplyOptions{Mode: talos.ApplyReboot, DryRun: true})
	if err != nil || got.Diff == "" {
		t.Errorf("the config of another cluster: %v", err)
	}

	b.quotesNothing(got.Diff, got.Warnings...)
	other.quotesNothing(got.Diff, got.Warnings...)

	if !bytes.Equal(b.read(b.conn.MachineConfig), b.live) {
		t.Error("a dry run changed the config")
	}
}

func (b *applyBench) refusals(t *testing.T) {
	for name, tc := range map[string]struct {
		config []byte
		mode   talos.ApplyMode
	}{
		"an unknown document":          {append(bytes.Clone(b.live), []byte("---\nkind: Nonsense\n")...), talos.ApplyAuto},
		"a misspelt field":             {bytes.Replace(b.live, []byte("    token: "), []byte("    tokenn: "), 1), talos.ApplyAuto},
		"no YAML":                      {append([]byte("}{"), b.live...), talos.ApplyAuto},
		"a reboot that is not allowed": {b.with(needsReboot), talos.ApplyNoReboot},
		"a try that needs a reboot":    {b.with(needsReboot), talos.ApplyTry},
	} {
		for _, dry := range []bool{true, false} {
			_, err := b.conn.Apply(t.Context(), tc.config, talos.ApplyOptions{Mode: tc.mode, DryRun: dry})
			if failure.ClassOf(err) != failure.ClassTerminal {
				t.Errorf("%s: %v", name, err)

				continue
			}

			b.quotesNothing(failure.Message(err))
			b.quotesNothing(err.Error())
		}
	}

	if !bytes.Equal(b.read(b.conn.MachineConfig), b.live) {
		t.Error("a refused config was applied")
	}
}

func (b *applyBench) try(t *testing.T) {
	// On a busy computer a try may be over before it was observed.
	for limit := time.Second; ; limit *= 4 {
		began := wait.Now()

		got, err := b.conn.Apply(t.Context(), b.with(immediate), talos.ApplyOptions{Mode: talos.ApplyTry, TryTimeout: limit})
		live := b.has(b.conn.MachineConfig, "shelf: seven")

		// It may be on trial, and nothing shows what is on the disk.
		if st := b.state(); live && st.NextBoot != talos.NextBootUnknown {
			t.Errorf("a config that is only tried is taken for that of the next boot: %+v", st)
		}

		if err != nil || got.Mode != talos.ApplyTry {
			t.Errorf("trying: %+v, %v", got, err)
		}

		if live {
			break
		}

		if wait.Now().Sub(began) < limit {
			t.Fatal("what is tried is not live")
		}
	}

	wait.For(t, "the node takes the config back", func(ctx context.Context) error {
		data, err := b.conn.MachineConfig(ctx)
		if err != nil {
			return err
		}

		return wait.True(!bytes.Contains(data, []byte("shelf: seven")))
	})
}

func (b *applyBench) now(t *testing.T) {
	got, err := b.conn.Apply(t.Context(), b.with(immediate), talos.ApplyOptions{Mode: talos.ApplyAuto})
	if err != nil || got.Mode != talos.ApplyNoReboot {
		t.Errorf("applying: %+v, %v", got, err)
	}

	if st := b.state(); !b.has(b.conn.MachineConfig, "shelf: seven") || st.NextBoot != talos.NextBootLive {
		t.Errorf("the config is not live, or not for good: %+v", st)
	}

	// A trial is told by the config that is on the disk.
	if _, err := b.conn.Apply(t.Context(), b.live, talos.ApplyOptions{Mode: talos.ApplyTry, TryTimeout: time.Hour}); err != nil {
		t.Error(err)
	}

	if st := b.state(); st.NextBoot != talos.NextBootOther || st.NextType != "controlplane" {
		t.Errorf("a config on trial: %+v", st)
	}

	if _, err := b.conn.Apply(t.Context(), b.with(immediate), talos.ApplyOptions{Mode: talos.ApplyNoReboot}); err != nil {
		t.Error(err)
	}
}

func (b *applyBench) staged(t *testing.T) {
	got, err := b.conn.Apply(t.Context(), b.with(needsReboot), talos.ApplyOptions{Mode: talos.ApplyStaged})
	if err != nil || got.Mode != talos.ApplyStaged {
		t.Errorf("staging: %+v, %v", got, err)
	}

	if st := b.state(); b.has(b.conn.MachineConfig, "SHELF: seven") || st.NextBoot != talos.NextBootOther ||
		st.Type != "controlplane" || st.NextType != "controlplane" {
		t.Errorf("a staged config: %+v", st)
	}

	before, err := b.conn.BootID(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	if err := b.conn.Reboot(t.Context()); err != nil {
		t.Fatal(err)
	}

	b.booted(before, func() bool { return b.has(b.conn.MachineConfig, "SHELF: seven") })
	b.fromDisk()
}

func (b *applyBench) reboot(t *testing.T) {
	before, err := b.conn.BootID(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	// Without the field that can only change with a reboot.
	got, err := b.conn.Apply(t.Context(), b.live, talos.ApplyOptions{Mode: talos.ApplyAuto})
	if err != nil || got.Mode != talos.ApplyReboot {
		t.Errorf("applying: %+v, %v", got, err)
	}

	b.booted(before, func() bool {
		live, err := b.conn.MachineConfig(t.Context())

		return err == nil && bytes.Equal(live, b.live)
	})
}

func (b *applyBench) booted(before string, check func() bool) {
	b.t.Helper()
	wait.For(b.t, "the node has booted anew and is as it should be", func(ctx context.Context) error {
		id, err := b.conn.BootID(ctx)
		if err != nil {
			return err
		}

		return wait.True(id != before && check())
	})
}

// quotesNothing finds secrets of the cluster in texts.
func (c *cluster) quotesNothing(text string, more ...string) {
	c.t.Helper()

	for _, secret := range c.secretTexts() {
		for _, in := range append(more, text) {
			if strings.Contains(in, secret) {
				c.t.Errorf("a secret of %d characters is quoted in %q", len(secret), in)
			}
		}
	}
}

// TestRebootAndReset: both return before the node has begun, and show in what the node says of itself.
func TestRebootAndReset(t *testing.T) {
	t.Parallel()

	address := loopback.Address(t)
	c := newCluster(t, address)
	n := boot(t, address)
	c.configure(n)

	conn := c.open(n, c.creds())

	wait.For(t, "the node tells of itself", func(ctx context.Context) error {
		f, err := conn.Facts(ctx)
		if err != nil || f.Stage != "booting" || f.Hostname == "" || f.UUID == "" || f.SystemDisk == "" || f.CPUs == 0 {
			return fmt.Errorf("it says %+v: %w", f, err)
		}

		return nil
	})

	before, err := conn.BootID(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	if err := conn.Reboot(t.Context()); err != nil {
		t.Fatal(err)
	}

	wait.For(t, "the boot ID is another", func(ctx context.Context) error {
		after, err := conn.BootID(ctx)
		if err != nil {
			return err
		}

		return wait.True(after != before)
	})

	if err := conn.Reset(t.Context(), talos.ResetOptions{Reboot: true}); err != nil {
		t.Fatal(err)
	}

	creds := c.creds()
	awaitState(t, n, &creds, talos.StateMaintenance)

	data := c.config(configmachine.TypeControlPlane)
	pool := talos.NewPool()

	m, err := pool.Maintenance(t.Context(), n.Address(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()

	if _, err := m.Apply(t.Context(), data); err != nil {
		t.Fatal(err)
	}

	awaitState(t, n, &creds, talos.StateMember)

	// The insecure way is for machines without a config only.
	if _, err := m.Apply(t.Context(), data); err == nil {
		t.Error("a configured machine took a config over an insecure connection")
	}
}

// TestPool: one connection a node, replaced when its address or the credentials change, gone when it is dropped.
func TestPool(t *testing.T) {
	t.Parallel()

	address := loopback.Address(t)
	c := newCluster(t, address)
	n := boot(t, address)
	c.configure(n)

	pool := talos.NewPool()
	defer pool.Close()

	ref := talos.NodeRef{Key: "ns/n", Address: n.Address(), Credentials: c.creds()}

	get := func() *talos.Node {
		conn, err := pool.Node(t.Context(), ref)
		if err != nil {
			t.Fatal(err)
		}

		return conn
	}

	first := get()
	if get() != first {
		t.Error("a second connection to the same node")
	}

	ref.Credentials = c.creds()

	second := get()
	if second == first {
		t.Error("the old connection, with new credentials")
	}

	if _, err := first.BootID(t.Context()); err == nil {
		t.Error("the replaced connection still works")
	}

	if _, err := second.BootID(t.Context()); err != nil {
		t.Errorf("the new connection: %v", err)
	}

	pool.Drop(ref.Key)

	if _, err := second.BootID(t.Context()); err == nil {
		t.Error("a dropped connection still works")
	}

	if get() == second {
		t.Error("a dropped connection is handed out")
	}
}
