package store

import (
	"bytes"
	"context"
	"crypto/md5" //nolint:gosec // S3 wants it, and it protects nothing here
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/minio/minio-go/v7"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/talos-operator/talos-operator/internal/failure"
)

const (
	// lastPartsGrace is what parts on their way have to arrive after a failure or a cancellation.
	lastPartsGrace = 5 * time.Second
	// abortTries, abortPause apart, end an upload.
	abortTries = 5
	abortPause = 200 * time.Millisecond
	// maxListed uploads of one object are looked at.
	maxListed = 100
)

// Put implements Store. What fits in one part is one request; the rest is a multipart upload.
func (s *S3) Put(ctx context.Context, key string, write func(io.Writer) error) (Object, error) {
	if err := ValidKey(key); err != nil {
		return Object{}, err
	}

	if err := s.exists(ctx, key); err != nil {
		return Object{}, err
	}

	u := &upload{store: s, key: key, options: s.putOptions(key)}
	split := &splitter{size: s.partSize, send: func(part []byte) error { return u.send(ctx, part) }}

	// Parts on their way are not torn off: a store that still reads one when the upload is aborted brings it back.
	sending, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(lastPartsGrace, stop) })()

	u.put = func(number int, part []byte) error { return u.sendPart(sending, number, part) }
	u.group.SetLimit(uploadsAtOnce)

	err := write(split)

	if err == nil && u.id == "" {
		return u.whole(ctx, split.part)
	}

	if err == nil && len(split.part) > 0 {
		err = u.send(ctx, split.part)
	}

	if err != nil {
		defer time.AfterFunc(lastPartsGrace, stop).Stop()
	}

	// A part that failed is the reason for everything after it, unless we tore it off ourselves.
	if partErr := u.group.Wait(); partErr != nil && (err == nil || !errors.Is(partErr, context.Canceled)) {
		err = partErr
	}

	if cause := ctx.Err(); cause != nil && errors.Is(err, context.Canceled) {
		err = s.classify("writing", key, cause)
	}

	if err == nil {
		err = u.complete(ctx)
	}

	if err != nil {
		u.abort(ctx)

		return Object{}, err
	}

	return u.prove(ctx, split.total)
}

// Replace implements Store: one request, which a bucket obeys as a whole or not at all.
func (s *S3) Replace(ctx context.Context, key string, content []byte) error {
	if err := ValidKey(key); err != nil {
		return err
	}

	u := &upload{store: s, key: key, options: s.putOptions(key), replaces: true}
	_, err := u.whole(ctx, bytes.Clone(content)) // it keeps the buffer

	return err
}

// splitter cuts what is written into parts.
type splitter struct {
	size  int
	part  []byte
	total int64
	send  func([]byte) error
}

// Write implements io.Writer. A full part is sent once more comes, so that the last one is never empty.
func (s *splitter) Write(p []byte) (int, error) {
	written := 0

	for len(p) > 0 {
		if len(s.part) == s.size {
			if err := s.send(s.part); err != nil {
				return written, err
			}

			s.part = grow([]byte{}, s.size)
		}

		if len(s.part) == cap(s.part) {
			s.part = grow(s.part, s.size)
		}

		n := min(len(p), cap(s.part)-len(s.part))
		s.part = append(s.part, p[:n]...)
		p = p[n:]
		written += n
		s.total += int64(n)
	}

	return written, nil
}

// smallPart is the buffer of objects that may turn out to be small.
const smallPart = 64 << 10

// buffers of a whole part are used again, by the next upload too: fresh ones each time would double the memory until
// they are collected.
var buffers sync.Pool

// grow returns a larger buffer with the content of a full one.
func grow(full []byte, size int) []byte {
	if full == nil {
		return make([]byte, 0, min(size, smallPart))
	}

	b, ok := buffers.Get().(*[]byte)
	if !ok || cap(*b) != size {
		return append(make([]byte, 0, size), full...)
	}

	return append((*b)[:0], full...)
}

func release(b []byte) {
	if cap(b) > smallPart {
		buffers.Put(&b)
	}
}

// upload is one object on its way.
type upload struct {
	store   *S3
	key     string
	options minio.PutObjectOptions
	// replaces: there may have been an object of the name before.
	replaces bool
	id       string
	sent     int
	put      func(number int, part []byte) error
	group    errgroup.Group

	mu     sync.Mutex
	parts  []minio.CompletePart
	failed error
}

// whole uploads an object in one request.
func (u *upload) whole(ctx context.Context, content []byte) (Object, error) {
	err := u.try(ctx, content, func(body io.Reader) error {
		_, err := u.store.core.PutObject(ctx, u.store.settings.Bucket, u.store.key(u.key), body,
			int64(len(content)), u.digest(content), "", u.options)

		return err
	})
	if err != nil {
		u.takeBack(ctx)

		return Object{}, err
	}

	return u.prove(ctx, int64(len(content)))
}

