package node

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/talos-operator/talos-operator/lab/node/image"
	"github.com/talos-operator/talos-operator/lab/node/pace"
)

// imageServer serves the ImageService.
type imageServer struct {
	machine.UnimplementedImageServiceServer
	*session
}

// imageSize is the size of every image of the lab.
const imageSize = 64 << 20

// present lists the images in a node's containerd.
func (s *session) present() []string {
	cfg, ok := s.complete()
	if !ok {
		return s.images.List()
	}

	own := []string{cfg.Machine().Kubelet().Image()}

	if cfg.Machine().Type().IsControlPlane() {
		own = append(own, cfg.Cluster().APIServer().Image())

		if !s.pulling.Load() {
			own = append(own, cfg.Cluster().Etcd().Image())
		}
	}

	return s.images.List(own...)
}

func checkInstance(c *common.ContainerdInstance) error {
	if c.GetNamespace() != common.ContainerdNamespace_NS_CRI && c.GetNamespace() != common.ContainerdNamespace_NS_SYSTEM {
		return status.Errorf(codes.InvalidArgument, "invalid containerd namespace %s", c.GetNamespace())
	}

	return nil
}

// imagesOf returns the images of a containerd: that which keeps them in memory, for machines without a disk, has none
// of what Talos and the kubelet run.
func (s *session) imagesOf(c *common.ContainerdInstance) *image.Store {
	if c.GetDriver() == common.ContainerDriver_CONTAINERD {
		return &s.memory
	}

	return &s.images
}

// List implements the ImageService.
func (s imageServer) List(
	req *machine.ImageServiceListRequest, srv grpc.ServerStreamingServer[machine.ImageServiceListResponse],
) error {
	if err := checkInstance(req.GetContainerd()); err != nil {
		return err
	}

	all := s.present()
	if store := s.imagesOf(req.GetContainerd()); store == &s.memory {
		all = store.List()
	}

	for _, ref := range all {
		name, digest := image.Listed(ref)

		if err := srv.Send(&machine.ImageServiceListResponse{
			Name: name, Digest: digest, Size: imageSize, CreatedAt: timestamppb.New(s.booted),
		}); err != nil {
			return err
		}
	}

	return nil
}

// Pull implements the ImageService.
func (s imageServer) Pull(
	req *machine.ImageServicePullRequest, srv grpc.ServerStreamingServer[machine.ImageServicePullResponse],
) error {
	if err := checkInstance(req.GetContainerd()); err != nil {
		return err
	}

	if err := image.CheckPull(req.GetImageRef()); err != nil {
		return status.Errorf(codes.NotFound, "error pulling image: %s", err)
	}

	for i := range 2 {
		if err := srv.Send(&machine.ImageServicePullResponse{Response: &machine.ImageServicePullResponse_PullProgress{
			PullProgress: &machine.ImageServicePullProgress{
				LayerId: image.Digest(req.GetImageRef())[:19],
				Progress: &machine.ImageServicePullLayerProgress{
					Status: machine.ImageServicePullLayerProgress_DOWNLOADING, Elapsed: durationpb.New(s.n.pace.Lasts(pace.Pull)),
					Offset: int64(i+1) * imageSize / 2, Total: imageSize,
				},
			},
		}}); err != nil {
			return err
		}

		if err := s.spend(srv.Context(), pace.Pull); err != nil {
			return err
		}
	}

	if store := s.imagesOf(req.GetContainerd()); store == &s.memory {
		store.Add(req.GetImageRef())
	} else if err := s.storeImage(req.GetImageRef()); err != nil {
		return err
	}

	return srv.Send(&machine.ImageServicePullResponse{
		Response: &machine.ImageServicePullResponse_Name{Name: image.Canonical(req.GetImageRef())},
	})
}

// Import implements the ImageService. The lab has no archives of images to read.
func (s imageServer) Import(
	srv grpc.ClientStreamingServer[machine.ImageServiceImportRequest, machine.ImageServiceImportResponse],
) error {
	first, err := srv.Recv()
	if err != nil {
		return err
	}

	if first.GetContainerd() == nil {
		return status.Error(codes.InvalidArgument, "containerd instance is required")
	}

	if err := checkInstance(first.GetContainerd()); err != nil {
		return err
	}

	size := 0

	for {
		msg, err := srv.Recv()
		if errors.Is(err, io.EOF) {
			break
		}

		if err != nil {
			return err
		}

		size += len(msg.GetImageChunk().GetBytes())
	}

	if size == 0 {
		return status.Error(codes.InvalidArgument, "no images imported from archive")
	}

	name := fmt.Sprintf("imported.local/archive:%d", size)
	s.imagesOf(first.GetContainerd()).Add(name)

	return srv.SendAndClose(&machine.ImageServiceImportResponse{Name: name})
}

// Remove implements the ImageService.
func (s imageServer) Remove(_ context.Context, req *machine.ImageServiceRemoveRequest) (*emptypb.Empty, error) {
	if err := checkInstance(req.GetContainerd()); err != nil {
		return nil, err
	}

	if !s.imagesOf(req.GetContainerd()).Remove(req.GetImageRef()) {
		return nil, status.Errorf(codes.NotFound, "image %s not found", req.GetImageRef())
	}

	return &emptypb.Empty{}, nil
}

// Verify implements the ImageService. No image is verified where the config asks for no verification.
func (s imageServer) Verify(
	_ context.Context, req *machine.ImageServiceVerifyRequest,
) (*machine.ImageServiceVerifyResponse, error) {
	if req.GetImageRef() == "" {
		return nil, status.Errorf(codes.InvalidArgument, "image reference is invalid: could not parse reference: %s",
			req.GetImageRef())
	}

	return &machine.ImageServiceVerifyResponse{}, nil
}

func checkNamespace(ns common.ContainerdNamespace) error {
	if ns != common.ContainerdNamespace_NS_CRI && ns != common.ContainerdNamespace_NS_SYSTEM {
		return status.Errorf(codes.InvalidArgument, "invalid namespace %s", ns)
	}

	return nil
}

// ImageList implements the MachineService.
func (s machineServer) ImageList(
	req *machine.ImageListRequest, srv grpc.ServerStreamingServer[machine.ImageListResponse],
) error {
	if err := checkNamespace(req.GetNamespace()); err != nil {
		return err
	}

	for _, ref := range s.present() {
		name, digest := image.Listed(ref)

		if err := srv.Send(&machine.ImageListResponse{
			Name: name, Digest: digest, Size: imageSize, CreatedAt: timestamppb.New(s.booted),
		}); err != nil {
			return err
		}
	}

	return nil
}

// ImagePull implements the MachineService.
func (s machineServer) ImagePull(
	ctx context.Context,
	req *machine.ImagePullRequest,
) (*machine.ImagePullResponse, error) {
	if err := checkNamespace(req.GetNamespace()); err != nil {
		return nil, err
	}

	if err := image.CheckPull(req.GetReference()); err != nil {
		return nil, status.Errorf(codes.NotFound, "error pulling image: %s", err)
	}

	if err := s.spend(ctx, pace.Pull); err != nil {
		return nil, err
	}

	if err := s.storeImage(req.GetReference()); err != nil {
		return nil, err
	}

	return &machine.ImagePullResponse{Messages: []*machine.ImagePull{{}}}, nil
}
