package talos

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// ErrSnapshotDamaged means that a snapshot is incomplete, or not what etcd sent: a node that fails while reading its
// database ends the stream as if it were complete.
var ErrSnapshotDamaged = errors.New("the etcd snapshot is incomplete or damaged")

// Format of a snapshot: the database in whole sectors, followed by its checksum.
const (
	sumSize    = sha256.Size
	sectorSize = 512
)

// VerifySnapshot passes a snapshot on and verifies it: at the end of a damaged one, the reader gets ErrSnapshotDamaged
// instead of io.EOF.
func VerifySnapshot(r io.Reader) io.Reader { return &verifier{r: r, hash: sha256.New()} }

type verifier struct {
	r    io.Reader
	hash hash.Hash
	tail []byte // the last bytes, which may be the checksum
	size int64
}

// Read implements io.Reader.
func (v *verifier) Read(p []byte) (int, error) {
	n, err := v.r.Read(p)
	v.take(p[:n])

	if errors.Is(err, io.EOF) && !v.good() {
		return n, fmt.Errorf("%w: %d bytes", ErrSnapshotDamaged, v.size)
	}

	return n, err
}

func (v *verifier) take(b []byte) {
	v.size += int64(len(b))

	if len(b) >= sumSize {
		v.hash.Write(v.tail)
		v.hash.Write(b[:len(b)-sumSize])
		v.tail = append(v.tail[:0], b[len(b)-sumSize:]...)

		return
	}

	v.tail = append(v.tail, b...)
	if extra := len(v.tail) - sumSize; extra > 0 {
		v.hash.Write(v.tail[:extra])
		v.tail = append(v.tail[:0], v.tail[extra:]...)
	}
}

func (v *verifier) good() bool {
	return v.size > sumSize && v.size%sectorSize == sumSize && bytes.Equal(v.hash.Sum(nil), v.tail)
}

// EtcdSnapshot streams a snapshot of the node's own member. The stream ends with io.EOF only if it is complete and its
// checksum is correct; it fails if nothing arrives for some time. Progress, if set, is called with the number of
// received bytes. It returns ErrNotServing if etcd does not run.
func (n *Node) EtcdSnapshot(parent context.Context, progress func(total int64)) (io.ReadCloser, error) {
	s, err := n.openSnapshot(parent, progress)
	if err != nil {
		return nil, err
	}

	return struct {
		io.Reader
		io.Closer
	}{VerifySnapshot(s), s}, nil
}

// EtcdSnapshotUnverified is EtcdSnapshot for callers that verify the end of the stream themselves: it may end early
// with io.EOF. Computing the checksum twice, in the reading goroutine, would make a backup slower by a fifth.
func (n *Node) EtcdSnapshotUnverified(parent context.Context) (io.ReadCloser, error) {
	s, err := n.openSnapshot(parent, nil)
	if err != nil {
		return nil, err
	}

	return s, nil
}

func (n *Node) openSnapshot(parent context.Context, progress func(total int64)) (*snapshot, error) {
	ctx, cancel := context.WithCancel(parent)
	s := &snapshot{n: n, parent: parent, cancel: cancel, progress: progress}

	err := s.within(callTimeout, func() (err error) {
		if s.stream, err = n.c.MachineClient.EtcdSnapshot(ctx, &machineapi.EtcdSnapshotRequest{}); err != nil {
			return err
		}

		return s.receive()
	})

	switch {
	case errors.Is(err, io.EOF):
		cancel()

		return nil, fmt.Errorf("asking %s for a snapshot: %w: 0 bytes", n.name(), ErrSnapshotDamaged)
	case err != nil:
		cancel()

		return nil, n.etcdError(parent, "a snapshot", err)
	}

	return s, nil
}

// snapshot reads a snapshot as it arrives. The client's own reader ends in the same way whether the stream is complete
// or was cut off.
type snapshot struct {
	n        *Node
	parent   context.Context //nolint:containedctx // to tell an end that the caller wants from a stall
	cancel   context.CancelFunc
	stream   grpc.ServerStreamingClient[common.Data]
	progress func(int64)
	rest     []byte
	total    int64
}

