package control_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/talos-operator/talos-operator/lab"
	"github.com/talos-operator/talos-operator/lab/control"
	"github.com/talos-operator/talos-operator/lab/cosi"
	"github.com/talos-operator/talos-operator/lab/node"
	"github.com/talos-operator/talos-operator/test/loopback"
	"github.com/talos-operator/talos-operator/test/wait"
)

// serve opens a lab with a control socket in a directory.
func serve(t *testing.T, dir string, down func()) (*lab.Lab, *control.Client) {
	t.Helper()

	l, err := lab.New(lab.Options{Dir: dir, Subnet: loopback.Network(t), Modelled: true})
	if err != nil {
		t.Fatal(err)
	}

	s, err := control.Serve(dir, l, func() control.Info { return control.Info{Dir: dir, Ready: true} }, down)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if err := errors.Join(s.Close(ctx), l.Close(ctx)); err != nil {
			t.Error(err)
		}
	})

	c, err := control.NewClient(dir)
	if err != nil {
		t.Fatal(err)
	}

	if info, err := c.Info(t.Context()); err != nil || info.Dir != dir {
		t.Fatalf("info %v, error %v", info, err)
	}

	return l, c
}

func act(t *testing.T, c *control.Client, a control.Action) control.Node {
	t.Helper()

	nodes, err := c.Act(t.Context(), a)
	if err != nil {
		t.Fatalf("%s: %v", a.Action, err)
	}

	if len(nodes) != 1 {
		t.Fatalf("%s answers with %d machines", a.Action, len(nodes))
	}

	return nodes[0]
}

// breakNetworks: each fault of the network replaces the one before, and all of them end with clear.
func breakNetworks(t *testing.T, c *control.Client, n *node.Node) {
	t.Helper()

	for action, want := range map[string]node.NetworkFaults{
		control.ActionLinkDown:  {NetworkFaults: cosi.NetworkFaults{Links: map[string]cosi.LinkFault{"eth0": cosi.LinkDown}}},
		control.ActionLinkGone:  {NetworkFaults: cosi.NetworkFaults{Links: map[string]cosi.LinkFault{"eth0": cosi.LinkMissing}}},
		control.ActionNoDNS:     {NetworkFaults: cosi.NetworkFaults{NoResolvers: true}},
		control.ActionSilentDNS: {NetworkFaults: cosi.NetworkFaults{SilentResolvers: true}},
		control.ActionNoTunnels: {NoTunnels: true},
		control.ActionNoMembers: {NoMembers: true},
		control.ActionClear:     {},
	} {
		act(t, c, control.Action{Names: []string{"node-1"}, Action: action, Link: "eth0"})

		if got := n.NetworkFaults(); !reflect.DeepEqual(got, want) {
			t.Errorf("after %s: %+v", action, got)
		}
	}

	act(t, c, control.Action{Names: []string{"node-1"}, Action: control.ActionClear})

	if _, err := c.Act(t.Context(), control.Action{Names: []string{"node-1"}, Action: control.ActionLinkDown}); err == nil {
		t.Error("a link without a name is broken")
	}
}

func TestActions(t *testing.T) {
	l, c := serve(t, t.TempDir(), nil)

	booted, err := c.Boot(t.Context(), control.Boot{Address: l.Subnet().Addr().Next().String(), CPUs: 4, DiskGiB: []int{10, 20}})
	if err != nil || booted.Name != "node-1" || !booted.Powered {
		t.Fatalf("booted %+v, error %v", booted, err)
	}

	n := l.Node("node-1")
	if hw := n.Hardware(); hw.CPUs != 4 || len(hw.Disks) != 2 {
		t.Errorf("hardware %+v", hw)
	}

	wait.For(t, "the fingerprint that its console shows", func(context.Context) error {
		d := control.Describe("node-1", n)

		return wait.True(d.MaintenanceFingerprint != "" && d.MaintenanceFingerprint == n.Status().MaintenanceFingerprint)
	})

	do := func(action string) control.Node {
		return act(t, c, control.Action{Names: []string{"node-1"}, Action: action})
	}

	if d := do(control.ActionFreeze); !d.Frozen || !n.Faults().Frozen() {
		t.Errorf("after freeze: %+v", d)
	}

	if d := do(control.ActionThaw); d.Frozen {
		t.Errorf("after thaw: %+v", d)
	}

	if d := do(control.ActionPartition); !d.Partitioned || !n.Faults().Partitioned() {
		t.Errorf("after partition: %+v", d)
	}

	if d := do(control.ActionHeal); d.Partitioned {
		t.Errorf("after heal: %+v", d)
	}

	if d := do(control.ActionFill); !d.DiskFull {
		t.Errorf("after fill-disk: %+v", d)
	}

	if d := do(control.ActionClear); d.DiskFull {
		t.Errorf("after clear: %+v", d)
	}

	breakNetworks(t, c, n)

	if d := do(control.ActionSecure); !d.SecureBoot {
		t.Errorf("after secure-boot-on: %+v", d)
	}

	if d := do(control.ActionInsecure); d.SecureBoot {
		t.Errorf("after secure-boot-off: %+v", d)
	}

	bootID := n.Status().BootID
	if d := do(control.ActionRestart); !d.Powered || d.BootID == bootID {
		t.Errorf("after restart: %+v", d)
	}

	if d := do(control.ActionStop); d.Powered {
		t.Errorf("after stop: %+v", d)
	}

	if d := do(control.ActionStart); !d.Powered {
		t.Errorf("after start: %+v", d)
	}

	if d := do(control.ActionKill); d.Powered {
		t.Errorf("after kill: %+v", d)
	}

	if d := do(control.ActionWipe); !d.Powered || d.Installed {
		t.Errorf("after wipe: %+v", d)
	}

	if nodes, err := c.Act(t.Context(), control.Action{Names: []string{"node-1"}, Action: control.ActionRemove}); err != nil ||
		len(nodes) != 0 || l.Node("node-1") != nil {
		t.Errorf("after remove: %v, error %v", nodes, err)
	}
}

