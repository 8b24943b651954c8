package node

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// FillDisk leaves no space on the volume EPHEMERAL for as long as it is on: the node says so, and no image can be
// pulled. What is on the volume stays, and goes on to be written in place.
func (n *Node) FillDisk(on bool) { n.full.Store(on) }

// freeSpace is what is left on the volume EPHEMERAL of a size.
func (n *Node) freeSpace(size uint64) uint64 {
	if n.full.Load() {
		return 0
	}

	return size / 4 * 3
}

// storeImage puts a pulled image into containerd, which unpacks it.
func (s *session) storeImage(ref string) error {
	if s.n.full.Load() {
		return status.Errorf(codes.Unknown, "error pulling image: failed to pull image %q: failed to extract layer: write "+
			"/var/lib/containerd/io.containerd.snapshotter.v1.overlayfs: no space left on device", ref)
	}

	s.images.Add(ref)

	return nil
}
