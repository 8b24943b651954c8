package apid

import (
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/role"
)

// Sets of roles that Talos allows for its calls.
var (
	admins    = role.MakeSet(role.Admin)
	operators = role.MakeSet(role.Admin, role.Operator)
	viewers   = role.MakeSet(role.Admin, role.Operator, role.Reader)
	etcdViews = role.MakeSet(role.Admin, role.Operator, role.Reader, role.EtcdBackup)
	backups   = role.MakeSet(role.Admin, role.Operator, role.EtcdBackup)
	verifiers = role.MakeSet(role.Admin, role.Operator, role.Reader, role.ImageVerifier)
	metas     = role.MakeSet(role.Admin, role.MetaWriter)
)

// rules says who may call what. A method that is not listed is for administrators.
var rules = makeRules()

// maintenanceMethods are allowed to everybody in maintenance mode beside what readers may call.
var maintenanceMethods = map[string]bool{
	machine.MachineService_ApplyConfiguration_FullMethodName: true,
	"/storage.StorageService/BlockDeviceWipe":                true,
}

func makeRules() map[string]role.Set {
	out := map[string]role.Set{}

	add := func(service string, allowed role.Set, methods string) {
		for method := range strings.FieldsSeq(methods) {
			out["/"+service+"/"+method] = allowed
		}
	}

	const machineService = "machine.MachineService"

	add(machineService, viewers, `Containers CPUFreqStats CPUInfo DiskStats DiskUsage Dmesg Events Hostname ImageList
		List LoadAvg Logs LogsContainers Memory Mounts Netstat NetworkDeviceStats Processes ServiceList Stats SystemStat
		Version`)
	add(machineService, etcdViews, "EtcdAlarmList EtcdMemberList EtcdStatus")
	add(machineService, backups, "EtcdSnapshot")
	add(machineService, operators, `EtcdAlarmDisarm EtcdDefragment ImagePull PacketCapture Reboot Restart ServiceRestart
		ServiceStart ServiceStop Shutdown`)
	add(machineService, metas, "MetaDelete MetaWrite")
	add("machine.ImageService", viewers, "List")
	add("machine.ImageService", operators, "Pull")
	add("machine.ImageService", verifiers, "Verify")
	add("cluster.ClusterService", viewers, "HealthCheck")
	add("inspect.InspectService", viewers, "ControllerRuntimeDependencies")
	add("storage.StorageService", viewers, "Disks")
	add("time.TimeService", viewers, "Time TimeCheck")
	add("cosi.resource.State", viewers, "Get List Watch")

	return out
}

// mutatingMethods change a node, its etcd or its cluster.
var mutatingMethods = makeMutating()

func makeMutating() map[string]bool {
	out := map[string]bool{}

	add := func(service, methods string) {
		for method := range strings.FieldsSeq(methods) {
			out["/"+service+"/"+method] = true
		}
	}

	add("machine.MachineService", `ApplyConfiguration Bootstrap EtcdAlarmDisarm EtcdDefragment EtcdDowngradeCancel
		EtcdDowngradeEnable EtcdForfeitLeadership EtcdLeaveCluster EtcdRecover EtcdRemoveMemberByID
		ImagePull MetaDelete MetaWrite Reboot Reset Restart Rollback ServiceRestart ServiceStart ServiceStop Shutdown
		Upgrade`)
	add("machine.ImageService", "Import Pull Remove")
	add("machine.LifecycleService", "Install Upgrade")
	add("machine.DebugService", "ContainerRun")
	add("storage.StorageService", "BlockDeviceWipe")
	add("cosi.resource.State", "Create Update Destroy")

	return out
}

// isMutating says whether a call changes anything. A dry run does not.
func isMutating(method string, request any) bool {
	if apply, ok := request.(*machine.ApplyConfigurationRequest); ok && apply.GetDryRun() {
		return false
	}

	return mutatingMethods[method]
}
