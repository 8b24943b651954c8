package node

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/meta"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"

	"github.com/talos-operator/talos-operator/lab/node/boot"
	"github.com/talos-operator/talos-operator/lab/node/disk"
	"github.com/talos-operator/talos-operator/lab/node/hardware"
	"github.com/talos-operator/talos-operator/lab/node/image"
	"github.com/talos-operator/talos-operator/lab/node/pace"
	"github.com/talos-operator/talos-operator/lab/node/service"
)

// main boots the machine: it initializes, waits in maintenance mode for a config where there is none, installs Talos
// where it is not installed, and starts what the config asks for.
func (s *session) main() {
	start := time.Now()

	if s.again && s.spend(s.ctx, pace.Reboot) != nil {
		return
	}

	if err := s.initialize(); err != nil {
		s.bootFailed(err)

		return
	}

	s.n.timed("boot", start)

	if s.faulty(image.BadStay) {
		s.spawn(s.dies)
	}

	install := s.installPhases()
	if err := s.sequences.Run(s.ctx, boot.Install, false, install); err != nil {
		s.bootFailed(err)

		return
	}

	if len(install) > 0 {
		go s.n.restart(s, true)

		return
	}

	if err := s.sequences.Run(s.ctx, boot.Boot, false, s.bootPhases()); err != nil {
		s.bootFailed(err)
	}
}

// bootFailed logs why the boot ended. A machine that cannot go on reboots, unless something else took over.
func (s *session) bootFailed(err error) {
	s.logf("boot: %v", err)

	if stage, _, _ := s.machineStatus(); s.ctx.Err() != nil || stage != runtime.MachineStageRebooting {
		return
	}

	if !s.sequences.Busy() && s.spend(s.ctx, pace.Fatal) == nil {
		go s.n.restart(s, true)
	}
}

func (s *session) initialize() error {
	return s.sequences.Run(s.ctx, boot.Initialize, false, []boot.Phase{
		{Name: "machined", Tasks: []boot.Task{
			{Name: "startContainerd", Run: s.startContainerd},
			{Name: "startApid", Run: s.declareAPID},
			{Name: "startMachined", Run: s.startMachined},
		}},
		boot.Single("config", "loadConfig", s.loadConfig),
	})
}

// loadConfig follows the config on the disk, or waits for one in maintenance mode.
func (s *session) loadConfig(ctx context.Context) error {
	s.journal.RuntimeStarts(s.n.opts.Gateway)
	s.showHardware()

	if err := s.bringUpNetwork(ctx); err != nil {
		return err
	}

	if s.inMaintenance() {
		return s.maintenance(ctx)
	}

	s.mu.Lock()
	s.store.SetLiveConfig(s.live)
	s.mu.Unlock()
	s.store.ShowCachedPlatform()
	s.showConfig()
	s.announce()

	// From now on, also the arrival of a certificate opens it.
	s.apidDue.Store(true)

	return s.serveAPID()
}

// bringUpNetwork brings clock and network up, with the events of a real boot.
func (s *session) bringUpNetwork(ctx context.Context) error {
	s.publishAddresses("")

	if s.faulty(image.BadNetwork) {
		<-ctx.Done()

		return ctx.Err()
	}

	if err := s.spend(ctx, pace.Network); err != nil {
		return err
	}

	s.setTimeSync()
	s.publishAddresses(s.hostname())
	s.setNetwork()
	s.publishAddresses(s.hostname(), s.n.Address())

	return nil
}

// maintenance serves the API to all clients until a config is applied.
func (s *session) maintenance(ctx context.Context) error {
	s.events.Publish(ctx, &machine.TaskEvent{Task: "runningMaintenance", Action: machine.TaskEvent_START})

	if err := s.serveAPID(); err != nil {
		return err
	}

	// What a person compares on the console before the machine gets a config.
	s.logf("server certificate fingerprint:")
	s.logf("\t%s", s.maintenanceFingerprint())

	// A client that reads of the stage finds the API there.
	s.setStage(runtime.MachineStageMaintenance)

	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-s.configured:
	}

	s.events.Publish(ctx, &machine.TaskEvent{Task: "runningMaintenance", Action: machine.TaskEvent_STOP})
	s.setStage(runtime.MachineStageBooting)

	return nil
}

