package cosi

import (
	"slices"

	"github.com/cosi-project/runtime/pkg/resource/meta"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"
	"github.com/siderolabs/talos/pkg/machinery/resources/cluster"
	"github.com/siderolabs/talos/pkg/machinery/resources/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/cri"
	"github.com/siderolabs/talos/pkg/machinery/resources/etcd"
	"github.com/siderolabs/talos/pkg/machinery/resources/files"
	"github.com/siderolabs/talos/pkg/machinery/resources/hardware"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	"github.com/siderolabs/talos/pkg/machinery/resources/kubeaccess"
	"github.com/siderolabs/talos/pkg/machinery/resources/kubespan"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
	"github.com/siderolabs/talos/pkg/machinery/resources/perf"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"github.com/siderolabs/talos/pkg/machinery/resources/secrets"
	"github.com/siderolabs/talos/pkg/machinery/resources/security"
	"github.com/siderolabs/talos/pkg/machinery/resources/siderolink"
	"github.com/siderolabs/talos/pkg/machinery/resources/time"
	"github.com/siderolabs/talos/pkg/machinery/resources/v1alpha1"
)

// types lists every resource type that a Talos v1.13 node registers. The machinery library knows each type's namespace
// and sensitivity; that this list is complete is checked against the recordings of real nodes.
func types() []meta.ResourceWithRD {
	return slices.Concat(
		blockTypes(),
		clusterTypes(),
		configTypes(),
		criTypes(),
		etcdTypes(),
		filesTypes(),
		hardwareTypes(),
		k8sTypes(),
		kubeaccessTypes(),
		kubespanTypes(),
		networkTypes(),
		perfTypes(),
		runtimeTypes(),
		secretsTypes(),
		securityTypes(),
		siderolinkTypes(),
		timeTypes(),
		v1alpha1Types(),
	)
}

func blockTypes() []meta.ResourceWithRD {
	return []meta.ResourceWithRD{
		&block.Device{},
		&block.DiscoveredVolume{},
		&block.DiscoveryRefreshRequest{},
		&block.DiscoveryRefreshStatus{},
		&block.Disk{},
		&block.MountRequest{},
		&block.MountStatus{},
		&block.SwapStatus{},
		&block.Symlink{},
		&block.SystemDisk{},
		&block.UserDiskConfigStatus{},
		&block.VolumeConfig{},
		&block.VolumeLifecycle{},
		&block.VolumeMountRequest{},
		&block.VolumeMountStatus{},
		&block.VolumeStatus{},
		&block.ZswapStatus{},
	}
}

func clusterTypes() []meta.ResourceWithRD {
	return []meta.ResourceWithRD{
		&cluster.Affiliate{},
		&cluster.Config{},
		&cluster.Identity{},
		&cluster.Info{},
		&cluster.Member{},
	}
}

func configTypes() []meta.ResourceWithRD {
	return []meta.ResourceWithRD{
		&config.MachineConfig{},
		&config.MachineType{},
	}
}

func criTypes() []meta.ResourceWithRD {
	return []meta.ResourceWithRD{
		&cri.ImageCacheConfig{},
		&cri.RegistriesConfig{},
		&cri.SeccompProfile{},
	}
}

func etcdTypes() []meta.ResourceWithRD {
	return []meta.ResourceWithRD{
		&etcd.Config{},
		&etcd.Member{},
		&etcd.PKIStatus{},
		&etcd.Spec{},
	}
}

func filesTypes() []meta.ResourceWithRD {
	return []meta.ResourceWithRD{
		&files.EtcFileSpec{},
		&files.EtcFileStatus{},
	}
}

func hardwareTypes() []meta.ResourceWithRD {
	return []meta.ResourceWithRD{
		&hardware.MemoryModule{},
		&hardware.PCIDevice{},
		&hardware.PCIDriverRebindConfig{},
		&hardware.PCIDriverRebindStatus{},
		&hardware.PCRStatus{},
		&hardware.Processor{},
		&hardware.SystemInformation{},
	}
}

func k8sTypes() []meta.ResourceWithRD {
	return []meta.ResourceWithRD{
		&k8s.AdmissionControlConfig{},
		&k8s.APIServerConfig{},
		&k8s.AuditPolicyConfig{},
		&k8s.AuthorizationConfig{},
		&k8s.BootstrapManifestsConfig{},
		&k8s.ConfigStatus{},
		&k8s.ControllerManagerConfig{},
		&k8s.Endpoint{},
		&k8s.ExtraManifestsConfig{},
		&k8s.KubeletConfig{},
		&k8s.KubeletKubeconfig{},
		&k8s.KubeletLifecycle{},
		&k8s.KubeletSpec{},
		&k8s.KubePrismConfig{},
		&k8s.KubePrismEndpoints{},
		&k8s.KubePrismStatuses{},
		&k8s.Manifest{},
		&k8s.ManifestStatus{},
		&k8s.NodeAnnotationSpec{},
		&k8s.NodeCordonedSpec{},
		&k8s.NodeIP{},
		&k8s.NodeIPConfig{},
		&k8s.NodeLabelSpec{},
		&k8s.Nodename{},
		&k8s.NodeStatus{},
		&k8s.NodeTaintSpec{},
		&k8s.SchedulerConfig{},
		&k8s.SecretsStatus{},
		&k8s.StaticPod{},
		&k8s.StaticPodServerStatus{},
		&k8s.StaticPodStatus{},
	}
}

