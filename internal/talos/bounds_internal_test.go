package talos

import (
	"errors"
	"strings"
	"testing"

	cosiv1alpha1 "github.com/cosi-project/runtime/api/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"
	"github.com/siderolabs/talos/pkg/machinery/resources/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"
)

// endless is a stream without an end.
type endless struct {
	grpc.ClientStream

	bring func(any)
}

func (e endless) RecvMsg(m any) error {
	if e.bring != nil {
		e.bring(m)
	}

	return nil
}

// TestListBounds: a list ends after as many items as it may have, however long they take.
func TestListBounds(t *testing.T) {
	t.Parallel()

	for typ, want := range map[string]int{
		block.DiscoveredVolumeType: 4096, block.DiskType: 2048, config.MachineConfigType: 8, "another": 256,
	} {
		s := bounded(endless{}, cosiv1alpha1.State_List_FullMethodName, &cosiv1alpha1.ListRequest{Type: typ})

		var err error

		read := 0
		for ; err == nil && read < 10_000; read++ {
			err = s.RecvMsg(&cosiv1alpha1.ListResponse{})
		}

		if !errors.Is(err, ErrTooMuch) || read != want+1 {
			t.Errorf("%s: %d items, %v", typ, read, err)
		}
	}
}

// TestStreamBounds: a snapshot, a file, and a stream of any other call, such as logs and events, end after as many bytes as
// they may have.
func TestStreamBounds(t *testing.T) {
	t.Parallel()

	part := &common.Data{Bytes: make([]byte, mib-64)}

	for method, want := range map[string]int64{
		machineapi.MachineService_EtcdSnapshot_FullMethodName: 16 << 30, machineapi.MachineService_Copy_FullMethodName: 16 << 30,
		machineapi.MachineService_Read_FullMethodName: mib, machineapi.MachineService_Logs_FullMethodName: mib,
		machineapi.MachineService_Dmesg_FullMethodName: mib, machineapi.MachineService_Events_FullMethodName: mib,
		machineapi.MachineService_PacketCapture_FullMethodName: mib, "/later.Service/Call": mib,
	} {
		s := bounded(endless{}, method, nil)

		var err error

		read := int64(0)
		for err == nil && read < 32<<30 {
			err = s.RecvMsg(part)
			read += size(part)
		}

		if !errors.Is(err, ErrTooMuch) || read <= want || read > want+size(part) {
			t.Errorf("%s: %d bytes, %v", method, read, err)
		}
	}
}

// TestWatchBounds: the events of one message count one by one.
func TestWatchBounds(t *testing.T) {
	t.Parallel()

	events := make([]*cosiv1alpha1.Event, watchBurst/2+1)
	s := bounded(endless{bring: func(m any) {
		m.(*cosiv1alpha1.WatchResponse).Event = events
	}}, cosiv1alpha1.State_Watch_FullMethodName, &cosiv1alpha1.WatchRequest{})

	read := 0
	for ; read < 100 && s.RecvMsg(&cosiv1alpha1.WatchResponse{}) == nil; read++ {
		continue
	}

	if read == 0 || read == 100 {
		t.Errorf("%d messages of %d events were read", read, len(events))
	}
}

// TestMessageBounds: only what is large on real nodes may be.
func TestMessageBounds(t *testing.T) {
	t.Parallel()

	for name, tc := range map[string]struct {
		method string
		req    any
		most   int
	}{
		"memory":       {machineapi.MachineService_Memory_FullMethodName, &emptypb.Empty{}, smallMessage},
		"containers":   {machineapi.MachineService_Containers_FullMethodName, &machineapi.ContainersRequest{}, longMessage},
		"a status":     {"", &cosiv1alpha1.GetRequest{Type: runtime.MachineStatusType}, smallMessage},
		"a config":     {"", &cosiv1alpha1.GetRequest{Type: config.MachineConfigType}, maxMessage},
		"disks":        {"", &cosiv1alpha1.ListRequest{Type: block.DiskType}, smallMessage},
		"a watch":      {"", &cosiv1alpha1.WatchRequest{Type: runtime.MachineStatusType}, smallMessage},
		"a new config": {"", &machineapi.ApplyConfigurationRequest{Data: make([]byte, mib)}, appliedMessage},
		"a dry run": {
			"", &machineapi.ApplyConfigurationRequest{Data: make([]byte, mib), DryRun: true}, diffMessage + 2*mib,
		},
		"a file": {machineapi.MachineService_Read_FullMethodName, &machineapi.ReadRequest{}, partMessage},
	} {
		if got := messageBound(tc.method, tc.req); got != tc.most {
			t.Errorf("%s: %d bytes, not %d", name, got, tc.most)
		}
	}
}

// TestBootID: what a status does not take is not a boot ID.
func TestBootID(t *testing.T) {
	t.Parallel()

	for text, good := range map[string]bool{
		"6f9c1c8e-0d4c-4a52-9d3e-3a8b7c5d2e1f\n": true, "": false, "\n": false, strings.Repeat("x", 65): false,
	} {
		if id, err := readBootID([]byte(text)); (err == nil) != good || good && id != strings.TrimSpace(text) {
			t.Errorf("%q: %q, %v", text, id, err)
		}
	}
}
