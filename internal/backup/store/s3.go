package store

import (
	"context"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/encrypt"

	"github.com/talos-operator/talos-operator/internal/failure"
)

const (
	// partSize is the size of the parts of a multipart upload, the minimum that S3 accepts. With the maximum of 10,000
	// parts, an object has at most 48 GiB: six times the largest database that etcd is designed for.
	partSize = 5 << 20
	// maxParts is the maximum number of parts in S3.
	maxParts = 10000
	// uploadsAtOnce is the number of parts of one object that are sent concurrently, while one more is being filled. An
	// upload therefore occupies 15 MiB.
	uploadsAtOnce = 2
	// cleanupTimeout limits the cleanup after a failure or a cancellation.
	cleanupTimeout = 30 * time.Second
	// retries of one request, within a few seconds. The caller has its own backoff.
	retries = 4
	// lockHeader and holdHeader report object locks.
	lockHeader = "X-Amz-Object-Lock-Retain-Until-Date"
	holdHeader = "X-Amz-Object-Lock-Legal-Hold"
)

// S3 stores objects in a bucket of S3 or of a compatible store.
type S3 struct {
	settings  S3Settings
	core      *minio.Core
	sse       encrypt.ServerSide
	transport *http.Transport
	partSize  int
	now       func() time.Time
}

var _ Store = (*S3)(nil)

// NewS3 uses an existing bucket. It makes no request.
func NewS3(settings S3Settings) (*S3, error) {
	endpoint, err := settings.validate()
	if err != nil {
		return nil, err
	}

	sse, err := settings.sse()
	if err != nil {
		return nil, err
	}

	transport, err := settings.transport()
	if err != nil {
		return nil, err
	}

	core, err := minio.NewCore(endpoint.Host, &minio.Options{
		Creds:        settings.provider(),
		Secure:       endpoint.Scheme == "https",
		Transport:    transport,
		Region:       settings.region(),
		BucketLookup: settings.lookup(),
		MaxRetries:   retries,
	})
	if err != nil {
		return nil, failure.Terminal(ReasonInvalid, "the settings of the S3 store cannot be used", err)
	}

	return &S3{settings: settings, core: core, sse: sse, transport: transport, partSize: partSize, now: time.Now}, nil
}

// Location implements Store.
func (s *S3) Location() string {
	return strings.TrimSuffix("s3://"+s.settings.Bucket+"/"+s.settings.Prefix, "/")
}

// Close implements Store.
func (s *S3) Close() {
	s.transport.CloseIdleConnections()
}

// Check implements Store.
func (s *S3) Check(ctx context.Context, _ int64) error { return checkProbe(ctx, s) }

// key returns the name of an object in the bucket.
func (s *S3) key(key string) string {
	if s.settings.Prefix == "" {
		return key
	}

	return s.settings.Prefix + "/" + key
}

// Get implements Store.
func (s *S3) Get(ctx context.Context, key string) (io.ReadCloser, Object, error) {
	if err := validReadKey(key); err != nil {
		return nil, Object{}, err
	}

	r, info, _, err := s.core.GetObject(ctx, s.settings.Bucket, s.key(key), minio.GetObjectOptions{})
	if err != nil {
		return nil, Object{}, s.classify("reading", key, err)
	}

	return &body{ReadCloser: r, store: s, key: key}, s.object(key, info), nil
}

// body assigns a class to errors in the middle of an object.
type body struct {
	io.ReadCloser

	store *S3
	key   string
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF { //nolint:errorlint // readers return io.EOF itself
		err = b.store.classify("reading", b.key, err)
	}

	return n, err
}

// Stat implements Store.
func (s *S3) Stat(ctx context.Context, key string) (Object, error) {
	if err := validReadKey(key); err != nil {
		return Object{}, err
	}

	info, err := s.core.StatObject(ctx, s.settings.Bucket, s.key(key), minio.StatObjectOptions{})
	if err != nil {
		return Object{}, s.classify("looking at", key, err)
	}

	return s.object(key, info), nil
}