func kubeaccessTypes() []meta.ResourceWithRD {
	return []meta.ResourceWithRD{
		&kubeaccess.Config{},
	}
}

func kubespanTypes() []meta.ResourceWithRD {
	return []meta.ResourceWithRD{
		&kubespan.Config{},
		&kubespan.Endpoint{},
		&kubespan.Identity{},
		&kubespan.PeerSpec{},
		&kubespan.PeerStatus{},
	}
}

func networkTypes() []meta.ResourceWithRD {
	return []meta.ResourceWithRD{
		&network.AddressSpec{},
		&network.AddressStatus{},
		&network.DeviceConfigSpec{},
		&network.DNSResolveCache{},
		&network.DNSUpstream{},
		&network.EthernetSpec{},
		&network.EthernetStatus{},
		&network.HardwareAddr{},
		&network.HostDNSConfig{},
		&network.HostnameSpec{},
		&network.HostnameStatus{},
		&network.LinkAliasSpec{},
		&network.LinkRefresh{},
		&network.LinkSpec{},
		&network.LinkStatus{},
		&network.NfTablesChain{},
		&network.NodeAddress{},
		&network.NodeAddressFilter{},
		&network.NodeAddressSortAlgorithm{},
		&network.OperatorSpec{},
		&network.PlatformConfig{},
		&network.ProbeSpec{},
		&network.ProbeStatus{},
		&network.ResolverSpec{},
		&network.ResolverStatus{},
		&network.RouteSpec{},
		&network.RouteStatus{},
		&network.RoutingRuleSpec{},
		&network.RoutingRuleStatus{},
		&network.Status{},
		&network.TimeServerSpec{},
		&network.TimeServerStatus{},
	}
}

func perfTypes() []meta.ResourceWithRD {
	return []meta.ResourceWithRD{
		&perf.CPU{},
		&perf.Memory{},
	}
}

func runtimeTypes() []meta.ResourceWithRD {
	return []meta.ResourceWithRD{
		&runtime.APIServiceConfig{},
		&runtime.BootedEntry{},
		&runtime.DevicesStatus{},
		&runtime.Diagnostic{},
		&runtime.Environment{},
		&runtime.EventSinkConfig{},
		&runtime.ExtensionServiceConfig{},
		&runtime.ExtensionServiceConfigStatus{},
		&runtime.ExtensionStatus{},
		&runtime.KernelCmdline{},
		&runtime.KernelModuleSpec{},
		&runtime.KernelParamDefaultSpec{},
		&runtime.KernelParamSpec{},
		&runtime.KernelParamStatus{},
		&runtime.KmsgLogConfig{},
		&runtime.LoadedKernelModule{},
		&runtime.MachineResetSignal{},
		&runtime.MachineStatus{},
		&runtime.MaintenanceServiceConfig{},
		&runtime.MaintenanceServiceRequest{},
		&runtime.MetaKey{},
		&runtime.MetaLoaded{},
		&runtime.MountStatus{},
		&runtime.OOMAction{},
		&runtime.PlatformMetadata{},
		&runtime.SBOMItem{},
		&runtime.SecurityState{},
		&runtime.ServicePID{},
		&runtime.UniqueMachineToken{},
		&runtime.Version{},
		&runtime.WatchdogTimerConfig{},
		&runtime.WatchdogTimerStatus{},
	}
}

func secretsTypes() []meta.ResourceWithRD {
	return []meta.ResourceWithRD{
		&secrets.API{},
		&secrets.CertSAN{},
		&secrets.EncryptionSalt{},
		&secrets.Etcd{},
		&secrets.EtcdRoot{},
		&secrets.Kubelet{},
		&secrets.Kubernetes{},
		&secrets.KubernetesDynamicCerts{},
		&secrets.KubernetesRoot{},
		&secrets.MaintenanceRoot{},
		&secrets.OSRoot{},
		&secrets.Trustd{},
	}
}

func securityTypes() []meta.ResourceWithRD {
	return []meta.ResourceWithRD{
		&security.ImageVerificationRule{},
		&security.TUFTrustedRoot{},
	}
}

func siderolinkTypes() []meta.ResourceWithRD {
	return []meta.ResourceWithRD{
		&siderolink.Config{},
		&siderolink.Status{},
		&siderolink.Tunnel{},
	}
}

func timeTypes() []meta.ResourceWithRD {
	return []meta.ResourceWithRD{
		&time.AdjtimeStatus{},
		&time.Status{},
	}
}

func v1alpha1Types() []meta.ResourceWithRD {
	return []meta.ResourceWithRD{
		&v1alpha1.AcquireConfigSpec{},
		&v1alpha1.AcquireConfigStatus{},
		&v1alpha1.Service{},
	}
}
