package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/meta"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/talos-operator/talos-operator/lab/node/boot"
	"github.com/talos-operator/talos-operator/lab/node/disk"
	"github.com/talos-operator/talos-operator/lab/node/event"
	"github.com/talos-operator/talos-operator/lab/node/hardware"
	"github.com/talos-operator/talos-operator/lab/node/image"
	"github.com/talos-operator/talos-operator/lab/node/pace"
)

// FailInstaller makes installers whose image reference contains a text exit with code 1, until the text is empty.
func (n *Node) FailInstaller(text string) {
	n.mu.Lock()
	defer n.mu.Unlock()

	n.upgrades = nil
	if text != "" {
		n.upgrades = []string{text}
	}
}

func (n *Node) installerFails(ref string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()

	return strings.Contains(ref, image.BadInstall) ||
		slices.ContainsFunc(n.upgrades, func(text string) bool { return strings.Contains(ref, text) })
}

var errInstaller = errors.New("exit code 1")

// runInstaller runs an installer; say receives what it prints.
func (s *session) runInstaller(ctx context.Context, ref string, say func(string) error) error {
	if say == nil {
		say = func(line string) error {
			s.logf("installer: %s", strings.TrimSuffix(line, "\n"))

			return nil
		}
	}

	for _, line := range []string{
		"running Talos installer " + image.Tag(ref) + "\n",
		"installing to /dev/" + s.systemDisk() + "\n",
		"copying kernel and initramfs\n",
	} {
		if err := say(line); err != nil {
			return err
		}

		if err := s.spend(ctx, pace.Install); err != nil {
			return err
		}
	}

	if s.n.installerFails(ref) {
		_ = say("Error: failed to install the boot loader\n") // the exit code says it all

		return fmt.Errorf("task \"upgrade\" failed: %w", errInstaller)
	}

	return say("installation of " + image.Tag(ref) + " complete\n")
}

// upgradeTo installs an image into the boot entry that does not run, and makes it the one that boots next.
func (s *session) upgradeTo(ctx context.Context, ref string, say func(string) error) error {
	if err := s.runInstaller(ctx, ref, say); err != nil {
		return err
	}

	loader := s.n.system.Loader()
	if loader == nil {
		return errors.New("no Talos is installed")
	}

	next := disk.SlotA
	if s.slot == disk.SlotA {
		next = disk.SlotB
	}

	entry := newEntry(ref, s.tag)
	entry.Broken, entry.WarmOnly = strings.Contains(ref, image.BadBoot), strings.Contains(ref, image.BadColdBoot)
	entry.Tag = image.Version(entry.Tag)
	loader.Entries[next], loader.Default = entry, next

	return s.n.system.SetLoader(loader)
}

// newEntry makes the boot entry of an installer image.
func newEntry(ref, fallback string) *disk.Entry {
	tag := image.Tag(ref)
	if !strings.HasPrefix(tag, "v") {
		tag = fallback
	}

	return &disk.Entry{Tag: tag, Image: ref, Schematic: image.Schematic(ref)}
}

// Upgrade implements the MachineService: the legacy upgrade, which guards etcd, drains, installs and reboots.
func (s machineServer) Upgrade(ctx context.Context, req *machine.UpgradeRequest) (*machine.UpgradeResponse, error) {
	if !s.n.system.Installed() {
		return nil, status.Error(codes.FailedPrecondition, "Talos is not installed")
	}

	if err := image.CheckPull(req.GetImage()); err != nil {
		return nil, fmt.Errorf("error validating installer image %q: %w", req.GetImage(), err)
	}

	if s.machineType().IsControlPlane() && !req.GetForce() && (!req.GetPreserve() || s.older()) {
		if err := s.guardEtcd(ctx); err != nil {
			return nil, fmt.Errorf("error validating etcd for upgrade: %w", err)
		}
	}

	actor := uuid.NewString()
	runCtx := event.WithActor(s.ctx, actor)

	if req.GetStage() {
		if err := s.n.system.SetMeta(meta.StagedUpgradeImageRef, req.GetImage()); err != nil {
			return nil, fmt.Errorf("error adding staged upgrade image ref tag: %w", err)
		}

		s.spawn(func() { s.stageUpgrade(runCtx) })
	} else {
		s.spawn(func() { s.upgrade(runCtx, req.GetImage()) })
	}

	return &machine.UpgradeResponse{
		Messages: []*machine.Upgrade{{Ack: "Upgrade request received", ActorId: actor}},
	}, nil
}

// older reports whether the node runs a Talos before 1.13, which checks etcd also where data is kept.
func (s *session) older() bool {
	contract, err := config.ParseContractFromVersion(s.tag)

	return err == nil && config.TalosVersion1_13.Greater(contract)
}

// guardEtcd refuses an upgrade that the etcd cluster would not survive.
func (s *session) guardEtcd(ctx context.Context) error {
	member, err := s.anyMember(ctx)
	if err != nil {
		return err
	}

	members, err := member.Members(ctx)
	if err != nil {
		return err
	}

	if len(members) == 2 {
		return fmt.Errorf("etcd member count(%d) is insufficient to maintain quorum if upgrade commences", len(members))
	}

	for _, m := range members {
		if m.GetHostname() == "" {
			return fmt.Errorf("etcd member %016x is not started, all members must be running to perform an upgrade", m.GetId())
		}

		if err := s.memberHealth(ctx, m); err != nil {
			return fmt.Errorf("etcd member %016x is not healthy; all members must be healthy to perform an upgrade: %w",
				m.GetId(), err)
		}
	}

	return nil
}