// send hands a part to a worker; it waits while all are busy. It begins the upload with the first part.
func (u *upload) send(ctx context.Context, part []byte) error {
	s := u.store

	if err := ctx.Err(); err != nil {
		return s.classify("writing", u.key, err)
	}

	if u.id == "" {
		id, err := s.core.NewMultipartUpload(ctx, s.settings.Bucket, s.key(u.key), u.options)
		if err != nil {
			return s.classify("beginning to write", u.key, err)
		}

		u.id = id
	}

	u.mu.Lock()
	err := u.failed
	u.mu.Unlock()

	if err != nil {
		return err
	}

	u.sent++

	number := u.sent
	if number > maxParts {
		return failure.Terminal(ReasonRefused, fmt.Sprintf("%s is too large for %s", u.key, s.Location()), nil)
	}

	u.group.Go(func() error { return u.put(number, part) })

	return nil
}

// sendPart uploads one part.
func (u *upload) sendPart(ctx context.Context, number int, part []byte) error {
	s := u.store

	var done minio.ObjectPart

	err := u.try(ctx, part, func(body io.Reader) (err error) {
		done, err = s.core.PutObjectPart(ctx, s.settings.Bucket, s.key(u.key), u.id, number, body, int64(len(part)),
			minio.PutObjectPartOptions{Md5Base64: u.digest(part)})

		return err
	})

	u.mu.Lock()
	defer u.mu.Unlock()

	if err != nil {
		u.failed = err

		return err
	}

	u.parts = append(u.parts, minio.CompletePart{PartNumber: number, ETag: done.ETag})

	return nil
}

// bodyRetries of a request with a body.
var bodyRetries = wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: retries}

// try sends a body until the store takes it. The client's own retries would rewind the reader while the connection of
// the failed try may still read from it, so each one gets a reader of its own; and a buffer is only used again when no
// connection can hold on to it.
func (u *upload) try(ctx context.Context, content []byte, send func(io.Reader) error) error {
	tries := 0

	var last error

	err := wait.ExponentialBackoffWithContext(ctx, bodyRetries, func(context.Context) (bool, error) {
		tries++
		last = u.store.classify("writing", u.key, send(struct{ io.Reader }{bytes.NewReader(content)}))

		if last != nil && failure.ClassOf(last) == failure.ClassTransient && failure.Reason(last) != ReasonFull {
			return false, nil
		}

		return true, last
	})

	switch {
	case err == nil && tries == 1:
		release(content)
	case err != nil && last == nil:
		return u.store.classify("writing", u.key, err)
	}

	return last
}

// digest is what S3 demands with every part of an object that it locks. Without a lock TLS protects the part, or the
// signature where there is no TLS.
func (u *upload) digest(part []byte) string {
	if u.options.Mode == "" {
		return ""
	}

	sum := md5.Sum(part) //nolint:gosec // see the import

	return base64.StdEncoding.EncodeToString(sum[:])
}

// complete makes the parts an object. An answer that got lost may hide a success: prove finds out.
func (u *upload) complete(ctx context.Context) error {
	slices.SortFunc(u.parts, func(a, b minio.CompletePart) int { return a.PartNumber - b.PartNumber })

	s := u.store
	_, err := s.core.CompleteMultipartUpload(ctx, s.settings.Bucket, s.key(u.key), u.id, u.parts,
		minio.PutObjectOptions{ServerSideEncryption: u.options.ServerSideEncryption})

	return s.classify("finishing", u.key, err)
}

// abort leaves nothing behind. It works after the end of the context too. What it cannot remove, Sweep does.
func (u *upload) abort(ctx context.Context) {
	if u.id == "" {
		return
	}

	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()

	tick := time.NewTicker(abortPause)
	defer tick.Stop()

	s := u.store

	for range abortTries {
		err := s.core.AbortMultipartUpload(ctx, s.settings.Bucket, s.key(u.key), u.id)
		if err != nil && minio.ToErrorResponse(err).Code == minio.NoSuchUpload {
			// It was completed and the answer got lost.
			u.takeBack(ctx)

			return
		}

		if err == nil && !u.listed(ctx) {
			return
		}

		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// listed says whether the store still knows the upload: a part that was on its way can survive the first try.
func (u *upload) listed(ctx context.Context) bool {
	s := u.store

	list, err := s.core.ListMultipartUploads(ctx, s.settings.Bucket, s.key(u.key), "", "", "", maxListed)
	if err != nil {
		return false // it may not be permitted, and the abort was a success
	}

	return slices.ContainsFunc(list.Uploads, func(o minio.ObjectMultipartInfo) bool { return o.UploadID == u.id })
}

// takeBack removes an object whose writing ended in an error although it may be there. Names are used once, so it is
// ours; one that replaces another may be the other.
func (u *upload) takeBack(ctx context.Context) {
	if u.replaces {
		return
	}

	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()

	_ = u.store.Delete(ctx, u.key) // the error that led here is the one to tell
}

// prove sees that the object is there, all of it.
func (u *upload) prove(ctx context.Context, size int64) (Object, error) {
	o, err := u.store.Stat(ctx, u.key)

	switch {
	case isNotFound(err):
		return Object{}, lost(u.key, u.store.Location(), err)
	case failure.Reason(err) == ReasonForbidden:
		// Credentials that may write only. The verification reads it back with others.
		return Object{Key: u.key, Size: size, Modified: u.store.now()}, nil
	case err != nil:
		u.takeBack(ctx)

		return Object{}, err
	case o.Size != size:
		u.takeBack(ctx)

		return Object{}, lost(u.key, u.store.Location(), fmt.Errorf("it has %d bytes instead of %d", o.Size, size))
	}

	return o, nil
}
