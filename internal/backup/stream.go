package backup

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"sync"
	"time"

	"github.com/talos-operator/talos-operator/internal/failure"
)

// pieceSize is the size of the pieces in which a snapshot is passed on; two pieces are in use. A node sends a tenth of
// that at a time, and passing on each of those alone would take longer than processing them.
const pieceSize = 256 << 10

// linger is how long a piece may wait to be filled.
const linger = 50 * time.Millisecond

// sectorSize divides the size of every database; the SHA-256 follows the database.
const sectorSize = 512

// piece of a snapshot, or its end.
type piece struct {
	content []byte
	err     error
}

// pump calls each for the data of a stream, and fails if the stream yields nothing for too long. The stream is read in
// another goroutine, because a hanging node may ignore cancellations and must not block the caller.
func pump(
	ctx context.Context, open func(context.Context) (io.ReadCloser, error), stall time.Duration, each func([]byte) error,
) error {
	reading, cancel := context.WithCancel(ctx)
	defer cancel()

	pieces, free := make(chan piece), make(chan []byte, 2)
	for range cap(free) {
		free <- make([]byte, pieceSize)
	}

	go readPieces(reading, open, pieces, free)

	timer := time.NewTimer(stall)
	defer timer.Stop()

	for {
		timer.Reset(stall)

		select {
		case <-ctx.Done():
			return fmt.Errorf("reading the snapshot: %w", ctx.Err())
		case <-timer.C:
			return failure.Transient(ReasonStalled, "the snapshot makes no progress",
				fmt.Errorf("no data for %s", stall))
		case p := <-pieces:
			// Data that was read before an error is worthless, but data before the end of the stream is not.
			if p.err != nil && p.err != io.EOF { //nolint:errorlint // readers return io.EOF itself
				return sourceError(ctx, p.err)
			}

			if err := each(p.content); err != nil {
				return err
			}

			if p.err != nil {
				return nil
			}

			free <- p.content[:pieceSize]
		}
	}
}

func sourceError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("reading the snapshot: %w", ctx.Err())
	}

	if failure.Reason(err) != "" {
		return fmt.Errorf("reading the snapshot: %w", err)
	}

	return failure.Transient(ReasonSource, "the node failed to send its snapshot", err)
}

// readPieces reads the stream until its end or that of the context. Small reads are collected while the consumer is
// busy.
func readPieces(
	ctx context.Context, open func(context.Context) (io.ReadCloser, error), pieces chan<- piece, free <-chan []byte,
) {
	send := func(p piece) bool {
		select {
		case pieces <- p:
			return p.err == nil
		case <-ctx.Done():
			return false
		}
	}

	r, err := open(ctx)
	if err != nil {
		send(piece{err: err})

		return
	}

	// Closing it wakes up a reader that ignores the context.
	closing := sync.OnceFunc(func() { _ = r.Close() })
	defer context.AfterFunc(ctx, closing)()
	defer closing()

	for more := true; more; {
		select {
		case buf := <-free:
			n, full, err := gather(r, buf, pieces)
			if full || err != nil {
				more = send(piece{content: buf[:n], err: err})
			}
		case <-ctx.Done():
			return
		}
	}
}

// gather fills the buffer until it is full or the stream ends. If the stream is slow, a waiting consumer gets the data
// that is available: then it returns neither full nor an error.
func gather(r io.Reader, buf []byte, pieces chan<- piece) (n int, full bool, err error) {
	began := time.Now()

	for n < len(buf) {
		var got int

		got, err = r.Read(buf[n:])
		n += got

		if err != nil {
			return n, false, err
		}

		if got == 0 || time.Since(began) < linger {
			continue
		}

		select {
		case pieces <- piece{content: buf[:n]}:
			return n, false, nil
		default:
		}
	}

	return n, true, nil
}

// trailer checks the end of a snapshot: the last 32 bytes are the SHA-256 of everything before. Node and client turn
// errors into a clean end of the stream, so nothing else distinguishes a complete snapshot from a truncated one.
type trailer struct {
	hash hash.Hash
	tail []byte
	size int64
	sums [2]string
}

func newTrailer() *trailer { return &trailer{hash: sha256.New()} }

// Write hashes the next part of the snapshot.
func (t *trailer) Write(p []byte) {
	t.size += int64(len(p))

	if len(p) >= sha256.Size {
		t.hash.Write(t.tail)
		t.hash.Write(p[:len(p)-sha256.Size])
		t.tail = append(t.tail[:0], p[len(p)-sha256.Size:]...)

		return
	}

	t.tail = append(t.tail, p...)
	if old := len(t.tail) - sha256.Size; old > 0 {
		t.hash.Write(t.tail[:old])
		t.tail = append(t.tail[:0], t.tail[old:]...)
	}
}

// finish computes the checksums; matches tells whether the trailer is the checksum of the database.
func (t *trailer) finish() (matches bool) {
	sum := t.hash.Sum(nil)
	t.hash.Write(t.tail)
	t.sums = [2]string{hex.EncodeToString(sum), hex.EncodeToString(t.hash.Sum(nil))}

	return bytes.Equal(sum, t.tail)
}

// database returns the SHA-256 of the snapshot without its trailer, after finish.
func (t *trailer) database() string { return t.sums[0] }

// whole returns the SHA-256 of the snapshot with its trailer, after finish.
func (t *trailer) whole() string { return t.sums[1] }

// hasTrailer reports whether the size is that of a database with a trailer.
func (t *trailer) hasTrailer() bool { return t.size%sectorSize == sha256.Size && t.size > sha256.Size }

// check reports whether the snapshot is complete.
func (t *trailer) check(ctx context.Context) error {
	matches := t.finish()

	switch {
	case ctx.Err() != nil:
		// A cancelled snapshot looks like a completed one.
		return fmt.Errorf("reading the snapshot: %w", ctx.Err())
	case t.size == 0:
		return failure.Transient(ReasonTruncated, "the node sent an empty snapshot", nil)
	case !t.hasTrailer():
		return failure.Transient(ReasonTruncated, "the snapshot of the node ended early",
			fmt.Errorf("%d bytes are no database with a checksum", t.size))
	case !matches:
		return failure.Transient(ReasonTruncated, "the snapshot of the node ended early or is damaged",
			fmt.Errorf("the checksum at the end of its %d bytes is not theirs", t.size))
	}

	return nil
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)

	return hex.EncodeToString(sum[:])
}
