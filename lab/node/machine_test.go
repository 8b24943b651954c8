package node_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/api/storage"
	"github.com/siderolabs/talos/pkg/machinery/client"
	configmachine "github.com/siderolabs/talos/pkg/machinery/config/machine"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/talos-operator/talos-operator/lab/node"
	"github.com/talos-operator/talos-operator/test/wait"
)

// TestServices: only the kubelet may be started and restarted through the API, in the words of a real node.
func TestServices(t *testing.T) {
	t.Parallel()

	f := newFleet(t, true)
	n := f.boot(1)
	c := f.found(n)[0]

	for call, want := range map[string]string{
		"stop etcd":     `service "etcd" doesn't support stop operation via API`,
		"restart etcd":  `service "etcd" doesn't support restart operation via API`,
		"stop kubelet":  `service "kubelet" doesn't support stop operation via API`,
		"start nothing": `service "nothing" not defined`,
	} {
		verb, id, _ := strings.Cut(call, " ")

		var err error

		switch verb {
		case "stop":
			_, err = c.ServiceStop(t.Context(), id)
		case "restart":
			_, err = c.ServiceRestart(t.Context(), id)
		case "start":
			_, err = c.ServiceStart(t.Context(), id)
		}

		if status.Code(err) != codes.Unknown || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", call, err, want)
		}
	}

	if _, err := c.ServiceRestart(t.Context(), "kubelet"); err != nil {
		t.Fatal(err)
	}

	f.serviceShows("the kubelet is back", c, "kubelet", func(s service) bool {
		return s.state == "Running" && s.healthy && slices.Contains(s.messages, "Service finished successfully")
	})
}

// collect reads a machine's events until one matches.
func (f *fleet) collect(c *client.Client, last func(client.Event) bool, opts ...client.EventsOptionFunc) []client.Event {
	f.t.Helper()

	ctx, cancel := context.WithCancel(f.t.Context())
	defer cancel()

	ch := make(chan client.EventResult)
	if err := c.EventsWatchV2(ctx, ch, opts...); err != nil {
		f.t.Fatal(err)
	}

	var list []client.Event

	for {
		r := wait.Done(f.t, fmt.Sprintf("an event after %d others", len(list)), ch)
		if r.Error != nil {
			f.t.Fatalf("after %d events: %v", len(list), r.Error)
		}

		list = append(list, r.Event)

		if last(r.Event) {
			return list
		}
	}
}

// TestEvents: the events of a boot in the order of a real one, tails, and actors.
func TestEvents(t *testing.T) {
	t.Parallel()

	f := newFleet(t, true)
	n := f.boot(1)
	c := f.found(n)[0]

	boot := f.collect(c, func(e client.Event) bool {
		s, ok := e.Payload.(*machine.MachineStatusEvent)

		return ok && s.GetStage() == machine.MachineStatusEvent_RUNNING && s.GetStatus().GetReady()
	}, client.WithTailEvents(-1))

	var sequences []string

	for _, e := range boot {
		if s, ok := e.Payload.(*machine.SequenceEvent); ok {
			sequences = append(sequences, s.GetSequence()+" "+s.GetAction().String())
		}
	}

	want := []string{"initialize START", "initialize STOP", "install START", "install STOP", "boot START", "boot STOP"}
	if !slices.Equal(sequences, want) {
		t.Errorf("sequences of a boot: %q", sequences)
	}

	if !slices.IsSortedFunc(boot, func(a, b client.Event) int { return strings.Compare(a.ID, b.ID) }) {
		t.Error("the IDs of events are not in order")
	}

	middle := len(boot) / 2

	rest := f.collect(c, func(e client.Event) bool { return e.ID == boot[len(boot)-1].ID }, client.WithTailID(boot[middle].ID))
	if len(rest) != len(boot)-middle-1 {
		t.Errorf("%d events after the middle of %d", len(rest), len(boot))
	}

	f.actor(c)
}

