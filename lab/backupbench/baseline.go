package backupbench

import (
	"context"
	"fmt"
	"io"
	"time"

	"filippo.io/age"
	"github.com/klauspost/compress/zstd"
	"github.com/minio/minio-go/v7"
)

// baseline is what the libraries do by themselves with the same bytes: zstd, age and the S3 client, each with its
// defaults and parts of the size that the operator uses.
type baseline struct {
	store  *minio.Client
	bucket string
	age    age.Recipient // nil for the plain bytes
}

const (
	baselineKey  = "baseline"
	baselinePart = 5 << 20
	baselineSent = 2
)

func (b baseline) run(ctx context.Context, open func() (io.ReadCloser, error)) (time.Duration, error) {
	began := time.Now()

	src, err := open()
	if err != nil {
		return 0, err
	}

	defer src.Close()

	r, w := io.Pipe()

	go func() { w.CloseWithError(b.encode(w, src)) }()

	_, err = b.store.PutObject(ctx, b.bucket, baselineKey, r, -1, minio.PutObjectOptions{
		PartSize: baselinePart, ConcurrentStreamParts: true, NumThreads: baselineSent,
	})
	if err != nil {
		r.CloseWithError(err)

		return 0, fmt.Errorf("storing the bytes: %w", err)
	}

	took := time.Since(began)

	if err := b.store.RemoveObject(ctx, b.bucket, baselineKey, minio.RemoveObjectOptions{}); err != nil {
		return 0, fmt.Errorf("removing the object: %w", err)
	}

	return took, nil
}

func (b baseline) encode(dst io.Writer, src io.Reader) error {
	if b.age == nil {
		_, err := io.Copy(dst, src)

		return err
	}

	a, err := age.Encrypt(dst, b.age)
	if err != nil {
		return err
	}

	z, err := zstd.NewWriter(a)
	if err != nil {
		return err
	}

	if _, err := io.Copy(z, src); err != nil {
		return err
	}

	if err := z.Close(); err != nil {
		return err
	}

	return a.Close()
}
