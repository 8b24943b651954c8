package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/talos-operator/talos-operator/lab/node/boot"
	"github.com/talos-operator/talos-operator/lab/node/disk"
	"github.com/talos-operator/talos-operator/lab/node/event"
	"github.com/talos-operator/talos-operator/lab/node/hardware"
	"github.com/talos-operator/talos-operator/lab/node/pace"
)

// Reboot implements the MachineService.
func (s machineServer) Reboot(_ context.Context, req *machine.RebootRequest) (*machine.RebootResponse, error) {
	actor := uuid.NewString()
	s.logf("reboot via API received. actor id: %s", actor)
	s.spawn(func() { s.reboot(event.WithActor(s.ctx, actor), req, false) })

	return &machine.RebootResponse{Messages: []*machine.Reboot{{ActorId: actor}}}, nil
}

// reboot runs the reboot sequence and boots anew.
func (s *session) reboot(ctx context.Context, req *machine.RebootRequest, force bool) {
	start := time.Now()

	var phases []boot.Phase

	if req.GetMode() != machine.RebootRequest_FORCE {
		phases = slices.Concat([]boot.Phase{s.stopPods(), boot.Single("dbus", "stopDBus", nil)}, s.stopPhases(true))
	}

	phases = append(phases, boot.Single("reboot", "reboot", nil))

	if err := s.sequences.Run(ctx, boot.Reboot, force, phases); err != nil {
		s.logf("reboot failed: %v", err)

		return
	}

	s.n.timed("reboot", start)

	go s.n.restart(s, true)
}

// stopPods stops what Kubernetes runs.
func (s *session) stopPods() boot.Phase {
	return boot.Single("cleanup", "stopAllPods", func(ctx context.Context) error {
		s.stopKubelet()
		s.stopService(svcKubelet)

		return s.spend(ctx, pace.StopPods)
	})
}

// stopPhases stop everything else.
func (s *session) stopPhases(kexec bool) []boot.Phase {
	phases := []boot.Phase{
		boot.Single("stopServices", "stopServicesEphemeral", func(ctx context.Context) error {
			if err := s.stopEtcd(ctx); err != nil {
				return err
			}

			for _, id := range []string{svcTrustd, svcCRI} {
				s.stopService(id)
			}

			for _, e := range s.servicesOfExtensions() {
				s.stopService(e.id())
			}

			return nil
		}),
		boot.Single("umount", "unmountPodMounts", nil),
		boot.Single("unmountBind", "unmountSystemDiskBindMounts", nil),
		boot.Single("unmountSystem", "unmountEphemeralPartition", nil),
		boot.Single("volumeFinalize", "teardownVolumeLifecycle", nil),
	}

	if kexec {
		phases = append(phases, boot.Single("kexec", "kexecPrepare", nil))
	}

	return append(phases, boot.Single("stopEverything", "stopAllServices", func(ctx context.Context) error {
		return s.spend(ctx, pace.StopServices)
	}))
}

// Shutdown implements the MachineService.
func (s machineServer) Shutdown(_ context.Context, req *machine.ShutdownRequest) (*machine.ShutdownResponse, error) {
	actor := uuid.NewString()
	s.logf("shutdown via API received. actor id: %s", actor)
	s.spawn(func() { s.shutdown(event.WithActor(s.ctx, actor), req.GetForce()) })

	return &machine.ShutdownResponse{Messages: []*machine.Shutdown{{ActorId: actor}}}, nil
}

func (s *session) shutdown(ctx context.Context, force bool) {
	phases := []boot.Phase{boot.Single("storeShutdown", "storeShutdownEmergency", nil)}
	if !force {
		phases = append(phases, s.drainPhase())
	}

	phases = slices.Concat(phases, []boot.Phase{s.stopPods(), boot.Single("dbus", "stopDBus", nil)}, s.stopPhases(false),
		[]boot.Phase{boot.Single("shutdown", "shutdown", nil)})

	if err := s.sequences.Run(ctx, boot.Shutdown, true, phases); err != nil {
		s.logf("shutdown failed: %v", err)

		return
	}

	go s.n.restart(s, false)
}

// drainPhase cordons the Kubernetes node; that it fails keeps nothing from going on.
func (s *session) drainPhase() boot.Phase {
	return boot.Single("drain", "cordonAndDrainNode", func(ctx context.Context) error {
		s.cordon(ctx)

		return s.spend(ctx, pace.Drain)
	})
}

// Rollback implements the MachineService.
func (s machineServer) Rollback(context.Context, *machine.RollbackRequest) (*machine.RollbackResponse, error) {
	s.logf("rollback via API received")

	loader := s.n.system.Loader()
	if loader == nil {
		return nil, status.Error(codes.FailedPrecondition, "system disk not found")
	}

	other := loader.Other()
	if loader.Entries[other] == nil {
		return nil, errors.New("failed to revert the boot entry: no fallback entry found")
	}

	loader.Default = other
	if err := s.n.system.SetLoader(loader); err != nil {
		return nil, err
	}

	s.spawn(func() { s.reboot(s.ctx, &machine.RebootRequest{}, true) })

	return &machine.RollbackResponse{Messages: []*machine.Rollback{{}}}, nil
}

// Reset implements the MachineService.
func (s machineServer) Reset(_ context.Context, req *machine.ResetRequest) (*machine.ResetResponse, error) {
	actor := uuid.NewString()
	s.logf("reset request received. actorID: %s", actor)

	if err := s.checkResetDisks(req); err != nil {
		return nil, err
	}

	labels, err := s.checkResetPartitions(req)
	if err != nil {
		return nil, err
	}

	s.spawn(func() { s.reset(event.WithActor(s.ctx, actor), req, labels) })

	return &machine.ResetResponse{Messages: []*machine.Reset{{ActorId: actor}}}, nil
}