// installPhases are those of an installation, none where Talos is installed and no upgrade was staged.
func (s *session) installPhases() []boot.Phase {
	staged := s.n.system.MetaValues()[meta.StagedUpgradeImageRef]
	if s.n.system.Installed() && staged == "" {
		return nil
	}

	return []boot.Phase{
		boot.Single("env", "setUserEnvVars", nil),
		boot.Single("install", "install", func(ctx context.Context) error {
			if staged != "" {
				return s.installStaged(ctx, staged)
			}

			return s.install(ctx)
		}),
		boot.Single("meta", "reloadMeta", nil),
		boot.Single("saveMeta", "flushMeta", nil),
		boot.Single("volumeFinalize", "teardownVolumeLifecycle", nil),
		boot.Single("stopEverything", "stopAllServices", nil),
		boot.Single("kexec", "kexecPrepare", nil),
		boot.Single("reboot", "reboot", nil),
	}
}

// install writes Talos and the config to the disk that the config names.
func (s *session) install(ctx context.Context) error {
	start := time.Now()

	cfg, _ := s.complete()

	name, err := hardware.Choose(s.n.disks(), cfg.Machine().Install())
	if err != nil {
		return err
	}

	installer := cfg.Machine().Install().Image()
	if err := s.runInstaller(ctx, installer, nil); err != nil {
		return err
	}

	loader := &disk.Loader{
		Disk: name, Default: disk.SlotA,
		Entries: map[string]*disk.Entry{disk.SlotA: newEntry(installer, s.n.opts.TalosVersion)},
	}
	if err := s.n.system.SetLoader(loader); err != nil {
		return err
	}

	if _, err := s.n.system.NodeIdentity(func() string { return s.nodeID }); err != nil {
		return err
	}

	s.mu.Lock()
	err = s.writeConfig()
	s.mu.Unlock()

	if err != nil {
		return err
	}

	s.n.timed("install", start)

	return s.n.wipeDisks(name) // what stood there before is gone
}

// installStaged installs what an upgrade left in META for this boot.
func (s *session) installStaged(ctx context.Context, installer string) error {
	for _, key := range []uint8{meta.StagedUpgradeImageRef, meta.StagedUpgradeInstallOptions} {
		if _, err := s.n.system.DeleteMeta(key); err != nil {
			return err
		}
	}

	return s.upgradeTo(ctx, installer, nil)
}

// bootPhases are those of a boot, as a real node's events show them.
func (s *session) bootPhases() []boot.Phase {
	return []boot.Phase{
		boot.Single("memorySizeCheck", "memorySizeCheck", nil),
		boot.Single("diskSizeCheck", "diskSizeCheck", nil),
		{Name: "env", Tasks: []boot.Task{{Name: "waitForCARoots"}, {Name: "setUserEnvVars"}}},
		boot.Single("dbus", "startDBus", nil),
		boot.Single("sharedFilesystems", "setupSharedFilesystems", nil),
		boot.Single("ephemeral", "mountEphemeralPartition", s.openVolumes),
		boot.Single("userSetup", "writeUserFiles", nil),
		boot.Single("startEverything", "startAllServices", s.startAll),
	}
}

// startAll starts the services of the machine's type and returns when all of them are up. A control-plane node waits
// here for its etcd until the cluster is bootstrapped.
func (s *session) startAll(ctx context.Context) error {
	controlPlane := s.machineType().IsControlPlane()

	s.update(svcKubelet, service.Starting, "Starting service")
	s.update(svcKubelet, service.Waiting, "%s", waitKubelet)

	if controlPlane {
		s.startEtcd(etcdStart{})
	}

	required := []string{svcCRI, svcKubelet}
	starters := []func(context.Context) error{s.startCRI, s.startKubelet}

	if controlPlane {
		required = append(required, svcTrustd, svcEtcd)
		starters = append(starters, s.startTrustd)
	}

	for _, e := range s.servicesOfExtensions() {
		s.runExtension(e, true)

		required = append(required, e.id())
	}

	var group sync.WaitGroup

	errs := make([]error, len(starters))
	for i, start := range starters {
		group.Go(func() { errs[i] = start(ctx) })
	}

	group.Wait()

	for _, err := range errs {
		if err != nil {
			return err
		}
	}

	for _, id := range required {
		if err := s.services.Wait(ctx, id, s.settled); err != nil {
			return err
		}
	}

	return nil
}

// settled reports whether a boot has not to wait for a service any more: a bootstrap ends the wait for etcd, however it
// turns out.
func (s *session) settled(st service.Status) bool {
	return st.Up() || st.State == service.Finished || st.ID == svcEtcd && s.bootstrapped.Load() ||
		st.Running() && strings.HasPrefix(st.ID, extensionPrefix) // which have no health checks
}
