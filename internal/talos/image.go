package talos

import (
	"context"
	"errors"
	"io"
	"strings"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/resources/etcd"
)

// MissingEtcdImage returns the image that the node's etcd needs and the node does not have; empty if the node has it,
// or if that is unknown. In the state Preparing, the service pulls the image, or waits for a bootstrap or for members
// to join: the state alone does not tell which.
func (n *Node) MissingEtcdImage(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()

	spec, err := safe.ReaderGet[*etcd.Spec](ctx, n.c.COSI, resource.NewMetadata(
		etcd.NamespaceName, etcd.SpecType, etcd.SpecID, resource.VersionUndefined))
	if err != nil {
		if isAbsent(err) {
			return "", nil
		}

		return "", classify("how etcd is run", n.name(), err)
	}

	image := spec.TypedSpec().Image

	images, err := n.images(ctx)
	if err != nil || image == "" || len(images) == 0 {
		return "", err
	}

	for _, have := range images {
		if title(have) == title(image) {
			return "", nil
		}
	}

	return image, nil
}

// images returns the images of Talos' own services.
func (n *Node) images(ctx context.Context) ([]string, error) {
	stream, err := n.c.ImageClient.List(ctx, &machine.ImageServiceListRequest{Containerd: &common.ContainerdInstance{
		Driver: common.ContainerDriver_CRI, Namespace: common.ContainerdNamespace_NS_SYSTEM,
	}})
	if err != nil {
		return nil, classify("its images", n.name(), err)
	}

	var out []string

	for {
		image, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return out, nil
		}

		if err != nil {
			return nil, classify("its images", n.name(), err)
		}

		out = append(out, image.GetName())
	}
}

// title returns the last part of an image reference without its tag and digest: containerd completes the rest, and
// mirrors change it.
func title(image string) string {
	image, _, _ = strings.Cut(image, "@")
	image = image[strings.LastIndex(image, "/")+1:]
	image, _, _ = strings.Cut(image, ":")

	return image
}