// checkResetDisks checks which user disks are to be wiped.
func (s *session) checkResetDisks(req *machine.ResetRequest) error {
	if len(req.GetUserDisksToWipe()) == 0 {
		return nil
	}

	if req.GetMode() == machine.ResetRequest_SYSTEM_DISK {
		return errors.New("reset failed: invalid input, wipe mode SYSTEM_DISK doesn't support UserDisksToWipe parameter")
	}

	for _, path := range req.GetUserDisksToWipe() {
		d := s.n.hw.Disk(hardware.DeviceName(path))

		switch {
		case d == nil:
			return fmt.Errorf("reset user disk failed: device %s wasn't found", path)
		case d.Readonly:
			return fmt.Errorf("reset user disk failed: device %s is readonly", path)
		case d.Name == s.systemDisk():
			return fmt.Errorf("reset user disk failed: device %s is the system disk", path)
		}
	}

	return nil
}

// checkResetPartitions returns the labels of the partitions to wipe; none for the whole disk.
func (s *session) checkResetPartitions(req *machine.ResetRequest) ([]string, error) {
	specs := req.GetSystemPartitionsToWipe()
	if len(specs) > 0 && req.GetMode() == machine.ResetRequest_USER_DISKS {
		return nil, errors.New(
			"reset failed: invalid input, wipe mode USER_DISKS doesn't support SystemPartitionsToWipe parameter")
	}

	var labels []string

	for _, spec := range specs {
		if !slices.Contains(disk.Labels(), spec.GetLabel()) {
			return nil, fmt.Errorf("failed to get volume status with label %q: resource "+
				"VolumeStatuses.block.talos.dev(runtime/%s@undefined) doesn't exist", spec.GetLabel(), spec.GetLabel())
		}

		if !s.n.system.Installed() {
			return nil, fmt.Errorf("failed to reset: volume %q is not located", spec.GetLabel())
		}

		if spec.GetWipe() {
			labels = append(labels, spec.GetLabel())
		}
	}

	return labels, nil
}

// reset runs the reset sequence: it leaves etcd where that was requested, wipes, and reboots or powers off.
func (s *session) reset(ctx context.Context, req *machine.ResetRequest, labels []string) {
	err := s.sequences.Run(ctx, boot.Reset, false, s.resetPhases(req, labels))
	if err != nil {
		s.logf("reset failed: %v", err)

		if ctx.Err() == nil && !errors.Is(err, boot.ErrLocked) {
			go s.n.restart(s, true) // a failed sequence ends in a reboot
		}

		return
	}

	go s.n.restart(s, req.GetReboot())
}

func (s *session) resetPhases(req *machine.ResetRequest, labels []string) []boot.Phase {
	var phases []boot.Phase

	cleanup := s.stopPods()

	if req.GetGraceful() {
		phases = append(phases, s.drainPhase())
		cleanup.Tasks[0].Name = "removeAllPods"
	}

	phases = append(phases, cleanup, boot.Single("dbus", "stopDBus", nil))

	if req.GetGraceful() && s.machineType().IsControlPlane() {
		phases = append(phases, boot.Single("leave", "leaveEtcd", s.leaveForReset))
	}

	phases = append(phases, boot.Single("preReset", "sendResetSignal", func(context.Context) error {
		s.n.opts.Cluster.nodes.Withdraw(s.n)

		return nil
	}))
	phases = append(phases, s.stopPhases(false)...)
	phases = append(phases, boot.Single("forceCleanup", "forceCleanup", nil))
	phases = append(phases, s.wipePhases(req, labels)...)

	if req.GetReboot() {
		return append(phases, boot.Single("reboot", "reboot", nil))
	}

	return append(phases, boot.Single("shutdown", "shutdown", nil))
}

// leaveForReset leaves etcd, if the node is a member.
func (s *session) leaveForReset(ctx context.Context) error {
	member := s.localMember()
	if member == nil {
		return nil
	}

	if err := s.leaveEtcd(ctx, member); err != nil {
		return fmt.Errorf("failed to leave cluster: %w", err)
	}

	return nil
}

// wipePhases wipe what the request names.
func (s *session) wipePhases(req *machine.ResetRequest, labels []string) []boot.Phase {
	var phases []boot.Phase

	if req.GetMode() != machine.ResetRequest_USER_DISKS {
		name, taskName := "reset", "resetSystemDisk"
		if len(req.GetSystemPartitionsToWipe()) > 0 {
			name, taskName = "resetSpec", "resetSystemDiskSpec"
		}

		phases = append(phases, boot.Single(name, taskName, func(ctx context.Context) error {
			if len(req.GetSystemPartitionsToWipe()) > 0 && len(labels) == 0 {
				return nil
			}

			if err := s.n.system.Wipe(labels...); err != nil {
				return err
			}

			return s.spend(ctx, pace.Wipe)
		}))
	}

	if len(req.GetUserDisksToWipe()) > 0 {
		phases = append(phases, boot.Single("resetUserDisks", "resetUserDisks", func(context.Context) error {
			return s.n.wipeDisks(req.GetUserDisksToWipe()...)
		}))
	}

	return phases
}

// wipeDisks forgets what other installations left on disks.
func (n *Node) wipeDisks(paths ...string) error {
	n.mu.Lock()
	defer n.mu.Unlock()

	for _, path := range paths {
		if d := n.hw.Disk(hardware.DeviceName(path)); d != nil {
			d.Content = nil
		}
	}

	return n.hw.Save(n.opts.Dir)
}
