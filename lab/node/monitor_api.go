package node

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

// uptime is how many seconds the machine has been on.
func (s *session) uptime() uint64 { return uint64(time.Since(s.booted).Seconds()) + 1 }

// Memory implements the MachineService.
func (s machineServer) Memory(context.Context, *emptypb.Empty) (*machine.MemoryResponse, error) {
	total := uint64(s.n.opts.MemoryMiB) << 10

	return &machine.MemoryResponse{Messages: []*machine.Memory{{Meminfo: &machine.MemInfo{
		Memtotal: total, Memfree: total / 2, Memavailable: total * 3 / 4, Buffers: total / 64, Cached: total / 5,
		Active: total / 6, Inactive: total / 8, Slab: total / 32, Committedas: total / 3, Commitlimit: total / 2,
		Hugepagesize: 2048, Vmalloctotal: 34359738367,
	}}}}, nil
}

// LoadAvg implements the MachineService.
func (s machineServer) LoadAvg(context.Context, *emptypb.Empty) (*machine.LoadAvgResponse, error) {
	return &machine.LoadAvgResponse{Messages: []*machine.LoadAvg{{Load1: 0.35, Load5: 0.28, Load15: 0.17}}}, nil
}

// SystemStat implements the MachineService.
func (s machineServer) SystemStat(context.Context, *emptypb.Empty) (*machine.SystemStatResponse, error) {
	up := float64(s.uptime())
	cpu := func() *machine.CPUStat { return &machine.CPUStat{User: up * 0.1, System: up * 0.05, Idle: up * 0.85} }
	stat := &machine.SystemStat{
		BootTime: uint64(s.booted.Unix()), CpuTotal: cpu(), ProcessCreated: 400 + s.uptime(),
		ProcessRunning: 1, ContextSwitches: s.uptime() * 900, IrqTotal: s.uptime() * 400,
	}

	for range s.n.opts.CPUs {
		stat.Cpu = append(stat.Cpu, cpu())
	}

	return &machine.SystemStatResponse{Messages: []*machine.SystemStat{stat}}, nil
}

// CPUInfo implements the MachineService.
func (s machineServer) CPUInfo(context.Context, *emptypb.Empty) (*machine.CPUInfoResponse, error) {
	info := &machine.CPUsInfo{}

	for i := range s.n.opts.CPUs {
		info.CpuInfo = append(info.CpuInfo, &machine.CPUInfo{
			Processor: uint32(i), VendorId: "GenuineLab", ModelName: "Lab Virtual CPU", CpuMhz: 2000,
			CpuCores: uint32(s.n.opts.CPUs), Siblings: uint32(s.n.opts.CPUs), CacheSize: "16384 KB",
			Flags: []string{"fpu", "sse2", "aes", "avx2"},
		})
	}

	return &machine.CPUInfoResponse{Messages: []*machine.CPUsInfo{info}}, nil
}

// CPUFreqStats implements the MachineService.
func (s machineServer) CPUFreqStats(context.Context, *emptypb.Empty) (*machine.CPUFreqStatsResponse, error) {
	stats := &machine.CPUsFreqStats{}

	for range s.n.opts.CPUs {
		stats.CpuFreqStats = append(stats.CpuFreqStats, &machine.CPUFreqStats{
			CurrentFrequency: 2000000, MinimumFrequency: 800000, MaximumFrequency: 2000000, Governor: "performance",
		})
	}

	return &machine.CPUFreqStatsResponse{Messages: []*machine.CPUsFreqStats{stats}}, nil
}

// DiskStats implements the MachineService.
func (s machineServer) DiskStats(context.Context, *emptypb.Empty) (*machine.DiskStatsResponse, error) {
	stats := &machine.DiskStats{Total: &machine.DiskStat{Name: "total"}}

	for _, d := range s.n.disks() {
		stats.Devices = append(stats.Devices, &machine.DiskStat{
			Name: d.Name, ReadCompleted: s.uptime() * 3, ReadSectors: s.uptime() * 90, WriteCompleted: s.uptime() * 5,
			WriteSectors: s.uptime() * 160,
		})
		stats.Total.ReadCompleted += s.uptime() * 3
		stats.Total.WriteCompleted += s.uptime() * 5
	}

	return &machine.DiskStatsResponse{Messages: []*machine.DiskStats{stats}}, nil
}