// actor: what a call causes carries the ID that the call was answered with. The watch begins before the call, because a
// machine that is reset does not serve it for long.
func (f *fleet) actor(c *client.Client) {
	f.t.Helper()

	ctx, cancel := context.WithCancel(f.t.Context())
	defer cancel()

	ch := make(chan client.EventResult, 100)
	if err := c.EventsWatchV2(ctx, ch, client.WithTailEvents(-1)); err != nil {
		f.t.Fatal(err)
	}

	resp, err := c.MachineClient.Reset(ctx, &machine.ResetRequest{
		SystemPartitionsToWipe: []*machine.ResetPartitionSpec{{Label: "STATE", Wipe: true}}, Reboot: true,
	})
	if err != nil {
		f.t.Fatal(err)
	}

	for {
		r := wait.Done(f.t, "the reset shows in an event", ch)
		if r.Error != nil {
			f.t.Fatalf("watching events: %v", r.Error)
		}

		s, ok := r.Event.Payload.(*machine.SequenceEvent)
		if !ok || s.GetSequence() != "reset" {
			continue
		}

		if r.Event.ActorID != resp.GetMessages()[0].GetActorId() {
			f.t.Errorf("the reset of another actor: %+v", r.Event)
		}

		return
	}
}

// TestWorkerNeedsControlPlane: a worker's certificate comes from a control-plane node, and only with its token.
func TestWorkerNeedsControlPlane(t *testing.T) {
	t.Parallel()

	f := newFleet(t, true)
	worker, stranger := f.boot(2), f.boot(3)

	f.first(worker, f.render(configmachine.TypeWorker))
	f.first(stranger, f.render(configmachine.TypeWorker, "machine: {token: wrong1.wrongwrongwrong1}"))

	for _, n := range []*node.Node{worker, stranger} {
		wait.For(t, n.Name()+" has its config", shows(n, func(s node.Status) bool { return s.MachineType == "worker" }))
	}

	if f.version(t.Context(), worker, silence) == nil {
		t.Error("a worker answers although nobody has signed its certificate")
	}

	f.found(f.boot(1))
	f.ready(worker)

	if err := f.version(t.Context(), worker, stuck); err != nil {
		t.Errorf("the worker is unreachable: %v", err)
	}

	if f.version(t.Context(), stranger, silence) == nil {
		t.Error("a worker with another token got a certificate")
	}
}

// TestInstallDisk: the disk of the config must be there; a failed installation ends in maintenance mode again.
func TestInstallDisk(t *testing.T) {
	t.Parallel()

	f := newFleet(t, true)
	disks := func(o *node.Options) {
		o.Disks = []node.Disk{
			{Name: "sr0", Size: 1 << 20, CDROM: true, Readonly: true},
			{Name: "vda", Size: 10 * node.GiB, Transport: "virtio", Content: []string{"ntfs", "ntfs"}},
			{Name: "nvme0n1", Size: 40 * node.GiB, Transport: "nvme", Model: "FAST"},
		}
	}
	n := f.boot(1, disks)
	boot := n.Status().BootID

	f.first(n, f.render(configmachine.TypeControlPlane)) // wants /dev/sda
	wait.For(t, "the failed installation ends where it began", shows(n, func(s node.Status) bool {
		return s.BootID != boot && s.Stage == "maintenance" && !s.Installed && s.ClusterName == ""
	}))

	f.first(n, f.render(configmachine.TypeControlPlane,
		"machine: {install: {disk: \"\", diskSelector: {type: nvme}}}"))

	c := f.preparing(n)

	resp, err := c.StorageClient.Disks(t.Context(), &emptypb.Empty{})
	if err != nil {
		t.Fatal(err)
	}

	var system []string

	for _, d := range resp.GetMessages()[0].GetDisks() {
		if d.GetSystemDisk() {
			system = append(system, d.GetDeviceName())
		}
	}

	if !slices.Equal(system, []string{"/dev/nvme0n1"}) {
		t.Errorf("system disks %q", system)
	}

	f.checkDiskWipe(c)
}