// Close implements io.Closer.
func (s *snapshot) Close() error {
	s.cancel()

	return nil
}

// Read implements io.Reader.
func (s *snapshot) Read(p []byte) (int, error) {
	for len(s.rest) == 0 {
		if err := s.within(stallTimeout, s.receive); err != nil {
			if errors.Is(err, io.EOF) {
				return 0, io.EOF
			}

			return 0, s.n.streamError(s.parent, "the rest of a snapshot", err)
		}
	}

	k := copy(p, s.rest)
	s.rest = s.rest[k:]

	return k, nil
}

// receive waits for the next part.
func (s *snapshot) receive() error {
	msg, err := s.stream.Recv()
	if err != nil {
		return err
	}

	if text := msg.GetMetadata().GetError(); text != "" {
		return errors.New(redactText(text))
	}

	s.rest = msg.GetBytes()
	s.total += int64(len(s.rest))

	if s.progress != nil {
		s.progress(s.total)
	}

	return nil
}

// within ends the stream if a step of it takes too long.
func (s *snapshot) within(limit time.Duration, step func() error) error {
	return guarded(limit, s.cancel, step)
}

// guarded calls cancel if a step takes too long, and then returns that a deadline was exceeded.
func guarded(limit time.Duration, cancel context.CancelFunc, step func() error) error {
	timer := time.AfterFunc(limit, cancel)

	err := step()
	if !timer.Stop() && err != nil {
		return status.Error(codes.DeadlineExceeded, "nothing moved for "+limit.String())
	}

	return err
}

// streamError distinguishes a caller that has no more time from a broken stream.
func (n *Node) streamError(parent context.Context, call string, err error) error {
	if cause := over(parent, err); cause != nil {
		return fmt.Errorf("asking %s for %s: %w", n.name(), call, cause)
	}

	return classify(call, n.name(), err)
}

// EtcdRecover sends a snapshot to the node, for BootstrapRecover. The node does not verify it: wrap the reader in
// VerifySnapshot unless the snapshot has no checksum. If the reader fails, the node keeps what it received, and the
// next upload overwrites it. (A node discards an interrupted upload, but only after the client is gone: it would remove
// the file of the next upload.)
func (n *Node) EtcdRecover(parent context.Context, from io.Reader) error {
	ctx, cancel := context.WithCancel(parent)
	defer cancel()

	var stream grpc.ClientStreamingClient[common.Data, machineapi.EtcdRecoverResponse]

	err := guarded(callTimeout, cancel, func() (err error) {
		stream, err = n.c.MachineClient.EtcdRecover(ctx)

		return err
	})
	if err != nil {
		return n.streamError(parent, uploadCall, err)
	}

	failed, sent := upload(stream, cancel, from)
	if sent != nil {
		return n.streamError(parent, uploadCall, sent)
	}

	err = guarded(slowTimeout, cancel, func() error {
		_, err := stream.CloseAndRecv()

		return err
	})

	switch {
	case failed != nil:
		return fmt.Errorf("reading the snapshot for %s: %w", n.name(), failed)
	case err != nil:
		return n.streamError(parent, uploadCall, err)
	}

	return nil
}

// uploadPart is the size of one message of an upload.
const uploadPart = 32 << 10

// uploadCall is the name of an upload in errors.
const uploadCall = "the upload of a snapshot"

// upload sends everything that the reader returns. It ends early if the node has ended the call: its response says why.
// The first error is that of the reader, the second that of the connection.
func upload(
	stream grpc.ClientStreamingClient[common.Data, machineapi.EtcdRecoverResponse],
	cancel context.CancelFunc,
	from io.Reader,
) (failed, sent error) {
	buf := make([]byte, uploadPart)

	for {
		k, err := from.Read(buf)

		if k > 0 {
			sent = guarded(stallTimeout, cancel, func() error { return stream.Send(&common.Data{Bytes: buf[:k]}) })
			if errors.Is(sent, io.EOF) {
				return nil, nil
			}

			if sent != nil {
				return nil, sent
			}
		}

		if errors.Is(err, io.EOF) {
			return nil, nil
		}

		if err != nil {
			return err, nil
		}
	}
}