func TestNames(t *testing.T) {
	l, c := serve(t, t.TempDir(), nil)

	for _, name := range []string{"default/cp-0", "other/cp-0", "default/cp-1"} {
		if _, err := l.Boot(t.Context(), name, lab.PoweredOff()); err != nil {
			t.Fatal(err)
		}
	}

	nodes, err := c.Nodes(t.Context())
	if err != nil || len(nodes) != 3 {
		t.Fatalf("nodes %v, error %v", nodes, err)
	}

	for given, want := range map[string]string{
		"other/cp-0": "other/cp-0", "cp-1": "default/cp-1", nodes[0].Address: nodes[0].Name,
	} {
		if d := act(t, c, control.Action{Names: []string{given}, Action: control.ActionThaw}); d.Name != want {
			t.Errorf("%s is %s, want %s", given, d.Name, want)
		}
	}

	for _, bad := range []struct {
		a    control.Action
		want string
	}{
		{control.Action{Names: []string{"cp-0"}, Action: control.ActionKill}, "default/cp-0 or other/cp-0"},
		{control.Action{Action: control.ActionKill}, "no machine is named"},
		{control.Action{Names: []string{"cp-1"}, Action: "explode"}, "explode"},
		{control.Action{Names: []string{"cp-1"}, Action: control.ActionSlow, Delay: "long"}, "3s"},
		{control.Action{Names: []string{"cp-1"}, Action: control.ActionFail, Code: "Bad"}, "Unavailable"},
		{control.Action{Names: []string{"cp-1"}, Action: control.ActionFail, Code: "Unavailable", Method: "Botstrap"}, "Botstrap"},
		{control.Action{Names: []string{"cp-1"}, Action: control.ActionSlow, Delay: "3s", Method: "/machine.MachineService/Get"}, "no method"},
	} {
		if _, err := c.Act(t.Context(), bad.a); err == nil || !strings.Contains(err.Error(), bad.want) {
			t.Errorf("%+v: %v, want %q", bad.a, err, bad.want)
		}
	}

	for _, method := range []string{"", "Bootstrap", "EtcdSnapshot", "/cosi.resource.State/Get"} {
		act(t, c, control.Action{Names: []string{"cp-1"}, Action: control.ActionFail, Code: "Unavailable", Method: method})
	}

	act(t, c, control.Action{Names: []string{"cp-1"}, Action: control.ActionClear})

	if _, err := c.Act(t.Context(), control.Action{Names: []string{"nobody"}, Action: control.ActionKill}); !errors.Is(err,
		lab.ErrNotFound) {
		t.Errorf("an unknown machine: %v", err)
	}
}

// TestLongPath serves a lab whose directory is too long for a socket.
func TestLongPath(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("long", 30))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}

	serve(t, dir, nil)
}

func TestNoLab(t *testing.T) {
	c, err := control.NewClient(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}

	if _, err := c.Nodes(t.Context()); !errors.Is(err, control.ErrNoLab) {
		t.Errorf("asking a lab that does not run: %v", err)
	}
}

func TestLock(t *testing.T) {
	dir := t.TempDir()

	if err := control.Running(dir); err != nil {
		t.Errorf("before: %v", err)
	}

	lock, err := control.Acquire(dir)
	if err != nil {
		t.Fatal(err)
	}

	if _, err := control.Acquire(dir); !errors.Is(err, control.ErrRunning) {
		t.Errorf("second lab: %v", err)
	}

	if err := control.Running(dir); !errors.Is(err, control.ErrRunning) {
		t.Errorf("asking: %v", err)
	}

	lock.Release()

	again, err := control.Acquire(dir)
	if err != nil {
		t.Fatalf("after the first has ended: %v", err)
	}

	again.Release()
}

func TestCodes(t *testing.T) {
	for name, want := range map[string]codes.Code{
		"Unavailable": codes.Unavailable, "unavailable": codes.Unavailable, "DEADLINE_EXCEEDED": codes.DeadlineExceeded,
	} {
		if got, ok := control.Code(name); !ok || got != want {
			t.Errorf("%s is %s", name, got)
		}
	}

	if slices.Contains(control.Codes(), codes.OK) {
		t.Error("OK is offered as an error")
	}
}
