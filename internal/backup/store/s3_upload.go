package store

import (
	"bytes"
	"context"
	"crypto/md5" // S3 wants it, and it protects nothing here
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
	// lastPartsGrace is the time that pending parts have to be transferred after a failure or a cancellation.
	lastPartsGrace = 5 * time.Second
	// abortTries is how often, at intervals of abortPause, aborting an upload is tried.
	abortTries = 5
	abortPause = 200 * time.Millisecond
	// maxListed is the maximum number of uploads of one object that are examined.
	maxListed = 100
)

// Put implements Store. An object that fits in one part is sent in one request, others as a multipart upload.
func (s *S3) Put(ctx context.Context, key string, write func(io.Writer) error) (Object, error) {
	if err := ValidKey(key); err != nil {
		return Object{}, err
	}

	if err := s.exists(ctx, key); err != nil {
		return Object{}, err
	}

	u := &upload{store: s, key: key, options: s.putOptions(key)}
	split := &splitter{size: s.partSize, send: func(part []byte) error { return u.send(ctx, part) }}

	// Pending parts are not interrupted: a store that is still reading a part when the upload is aborted may restore the
	// upload.
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

	// A failed part is the cause of all later errors, unless this process interrupted it.
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

// Replace implements Store. It uses one request, which is atomic.
func (s *S3) Replace(ctx context.Context, key string, content []byte) error {
	if err := ValidKey(key); err != nil {
		return err
	}

	u := &upload{store: s, key: key, options: s.putOptions(key), replaces: true}
	_, err := u.whole(ctx, bytes.Clone(content)) // the upload keeps the buffer

	return err
}

// splitter splits the written data into parts.
type splitter struct {
	size  int
	part  []byte
	total int64
	send  func([]byte) error
}

// Write implements io.Writer. A full part is sent only when more data arrives, so that the last part is never empty.
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

// smallPart is the initial buffer size, for objects that may be small.
const smallPart = 64 << 10

// buffers holds the buffers of whole parts for reuse, also by later uploads: new ones each time would double the memory
// until they are garbage collected.
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

// upload is the upload of one object.
type upload struct {
	store   *S3
	key     string
	options minio.PutObjectOptions
	// replaces: an object with the same key may have existed before.
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

// send passes a part to a worker, and waits while all are busy. It starts the upload with the first part.
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

// try sends a body until the store accepts it. The client's own retries would rewind the reader while the connection of
// the failed attempt may still read from it, so each attempt has a reader of its own, and a buffer is reused only when
// no connection can still refer to it.
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

// digest returns the digest that S3 requires with every part of an object that it locks. Without a lock, the part is
// protected by TLS, or by the signature if there is no TLS.
func (u *upload) digest(part []byte) string {
	if u.options.Mode == "" {
		return ""
	}

	sum := md5.Sum(part)

	return base64.StdEncoding.EncodeToString(sum[:])
}

// complete completes the upload. A lost response may hide a success, which prove detects.
func (u *upload) complete(ctx context.Context) error {
	slices.SortFunc(u.parts, func(a, b minio.CompletePart) int { return a.PartNumber - b.PartNumber })

	s := u.store
	_, err := s.core.CompleteMultipartUpload(ctx, s.settings.Bucket, s.key(u.key), u.id, u.parts,
		minio.PutObjectOptions{ServerSideEncryption: u.options.ServerSideEncryption})

	return s.classify("finishing", u.key, err)
}

// abort removes the upload, even after the context has ended. What it cannot remove, Sweep does.
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
			// The upload was completed and the response was lost.
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

// listed reports whether the store still lists the upload: a pending part may survive the first abort.
func (u *upload) listed(ctx context.Context) bool {
	s := u.store

	list, err := s.core.ListMultipartUploads(ctx, s.settings.Bucket, s.key(u.key), "", "", "", maxListed)
	if err != nil {
		return false // listing may not be permitted, and the abort succeeded
	}

	return slices.ContainsFunc(list.Uploads, func(o minio.ObjectMultipartInfo) bool { return o.UploadID == u.id })
}

// takeBack removes an object whose upload failed although it may exist. Keys are used only once, so the object is the
// one of this upload; an upload that replaces an object must not remove the old one.
func (u *upload) takeBack(ctx context.Context) {
	if u.replaces {
		return
	}

	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()

	_ = u.store.Delete(ctx, u.key) // the original error is the one to report
}

// prove verifies that the complete object exists.
func (u *upload) prove(ctx context.Context, size int64) (Object, error) {
	o, err := u.store.Stat(ctx, u.key)

	switch {
	case isNotFound(err):
		return Object{}, lost(u.key, u.store.Location(), err)
	case failure.Reason(err) == ReasonForbidden:
		// The credentials permit only writing. The verification reads the object with other credentials.
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
