package node

import (
	"context"
	"fmt"
	"runtime"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/talos-operator/talos-operator/lab/node/api"
)

// uptime is how many seconds the machine has been on.
func (s *session) uptime() uint64 { return api.Uptime(s.booted) }

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
			&machine.MountStat{
				Filesystem: "/dev/" + name + "6",
				MountedOn:  "/var",
				Size:       size,
				Available:  s.n.freeSpace(size),
			},
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