// NetworkDeviceStats implements the MachineService.
func (s machineServer) NetworkDeviceStats(
	context.Context, *emptypb.Empty,
) (*machine.NetworkDeviceStatsResponse, error) {
	dev := func(name string) *machine.NetDev {
		return &machine.NetDev{
			Name: name, RxBytes: s.uptime() * 4096, RxPackets: s.uptime() * 12, TxBytes: s.uptime() * 3072,
			TxPackets: s.uptime() * 10,
		}
	}

	return &machine.NetworkDeviceStatsResponse{Messages: []*machine.NetworkDeviceStats{{
		Total: dev("total"), Devices: []*machine.NetDev{dev("lo"), dev("eth0")},
	}}}, nil
}

// Netstat implements the MachineService.
func (s machineServer) Netstat(context.Context, *machine.NetstatRequest) (*machine.NetstatResponse, error) {
	ports := []uint32{50000}
	if s.localMember() != nil {
		ports = append(ports, 2379, 2380)
	}

	var records []*machine.ConnectRecord

	for _, port := range ports {
		records = append(records, &machine.ConnectRecord{
			L4Proto: "tcp", Localip: s.n.Address(), Localport: port, Remoteip: "0.0.0.0",
			State: machine.ConnectRecord_LISTEN, Process: &machine.ConnectRecord_Process{Pid: 1, Name: "machined"},
		})
	}

	return &machine.NetstatResponse{Messages: []*machine.Netstat{{Connectrecord: records}}}, nil
}

// Processes implements the MachineService.
func (s machineServer) Processes(context.Context, *emptypb.Empty) (*machine.ProcessesResponse, error) {
	var list []*machine.ProcessInfo

	for _, st := range s.services.Statuses() {
		if !st.Running() {
			continue
		}

		pid := s.pid(st.ID)
		if st.ID == svcMachined {
			pid = 1
		}

		list = append(list, &machine.ProcessInfo{
			Pid: int32(pid), Ppid: 1, State: "S", Threads: 12, CpuTime: float64(s.uptime()) / 50,
			VirtualMemory: 1 << 30, ResidentMemory: 48 << 20, Command: st.ID, Executable: "/usr/bin/" + st.ID,
			Args: "/usr/bin/" + st.ID,
		})
	}

	return &machine.ProcessesResponse{Messages: []*machine.Process{{Processes: list}}}, nil
}

// Mounts implements the MachineService.
func (s machineServer) Mounts(context.Context, *emptypb.Empty) (*machine.MountsResponse, error) {
	mounts := &machine.Mounts{Stats: []*machine.MountStat{
		{Filesystem: "rootfs", MountedOn: "/"},
		{Filesystem: "proc", MountedOn: "/proc"},
		{Filesystem: "sysfs", MountedOn: "/sys"},
		{Filesystem: "tmpfs", MountedOn: "/run", Size: 1 << 28, Available: 1 << 27},
	}}

	if name := s.systemDisk(); name != "" && !s.inMaintenance() {
		size := uint64(0)

		for _, d := range s.n.disks() {
			if d.Name == name {
				size = d.Size
			}
		}

		mounts.Stats = append(
			mounts.Stats,
			&machine.MountStat{
				Filesystem: "/dev/" + name + "5",
				MountedOn:  "/system/state",
				Size:       100 << 20,
				Available:  90 << 20,
			},
			&machine.MountStat{Filesystem: "/dev/" + name + "6", MountedOn: "/var", Size: size, Available: size / 4 * 3},
		)
	}

	return &machine.MountsResponse{Messages: []*machine.Mounts{mounts}}, nil
}

// PacketCapture implements the MachineService. There is nothing to capture: the stream stays empty while it lasts.
func (s machineServer) PacketCapture(
	req *machine.PacketCaptureRequest, srv grpc.ServerStreamingServer[common.Data],
) error {
	if req.GetInterface() != "eth0" && req.GetInterface() != "lo" {
		return status.Errorf(codes.NotFound, "interface %q not found", req.GetInterface())
	}

	ctx, cancel := s.callContext(srv.Context())
	defer cancel()

	<-ctx.Done()

	return ctx.Err()
}

// osRelease is the content of /etc/os-release.
func (s *session) osRelease() string {
	return fmt.Sprintf("NAME=\"Talos\"\nID=talos\nVERSION_ID=%[1]s\nPRETTY_NAME=\"Talos (%[1]s)\"\n"+
		"HOME_URL=\"https://www.talos.dev/\"\nARCH=%[2]s\n", s.tag, runtime.GOARCH)
}