// checkDiskWipe wipes what may be wiped.
func (f *fleet) checkDiskWipe(c *client.Client) {
	f.t.Helper()

	for device, want := range map[string]codes.Code{
		"vda": codes.OK, "nvme0n1": codes.FailedPrecondition, "sr0": codes.FailedPrecondition, "sdz": codes.NotFound,
	} {
		err := c.BlockDeviceWipe(f.t.Context(), &storage.BlockDeviceWipeRequest{
			Devices: []*storage.BlockDeviceWipeDescriptor{{Device: device}},
		})
		if status.Code(err) != want {
			f.t.Errorf("wiping %s: %v", device, err)
		}
	}
}

// TestFaults: a node that is frozen or cut off takes its etcd with it, and comes back.
func TestFaults(t *testing.T) {
	t.Parallel()

	f := newFleet(t, true)
	nodes := []*node.Node{f.boot(1), f.boot(2), f.boot(3)}
	clients := f.found(nodes...)

	for name, fault := range map[string]func(*node.Node, bool){"freeze": (*node.Node).Freeze, "partition": (*node.Node).Partition} {
		fault(nodes[1], true)

		if got := f.members(clients[0], true); len(got) != 3 {
			t.Errorf("%s: two of three members are a quorum: %q", name, got)
		}

		fault(nodes[2], true)

		if !hangs(t.Context(), func(ctx context.Context) error {
			_, err := clients[0].EtcdMemberList(ctx, &machine.EtcdMemberListRequest{QueryLocal: true})

			return err
		}) {
			t.Errorf("%s: one of three members answers", name)
		}

		if !hangs(t.Context(), func(ctx context.Context) error { _, err := clients[1].Version(ctx); return err }) {
			t.Errorf("%s: the node answers", name)
		}

		fault(nodes[1], false)
		fault(nodes[2], false)
		wait.For(t, name+": the cluster is back", sees(clients[0], "n1", "n2", "n3"))
		wait.For(t, name+": the node is back", func(ctx context.Context) error {
			return f.version(ctx, nodes[1], attempt)
		})
	}
}

// TestGracefulResetLeaves: a control-plane node that is reset leaves etcd first; without a reboot it is off afterwards.
func TestGracefulResetLeaves(t *testing.T) {
	t.Parallel()

	f := newFleet(t, true)
	nodes := []*node.Node{f.boot(1), f.boot(2), f.boot(3)}
	clients := f.found(nodes...)

	if err := clients[2].ResetGeneric(t.Context(), &machine.ResetRequest{Graceful: true}); err != nil {
		t.Fatal(err)
	}

	wait.For(t, "the power is off", shows(nodes[2], func(s node.Status) bool { return !s.Powered }))

	if got := f.members(clients[0], true); !slices.Equal(got, []string{"n1", "n2"}) {
		t.Errorf("members after the reset: %v", got)
	}

	if nodes[2].Status().Installed {
		t.Error("the system disk is not empty")
	}

	if err := clients[1].Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}

	wait.For(t, "the power is off", shows(nodes[1], func(s node.Status) bool { return !s.Powered }))

	if err := nodes[1].PowerOn(t.Context()); err != nil {
		t.Fatal(err)
	}

	f.ready(nodes[1])
}

// TestResetRefusals: what a reset cannot do is refused at once.
func TestResetRefusals(t *testing.T) {
	t.Parallel()

	f := newFleet(t, true)
	c := f.found(f.boot(1))[0]

	for want, req := range map[string]*machine.ResetRequest{
		"device /dev/sdx wasn't found":       {UserDisksToWipe: []string{"/dev/sdx"}},
		"device /dev/sda is the system disk": {UserDisksToWipe: []string{"/dev/sda"}},
		"SYSTEM_DISK doesn't support": {
			UserDisksToWipe: []string{"/dev/sdx"}, Mode: machine.ResetRequest_SYSTEM_DISK,
		},
		`failed to get volume status with label "NONE"`: {
			SystemPartitionsToWipe: []*machine.ResetPartitionSpec{{Label: "NONE", Wipe: true}},
		},
	} {
		if err := c.ResetGeneric(t.Context(), req); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}

	if err := c.MetaWrite(t.Context(), 12, []byte("value")); err != nil {
		t.Error(err)
	}

	if err := c.MetaDelete(t.Context(), 12); err != nil {
		t.Error(err)
	}

	if err := c.MetaDelete(t.Context(), 12); status.Code(err) != codes.NotFound {
		t.Errorf("deleting a key that is not there: %v", err)
	}
}

