package talos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/distribution/reference"
	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/failure"
)

// WantedImage is an image that a node should have.
type WantedImage struct {
	Name string
	// Pod is set for an image that the kubelet runs as a pod, and not for an installer or the kubelet itself.
	Pod bool
}

func (w WantedImage) instance() *common.ContainerdInstance {
	if w.Pod {
		return podImages()
	}

	return systemImages()
}

// listedImage is an image that a node lists.
type listedImage struct{ name, digest string }

// Fetch has the node pull those images that it does not list, one after the other, through its own mirrors. It returns
// nil only if the node lists each of them, or has pulled it by the call of Talos before 1.13, which returns at the end.
// It changes nothing that runs, and may be repeated.
func (n *Node) Fetch(ctx context.Context, images []WantedImage) error {
	for _, image := range images {
		has, err := n.lists(ctx, image, "")
		if err != nil {
			return err
		}

		if has {
			continue
		}

		pulled, legacy, err := n.pullTo(ctx, image.instance(), image.Name)
		if err != nil {
			return err
		}

		if legacy {
			continue
		}

		if has, err = n.lists(ctx, image, pulled); err != nil {
			return err
		}

		if !has {
			return failure.Transient(v1alpha1.ReasonImagePull, fmt.Sprintf("%s has pulled the image %s and does not list it",
				n.name(), image.Name), nil)
		}
	}

	return nil
}

// lists reports whether the node lists an image under its name, or under that which it was pulled as.
func (n *Node) lists(ctx context.Context, image WantedImage, pulled string) (bool, error) {
	all, err := n.listed(ctx, image.instance())
	if err != nil {
		return false, err
	}

	name, digest := canonical(image.Name)
	as, pinned := canonical(pulled)

	return slices.ContainsFunc(all, func(have listedImage) bool {
		listed, _ := canonical(have.name)

		return digest != "" && have.digest == digest || pinned != "" && have.digest == pinned ||
			listed == name || pulled != "" && listed == as
	}), nil
}

// canonical returns an image reference as Talos and containerd list it, and its digest, if it has one: a short name
// gets its registry, and a tag beside a digest is dropped. What is no reference stays as it is.
func canonical(image string) (name, digest string) {
	ref, err := reference.ParseDockerRef(image)
	if err != nil {
		return image, ""
	}

	if d, ok := ref.(reference.Digested); ok {
		digest = d.Digest().String()
	}

	return ref.String(), digest
}

// listed returns the images in one namespace of a containerd.
func (n *Node) listed(ctx context.Context, instance *common.ContainerdInstance) ([]listedImage, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()

	var out []listedImage

	stream, err := n.c.ImageClient.List(ctx, &machineapi.ImageServiceListRequest{Containerd: instance})
	for err == nil {
		var image *machineapi.ImageServiceListResponse
		if image, err = stream.Recv(); err == nil {
			out = append(out, listedImage{name: image.GetName(), digest: image.GetDigest()})
		}
	}

	if status.Code(err) == codes.Unimplemented { // Talos before 1.13
		out, err = n.listedLegacy(ctx, instance.GetNamespace())
	}

	if !errors.Is(err, io.EOF) {
		return nil, classify("its images", n.name(), err)
	}

	return out, nil
}

func (n *Node) listedLegacy(ctx context.Context, namespace common.ContainerdNamespace) (out []listedImage, err error) {
	stream, err := n.c.ImageList(ctx, namespace) //nolint:staticcheck // they have no other call
	for err == nil {
		var image *machineapi.ImageListResponse
		if image, err = stream.Recv(); err == nil {
			out = append(out, listedImage{name: image.GetName(), digest: image.GetDigest()})
		}
	}

	return out, err
}
