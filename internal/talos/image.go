package talos

import (
	"context"
	"strings"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/siderolabs/talos/pkg/machinery/resources/etcd"

	"github.com/talos-operator/talos-operator/internal/text"
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

	image := text.Name(spec.TypedSpec().Image)

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
	all, err := n.listed(ctx, systemImages())
	if err != nil {
		return nil, err
	}

	out := make([]string, 0, len(all))
	for _, image := range all {
		out = append(out, image.name)
	}

	return out, nil
}

// title returns the last part of an image reference without its tag and digest: containerd completes the rest, and
// mirrors change it.
func title(image string) string {
	image, _, _ = strings.Cut(image, "@")
	image = image[strings.LastIndex(image, "/")+1:]
	image, _, _ = strings.Cut(image, ":")

	return image
}