func (s *S3) object(key string, info minio.ObjectInfo) Object {
	o := Object{Key: key, Size: info.Size, Modified: info.LastModified}

	o.LegalHold = info.Headers.Get(holdHeader) == string(minio.LegalHoldEnabled)
	if until, err := time.Parse(time.RFC3339, info.Headers.Get(lockHeader)); err == nil {
		o.LockedUntil = until
	}

	// Without permission to read locks (s3:GetObjectRetention), S3 responds as if there were none, and deleting a locked
	// object in a bucket with versions hides it instead of failing.
	if o.LockedUntil.IsZero() && s.settings.Lock.Mode != "" {
		o.LockedUntil = info.LastModified.Add(s.settings.Lock.For)
	}

	return o
}

// List implements Store.
func (s *S3) List(ctx context.Context, prefix string) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()

		base := s.key("")

		for info := range s.core.ListObjectsIter(ctx, s.settings.Bucket, minio.ListObjectsOptions{
			Prefix: s.key(prefix), Recursive: true,
		}) {
			if info.Err != nil {
				yield(Object{}, s.classify("listing", prefix, info.Err))

				return
			}

			key, ours := strings.CutPrefix(info.Key, base)
			// Consoles create empty objects to represent directories.
			if !ours || key == "" || strings.HasSuffix(key, "/") {
				continue
			}

			if !yield(Object{Key: key, Size: info.Size, Modified: info.LastModified}, nil) {
				return
			}
		}

		// A list that was truncated by a cancellation must not look complete.
		if err := ctx.Err(); err != nil {
			yield(Object{}, s.classify("listing", prefix, err))
		}
	}
}

// Delete implements Store. In a bucket with versions, the object remains as an old version until the lifecycle rules of
// the bucket remove it.
func (s *S3) Delete(ctx context.Context, key string) error {
	if err := ValidKey(key); err != nil {
		return err
	}

	err := s.core.RemoveObject(ctx, s.settings.Bucket, s.key(key), minio.RemoveObjectOptions{})
	if err = s.classify("deleting", key, err); isNotFound(err) {
		return nil
	}

	return err
}

// Sweep implements Store.
func (s *S3) Sweep(ctx context.Context, prefix string, before time.Time) (int, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	swept := 0

	for u := range s.core.ListIncompleteUploads(ctx, s.settings.Bucket, s.key(prefix), true) {
		if u.Err != nil {
			return swept, s.classify("listing uploads of", prefix, u.Err)
		}

		if !u.Initiated.Before(before) {
			continue
		}

		err := s.core.AbortMultipartUpload(ctx, s.settings.Bucket, u.Key, u.UploadID)
		if err != nil && minio.ToErrorResponse(err).Code != minio.NoSuchUpload {
			return swept, s.classify("aborting an old upload of", prefix, err)
		}

		swept++
	}

	return swept, ctx.Err()
}

// putOptions returns the options of every object; the probe of Check is neither retained nor locked.
func (s *S3) putOptions(key string) minio.PutObjectOptions {
	o := minio.PutObjectOptions{ContentType: "application/octet-stream", ServerSideEncryption: s.sse}

	if s.settings.Lock.Mode != "" && key != probeKey {
		o.Mode = minio.RetentionMode(s.settings.Lock.Mode)
		o.RetainUntilDate = s.now().Add(s.settings.Lock.For).UTC()
	}

	return o
}

// exists checks whether Put would replace an object. Credentials without permission to check are no error.
func (s *S3) exists(ctx context.Context, key string) error {
	_, err := s.Stat(ctx, key)

	switch {
	case key == probeKey || isNotFound(err) || failure.Reason(err) == ReasonForbidden:
		return nil
	case err == nil:
		return failure.Terminal(ReasonObjectExists, fmt.Sprintf("%s has an object %s already", s.Location(), key), nil)
	}

	return err
}
