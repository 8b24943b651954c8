package talos

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc"
)

// databasePath is where Talos stores the database of its etcd.
const databasePath = "/var/lib/etcd/member/snap/db"

// EtcdDatabase streams the database file of the node's etcd, for the case that etcd does not run. The file has no
// checksum at its end, so a recovery from it must skip the hash check. The archive in which it is transferred has
// checksums of its own: a truncated one ends with an error.
func (n *Node) EtcdDatabase(parent context.Context) (io.ReadCloser, error) {
	ctx, cancel := context.WithCancel(parent)
	c := &copied{n: n, parent: parent, cancel: cancel}

	err := guarded(callTimeout, cancel, func() (err error) {
		c.stream, err = n.c.MachineClient.Copy(ctx, &machineapi.CopyRequest{RootPath: databasePath})

		return err
	})
	if err != nil {
		cancel()

		return nil, n.streamError(parent, databaseCall, err)
	}

	plain, err := gzip.NewReader(c)
	if err != nil {
		cancel()

		return nil, c.broken(err)
	}

	archive := tar.NewReader(plain)

	for range maxEntries {
		head, err := archive.Next()
		if err == nil && head.Size > maxDatabase {
			err = fmt.Errorf("%w: a database of %d bytes", ErrTooMuch, head.Size)
		}

		if err != nil {
			cancel()

			return nil, c.broken(err)
		}

		if head.Typeflag == tar.TypeReg {
			return &databaseReader{archive: archive, plain: plain, c: c}, nil
		}
	}

	cancel()

	return nil, c.broken(fmt.Errorf("%w: more than %d entries", ErrTooMuch, maxEntries))
}

// maxEntries is the maximum number of archive entries that are read: the copy of a file has one.
const maxEntries = 16

// maxArchiveEnd is more than what follows the database in an archive, which is padded to 10 KiB.
const maxArchiveEnd = mib

// databaseCall is the name of the copy in errors.
const databaseCall = "a copy of the etcd database"

// copied reads the stream of a copy.
type copied struct {
	n      *Node
	parent context.Context //nolint:containedctx // to tell an end that the caller wants from a stall
	cancel context.CancelFunc
	stream grpc.ServerStreamingClient[common.Data]
	rest   []byte
	err    error
}

// Read implements io.Reader.
func (c *copied) Read(p []byte) (int, error) {
	for len(c.rest) == 0 {
		err := guarded(stallTimeout, c.cancel, func() error {
			msg, err := c.stream.Recv()
			if err != nil {
				return err
			}

			if text := msg.GetMetadata().GetError(); text != "" {
				return errors.New(redactText(text))
			}

			c.rest = msg.GetBytes()

			return nil
		})
		if err != nil {
			if !errors.Is(err, io.EOF) {
				c.err = c.n.streamError(c.parent, databaseCall, err)
				err = c.err
			}

			return 0, err
		}
	}

	k := copy(p, c.rest)
	c.rest = c.rest[k:]

	return k, nil
}

// broken distinguishes an archive that ended early from a stream that did.
func (c *copied) broken(err error) error {
	if c.err != nil {
		return c.err
	}

	return fmt.Errorf("asking %s for %s: %w: %w", c.n.name(), databaseCall, ErrSnapshotDamaged, err)
}

// databaseReader ends with io.EOF only if the archive is complete to its last byte.
type databaseReader struct {
	archive *tar.Reader
	plain   io.Reader
	c       *copied
}

// Read implements io.Reader.
func (d *databaseReader) Read(p []byte) (int, error) {
	n, err := d.archive.Read(p)

	switch {
	case errors.Is(err, io.EOF):
		// The checksum of the compression is at the end.
		rest, err := io.Copy(io.Discard, io.LimitReader(d.plain, maxArchiveEnd))
		if err == nil && rest == maxArchiveEnd {
			err = fmt.Errorf("%w: the archive goes on after its end", ErrTooMuch)
		}

		if err != nil {
			return n, d.c.broken(err)
		}
	case err != nil:
		return n, d.c.broken(err)
	}

	return n, err
}

// Close implements io.Closer.
func (d *databaseReader) Close() error {
	d.c.cancel()

	return nil
}