// memberHealth asks one member of the cluster whether it is healthy.
func (s *session) memberHealth(ctx context.Context, m *machine.EtcdMember) error {
	for _, other := range append(s.others(), s) {
		if member := other.localMember(); member != nil && other.memberID() == m.GetId() {
			return member.Health(ctx)
		}
	}

	return context.DeadlineExceeded
}

// upgrade runs the upgrade sequence and reboots, into the new system or, where the installer failed, the old one.
func (s *session) upgrade(ctx context.Context, image string) {
	phases := slices.Concat(
		[]boot.Phase{s.drainPhase(), s.stopPods(), boot.Single("dbus", "stopDBus", nil)},
		s.stopPhases(false)[:5],
		[]boot.Phase{
			boot.Single("upgrade", "upgrade", func(ctx context.Context) error { return s.upgradeTo(ctx, image, nil) }),
			boot.Single("meta", "reloadMeta", nil),
			boot.Single("kexec", "kexecPrepare", nil),
			boot.Single("stopEverything", "stopAllServices", nil),
			boot.Single("reboot", "reboot", nil),
		},
	)

	if err := s.sequences.Run(ctx, boot.Upgrade, false, phases); err != nil {
		s.logf("upgrade failed: %v", err)

		if errors.Is(err, boot.ErrLocked) || ctx.Err() != nil {
			return
		}
	}

	go s.n.restart(s, true)
}

// stageUpgrade reboots; the installation happens before the next boot.
func (s *session) stageUpgrade(ctx context.Context) {
	phases := slices.Concat([]boot.Phase{s.stopPods(), boot.Single("dbus", "stopDBus", nil)}, s.stopPhases(true),
		[]boot.Phase{boot.Single("reboot", "reboot", nil)})

	if err := s.sequences.Run(ctx, boot.StageUpgrade, false, phases); err != nil {
		s.logf("reboot for staged upgrade failed: %v", err)

		return
	}

	go s.n.restart(s, true)
}

// lifecycleServer serves the LifecycleService: installing without a reboot.
type lifecycleServer struct {
	machine.UnimplementedLifecycleServiceServer
	*session
}

var errBusy = status.Error(codes.FailedPrecondition, "another installation/upgrade is already in progress")

// Install implements the LifecycleService.
func (s lifecycleServer) Install(
	req *machine.LifecycleServiceInstallRequest, srv grpc.ServerStreamingServer[machine.LifecycleServiceInstallResponse],
) error {
	if !s.installing.TryLock() {
		return errBusy
	}
	defer s.installing.Unlock()

	if s.n.system.Installed() {
		return status.Error(codes.AlreadyExists, "machine is already installed")
	}

	image := req.GetSource().GetImageName()
	if image == "" {
		return status.Error(codes.InvalidArgument, "installer image name is required")
	}

	path := req.GetDestination().GetDisk()
	if path == "" {
		return status.Error(codes.InvalidArgument, "destination disk is required")
	}

	name := hardware.DeviceName(path)
	if s.n.hw.Disk(name) == nil {
		return status.Errorf(codes.InvalidArgument, "invalid disk path: lstat %s: no such file or directory", path)
	}

	image, err := s.imagesOf(req.GetContainerd()).Find(image)
	if err != nil {
		return err
	}

	send := func(progress *machine.LifecycleServiceInstallProgress) error {
		return srv.Send(&machine.LifecycleServiceInstallResponse{Progress: progress})
	}

	if code, err := s.stream(srv.Context(), image, send, s.runInstaller); err != nil || code != 0 {
		return err
	}

	loader := &disk.Loader{
		Disk: name, Default: disk.SlotA, Entries: map[string]*disk.Entry{disk.SlotA: newEntry(image, s.tag)},
	}

	return errors.Join(s.n.system.SetLoader(loader), s.n.wipeDisks(name))
}

// Upgrade implements the LifecycleService. It neither drains nor checks etcd nor reboots, and a failed installer is
// no error of the call.
func (s lifecycleServer) Upgrade(
	req *machine.LifecycleServiceUpgradeRequest, srv grpc.ServerStreamingServer[machine.LifecycleServiceUpgradeResponse],
) error {
	if !s.installing.TryLock() {
		return errBusy
	}
	defer s.installing.Unlock()

	if !s.n.system.Installed() {
		return status.Error(codes.FailedPrecondition, "machine is not installed")
	}

	image := req.GetSource().GetImageName()
	if image == "" {
		return status.Error(codes.InvalidArgument, "installer image name is required")
	}

	image, err := s.imagesOf(req.GetContainerd()).Find(image)
	if err != nil {
		return err
	}

	send := func(progress *machine.LifecycleServiceInstallProgress) error {
		return srv.Send(&machine.LifecycleServiceUpgradeResponse{Progress: progress})
	}

	_, err = s.stream(srv.Context(), image, send, s.upgradeTo)

	return err
}

type installFunc func(ctx context.Context, image string, say func(string) error) error

// stream runs an installer and streams what it prints and its exit code.
func (s *session) stream(
	ctx context.Context, image string, send func(*machine.LifecycleServiceInstallProgress) error, install installFunc,
) (int32, error) {
	say := func(line string) error {
		return send(&machine.LifecycleServiceInstallProgress{
			Response: &machine.LifecycleServiceInstallProgress_Message{Message: line},
		})
	}

	code := int32(0)

	if err := install(ctx, image, say); errors.Is(err, errInstaller) {
		code = 1
	} else if err != nil {
		return 0, err
	}

	return code, send(&machine.LifecycleServiceInstallProgress{
		Response: &machine.LifecycleServiceInstallProgress_ExitCode{ExitCode: code},
	})
}
