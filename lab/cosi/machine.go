package cosi

import (
	"maps"
	"slices"
	"strconv"

	"github.com/cosi-project/runtime/pkg/resource"
	coreconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/resources/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"github.com/siderolabs/talos/pkg/machinery/resources/time"
	"github.com/siderolabs/talos/pkg/machinery/resources/v1alpha1"
)

// SetMachineStatus says which stage the node is in, whether it is ready, and what it waits for.
func (s *Store) SetMachineStatus(stage runtime.MachineStage, ready bool, unmet ...runtime.UnmetCondition) {
	r := runtime.NewMachineStatus()
	r.TypedSpec().Stage = stage
	r.TypedSpec().Status = runtime.MachineStatusStatus{Ready: ready, UnmetConditions: unmet}

	if unmet == nil {
		r.TypedSpec().Status.UnmetConditions = []runtime.UnmetCondition{}
	}

	s.Set(r)
}

// SetVersion says which Talos runs.
func (s *Store) SetVersion(tag string) {
	r := runtime.NewVersion()
	r.TypedSpec().Name = "Talos"
	r.TypedSpec().Version = tag
	s.Set(r)
}

// SetLiveConfig shows the machine config that the node follows, and what follows from it: machine type, cluster,
// endpoints, secrets, versions of Kubernetes. Nil removes it. Each call is a new version of it, also without a change:
// that is what each apply, each trial and each end of one is on a real node.
func (s *Store) SetLiveConfig(live coreconfig.Provider) {
	s.showConfig(config.ActiveID, live)

	typ := machine.TypeUnknown
	if live != nil && live.Machine() != nil {
		typ = live.Machine().Type()
	}

	s.SetMachineType(typ)
	s.setLiveConfig(live)
	s.derive()
}

// SetPersistentConfig shows the machine config that was applied for the next boot, staged or not. A node that nothing
// was applied to since its boot shows none. Each call is a new version of it, also without a change.
func (s *Store) SetPersistentConfig(persistent coreconfig.Provider) {
	s.showConfig(config.PersistentID, persistent)
}

func (s *Store) showConfig(id resource.ID, cfg coreconfig.Provider) {
	if cfg == nil {
		s.Unset(config.MachineConfigType, id)

		return
	}

	s.Renew(config.NewMachineConfigWithID(cfg, id))
}

func (s *Store) setLiveConfig(live coreconfig.Provider) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.live.config = nil

	if live != nil {
		s.live.config = live
	}

	if version := kubernetesVersion(s.live.config); version != "" && version != s.identity.KubernetesVersion {
		s.identity.KubernetesVersion = version
		must(s.showRecorded())
	}
}

// SetMachineType says what the config makes of the node; TypeUnknown before there is one.
func (s *Store) SetMachineType(typ machine.Type) {
	r := config.NewMachineType()
	r.SetMachineType(typ)
	s.Set(r)
}

// SetService shows one service. Healthy counts only where the service has a health check; unknown says that it has not.
func (s *Store) SetService(id string, spec v1alpha1.ServiceSpec) {
	r := v1alpha1.NewService(id)
	*r.TypedSpec() = spec
	s.Set(r)

	if !spec.Running {
		s.Unset(runtime.ServicePIDType, id)

		return
	}

	pid := runtime.NewServicePID(id)
	pid.TypedSpec().PID = servicePID(id)
	pid.TypedSpec().MountNamespace = "mnt:[4026532389]"
	s.Set(pid)
}

// servicePID makes up a stable process ID for a service.
func servicePID(id string) int32 {
	pid := int32(1)
	if id == "machined" {
		return pid
	}

	for _, c := range id {
		pid = (pid*31 + c) & 0xfff
	}

	return pid + 2
}

// SetTimeStatus says whether the clock is in sync.
func (s *Store) SetTimeStatus(spec time.StatusSpec) {
	s.Set(withSpec(time.NewStatus(), spec))
}

// SetExtensions shows the installed system extensions, by index as a real node numbers them.
func (s *Store) SetExtensions(extensions ...runtime.ExtensionStatusSpec) {
	show(s, runtime.ExtensionStatusType, slices.All(extensions),
		func(i int, spec runtime.ExtensionStatusSpec) resource.Resource {
			return withSpec(runtime.NewExtensionStatus(runtime.NamespaceName, strconv.Itoa(i)), spec)
		})
}

// SetSecurityState shows what the firmware and the kernel have verified.
func (s *Store) SetSecurityState(spec runtime.SecurityStateSpec) {
	s.Set(withSpec(runtime.NewSecurityStateSpec(runtime.NamespaceName), spec))
}

// SetPlatformMetadata shows what the platform says about the machine.
func (s *Store) SetPlatformMetadata(spec runtime.PlatformMetadataSpec) {
	s.Set(withSpec(runtime.NewPlatformMetadataSpec(runtime.NamespaceName, runtime.PlatformMetadataID), spec))
}

// SetBootedEntry shows which boot entry is running.
func (s *Store) SetBootedEntry(entry string) {
	r := runtime.NewBootedEntrySpec()
	r.TypedSpec().BootedEntry = entry
	s.Set(r)
}

// SetMetaKeys shows the values in the META partition by key.
func (s *Store) SetMetaKeys(values map[uint8]string) {
	show(s, runtime.MetaKeyType, maps.All(values), func(key uint8, value string) resource.Resource {
		return withSpec(runtime.NewMetaKey(runtime.NamespaceName, runtime.MetaKeyTagToID(key)),
			runtime.MetaKeySpec{Value: value})
	})
}
