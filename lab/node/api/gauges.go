package api

import (
	"context"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/protobuf/types/known/emptypb"
)

// Gauges serve those calls of the MachineService that measure the machine. The numbers are made up.
type Gauges struct {
	machine.UnimplementedMachineServiceServer

	Booted          time.Time
	CPUs, MemoryMiB int
	// Disks are the device names of the disks.
	Disks func() []string
}

// Uptime is how many seconds a machine has been on.
func Uptime(booted time.Time) uint64 { return uint64(time.Since(booted).Seconds()) + 1 }

func (g Gauges) uptime() uint64 { return Uptime(g.Booted) }

// Memory implements the MachineService.
func (g Gauges) Memory(context.Context, *emptypb.Empty) (*machine.MemoryResponse, error) {
	total := uint64(g.MemoryMiB) << 10

	return &machine.MemoryResponse{Messages: []*machine.Memory{{Meminfo: &machine.MemInfo{
		Memtotal: total, Memfree: total / 2, Memavailable: total * 3 / 4, Buffers: total / 64, Cached: total / 5,
		Active: total / 6, Inactive: total / 8, Slab: total / 32, Committedas: total / 3, Commitlimit: total / 2,
		Hugepagesize: 2048, Vmalloctotal: 34359738367,
	}}}}, nil
}

// LoadAvg implements the MachineService.
func (g Gauges) LoadAvg(context.Context, *emptypb.Empty) (*machine.LoadAvgResponse, error) {
	return &machine.LoadAvgResponse{Messages: []*machine.LoadAvg{{Load1: 0.35, Load5: 0.28, Load15: 0.17}}}, nil
}

// SystemStat implements the MachineService.
func (g Gauges) SystemStat(context.Context, *emptypb.Empty) (*machine.SystemStatResponse, error) {
	up := float64(g.uptime())
	cpu := func() *machine.CPUStat { return &machine.CPUStat{User: up * 0.1, System: up * 0.05, Idle: up * 0.85} }
	stat := &machine.SystemStat{
		BootTime: uint64(g.Booted.Unix()), CpuTotal: cpu(), ProcessCreated: 400 + g.uptime(),
		ProcessRunning: 1, ContextSwitches: g.uptime() * 900, IrqTotal: g.uptime() * 400,
	}

	for range g.CPUs {
		stat.Cpu = append(stat.Cpu, cpu())
	}

	return &machine.SystemStatResponse{Messages: []*machine.SystemStat{stat}}, nil
}

// CPUInfo implements the MachineService.
func (g Gauges) CPUInfo(context.Context, *emptypb.Empty) (*machine.CPUInfoResponse, error) {
	info := &machine.CPUsInfo{}

	for i := range g.CPUs {
		info.CpuInfo = append(info.CpuInfo, &machine.CPUInfo{
			Processor: uint32(i), VendorId: "GenuineLab", ModelName: "Lab Virtual CPU", CpuMhz: 2000,
			CpuCores: uint32(g.CPUs), Siblings: uint32(g.CPUs), CacheSize: "16384 KB",
			Flags: []string{"fpu", "sse2", "aes", "avx2"},
		})
	}

	return &machine.CPUInfoResponse{Messages: []*machine.CPUsInfo{info}}, nil
}

// CPUFreqStats implements the MachineService.
func (g Gauges) CPUFreqStats(context.Context, *emptypb.Empty) (*machine.CPUFreqStatsResponse, error) {
	stats := &machine.CPUsFreqStats{}

	for range g.CPUs {
		stats.CpuFreqStats = append(stats.CpuFreqStats, &machine.CPUFreqStats{
			CurrentFrequency: 2000000, MinimumFrequency: 800000, MaximumFrequency: 2000000, Governor: "performance",
		})
	}

	return &machine.CPUFreqStatsResponse{Messages: []*machine.CPUsFreqStats{stats}}, nil
}

// DiskStats implements the MachineService.
func (g Gauges) DiskStats(context.Context, *emptypb.Empty) (*machine.DiskStatsResponse, error) {
	stats := &machine.DiskStats{Total: &machine.DiskStat{Name: "total"}}

	for _, name := range g.Disks() {
		stats.Devices = append(stats.Devices, &machine.DiskStat{
			Name: name, ReadCompleted: g.uptime() * 3, ReadSectors: g.uptime() * 90, WriteCompleted: g.uptime() * 5,
			WriteSectors: g.uptime() * 160,
		})
		stats.Total.ReadCompleted += g.uptime() * 3
		stats.Total.WriteCompleted += g.uptime() * 5
	}

	return &machine.DiskStatsResponse{Messages: []*machine.DiskStats{stats}}, nil
}

// NetworkDeviceStats implements the MachineService.
func (g Gauges) NetworkDeviceStats(
	context.Context, *emptypb.Empty,
) (*machine.NetworkDeviceStatsResponse, error) {
	dev := func(name string) *machine.NetDev {
		return &machine.NetDev{
			Name: name, RxBytes: g.uptime() * 4096, RxPackets: g.uptime() * 12, TxBytes: g.uptime() * 3072,
			TxPackets: g.uptime() * 10,
		}
	}

	return &machine.NetworkDeviceStatsResponse{Messages: []*machine.NetworkDeviceStats{{
		Total: dev("total"), Devices: []*machine.NetDev{dev("lo"), dev("eth0")},
	}}}, nil
}