// TestEtcdDataShows: an operator sees by listing whether a node holds etcd data.
func TestEtcdDataShows(t *testing.T) {
	t.Parallel()

	f := newFleet(t, true)
	n := f.boot(1)

	f.first(n, f.render(configmachine.TypeControlPlane))

	c := f.preparing(n)
	if got := f.list(c, "/var/lib/etcd"); !slices.Equal(got, []string{"."}) {
		t.Errorf("before the bootstrap: %q", got)
	}

	if err := c.Bootstrap(t.Context(), &machine.BootstrapRequest{}); err != nil {
		t.Fatal(err)
	}

	f.ready(n)
	wait.For(t, "etcd has data", func(context.Context) error {
		return wait.True(slices.Contains(f.list(c, "/var/lib/etcd"), "member"))
	})

	if _, err := readAll(c, t.Context(), "/none"); status.Code(err) != codes.NotFound {
		t.Errorf("reading what is not there: %v", err)
	}

	if data, err := readAll(c, t.Context(), "/etc/os-release"); err != nil || !strings.Contains(data, "VERSION_ID=v1.13.9") {
		t.Errorf("os-release %q, %v", data, err)
	}

	logs, err := c.Logs(t.Context(), "system", common.ContainerDriver_CONTAINERD, "machined", false, -1)
	if err != nil {
		t.Fatal(err)
	}

	if msg, err := logs.Recv(); err != nil || len(msg.GetBytes()) == 0 {
		t.Errorf("the log of machined: %v, %v", msg, err)
	}
}

func readAll(c *client.Client, ctx context.Context, path string) (string, error) {
	r, err := c.Read(ctx, path)
	if err != nil {
		return "", err
	}

	data, err := io.ReadAll(r)

	return string(data), err
}

func (f *fleet) list(c *client.Client, root string) []string {
	f.t.Helper()

	stream, err := c.LS(f.t.Context(), &machine.ListRequest{Root: root})
	if err != nil {
		f.t.Fatal(err)
	}

	var names []string

	for {
		info, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return names
		}

		if err != nil {
			f.t.Fatal(err)
		}

		names = append(names, info.GetRelativeName())
	}
}

// TestGeneratedCredentials: a node makes talosconfigs for roles, and their holders may do what the role may.
func TestGeneratedCredentials(t *testing.T) {
	t.Parallel()

	f := newFleet(t, true)
	n := f.boot(1)
	c := f.found(n)[0]

	resp, err := c.GenerateClientConfiguration(t.Context(), &machine.GenerateClientConfigurationRequest{
		Roles: []string{"os:reader"},
	})
	if status.Code(err) != codes.InvalidArgument {
		t.Errorf("without a lifetime: %v, %v", resp, err)
	}

	req := &machine.GenerateClientConfigurationRequest{Roles: []string{"os:reader"}, CrtTtl: durationpb.New(time.Hour)}
	if resp, err = c.GenerateClientConfiguration(t.Context(), req); err != nil {
		t.Fatal(err)
	}

	pair, err := tls.X509KeyPair(resp.GetMessages()[0].GetCrt(), resp.GetMessages()[0].GetKey())
	if err != nil {
		t.Fatal(err)
	}

	reader, err := client.New(t.Context(), client.WithEndpoints(n.Address()),
		client.WithTLSConfig(&tls.Config{Certificates: []tls.Certificate{pair}, InsecureSkipVerify: true}))
	if err != nil {
		t.Fatal(err)
	}

	defer reader.Close()

	if _, err := reader.Version(t.Context()); err != nil {
		t.Errorf("a reader asks for the version: %v", err)
	}

	if err := reader.Reboot(t.Context()); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a reader reboots: %v", err)
	}
}
