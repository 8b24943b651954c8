package node

import (
	"context"
	"strings"

	"github.com/siderolabs/gen/xslices"
	"github.com/siderolabs/talos/pkg/machinery/api/storage"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/talos-operator/talos-operator/lab/apid"
)

// storageServer serves the StorageService.
type storageServer struct {
	storage.UnimplementedStorageServiceServer
	*session
}

// Disks implements the StorageService.
func (s storageServer) Disks(context.Context, *emptypb.Empty) (*storage.DisksResponse, error) {
	system := s.systemDisk()

	return &storage.DisksResponse{Messages: []*storage.Disks{{
		Disks: xslices.Map(s.n.disks(), func(d Disk) *storage.Disk {
			return &storage.Disk{
				DeviceName: "/dev/" + d.Name, Model: d.Model, Size: d.Size, Serial: d.Serial, Wwid: d.WWID, Type: d.Kind(),
				BusPath: d.BusPath, SystemDisk: d.Name == system, Subsystem: "/sys/class/block", Readonly: d.Readonly,
			}
		}),
	}}}, nil
}

// BlockDeviceWipe implements the StorageService.
func (s storageServer) BlockDeviceWipe(
	ctx context.Context, req *storage.BlockDeviceWipeRequest,
) (*storage.BlockDeviceWipeResponse, error) {
	if !s.inMaintenance() && !apid.Roles(ctx).Includes(role.Admin) {
		return nil, errNotAuthorized
	}

	for _, device := range req.GetDevices() {
		if err := s.checkWipe(device); err != nil {
			return nil, err
		}
	}

	for _, device := range req.GetDevices() {
		if err := s.n.wipeDisks(s.parentDisk(device.GetDevice())); err != nil {
			return nil, err
		}
	}

	s.showDisks()

	return &storage.BlockDeviceWipeResponse{Messages: []*storage.BlockDeviceWipe{{}}}, nil
}

// parentDisk is the disk that a block device is, or is a partition of; empty when there is none.
func (s *session) parentDisk(device string) string {
	for _, d := range s.n.disks() {
		if d.Name == device || strings.HasPrefix(device, d.Name) && s.isPartition(d, device) {
			return d.Name
		}
	}

	return ""
}

func (s *session) isPartition(d Disk, device string) bool {
	number := strings.TrimPrefix(strings.TrimPrefix(device, d.Name), "p")

	return number != "" && strings.Trim(number, "0123456789") == "" && (len(d.Content) > 0 || d.Name == s.systemDisk())
}

func (s *session) checkWipe(req *storage.BlockDeviceWipeDescriptor) error {
	name := s.parentDisk(req.GetDevice())
	if name == "" {
		return status.Errorf(codes.NotFound, "blockdevice %q not found", req.GetDevice())
	}

	s.n.mu.Lock()
	d := *s.n.hw.Disk(name)
	s.n.mu.Unlock()

	switch {
	case d.Readonly:
		return status.Errorf(codes.FailedPrecondition, "blockdevice %q is read-only", req.GetDevice())
	case d.CDROM:
		return status.Errorf(codes.FailedPrecondition, "blockdevice %q is a CD-ROM", req.GetDevice())
	case name == s.systemDisk() && !req.GetSkipVolumeCheck():
		return status.Errorf(codes.FailedPrecondition, "blockdevice %q is in use by volume %q", req.GetDevice(), "META")
	case name == s.systemDisk():
		return status.Errorf(codes.FailedPrecondition, "block device %q is mounted or in use", req.GetDevice())
	}

	return nil
}
