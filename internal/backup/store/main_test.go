package store_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"github.com/minio/minio-go/v7"

	"github.com/talos-operator/talos-operator/internal/backup/store"
	"github.com/talos-operator/talos-operator/lab/process"
	"github.com/talos-operator/talos-operator/lab/s3"
	"github.com/talos-operator/talos-operator/test/loopback"
)

const bucket = "backups"

// serve runs an S3 server with a bucket, at an address of its own unless it is given one.
func serve(t *testing.T, o s3.Options, locking bool) *s3.Server {
	t.Helper()

	assets, err := process.Assets()
	if err != nil {
		t.Fatal(err)
	}

	if o.Address == "" {
		o.Address = loopback.Address(t)
	}

	log := &bytes.Buffer{}
	o.Binary, o.Dir, o.Log = filepath.Join(assets, "versitygw"), t.TempDir(), log

	s, err := s3.Start(t.Context(), o)
	if err != nil {
		t.Fatalf("%v\n%s", err, log)
	}

	t.Cleanup(s.Kill)

	if err := s.CreateBucket(t.Context(), bucket, locking); err != nil {
		t.Fatal(err)
	}

	return s
}

func settings(s *s3.Server) store.S3Settings {
	return store.S3Settings{
		Endpoint: s.Endpoint(), Bucket: bucket, Prefix: "some/where", CA: s.CA(),
		Credentials: func(context.Context) (store.Credentials, error) {
			return store.Credentials{AccessKeyID: s.AccessKey, SecretAccessKey: s.SecretKey}, nil
		},
	}
}

func open(t *testing.T, settings store.S3Settings) *store.S3 {
	t.Helper()

	s, err := store.NewS3(settings)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(s.Close)

	return s
}

// noise is content that cannot be compressed, the same for each seed.
func noise(size int) []byte {
	b := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(b)

	return b
}

func writer(content []byte) func(io.Writer) error {
	return func(w io.Writer) error {
		// Odd pieces, as compressors write them.
		for piece := range slices.Chunk(content, 100_003) {
			if _, err := w.Write(piece); err != nil {
				return err
			}
		}

		return nil
	}
}

func read(t *testing.T, s store.Store, key string) []byte {
	t.Helper()

	r, o, err := s.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()

	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}

	if o.Size != int64(len(b)) {
		t.Errorf("%s: size %d, read %d", key, o.Size, len(b))
	}

	return b
}

func keys(t *testing.T, s store.Store, prefix string) []string {
	t.Helper()

	got := []string{}

	for o, err := range s.List(t.Context(), prefix) {
		if err != nil {
			t.Fatal(err)
		}

		got = append(got, o.Key)
	}

	return got
}

// leftovers are objects and unfinished uploads in the bucket.
func leftovers(t *testing.T, s *s3.Server) []string {
	t.Helper()

	c, err := s.Client()
	if err != nil {
		t.Fatal(err)
	}

	var left []string

	for o := range c.ListObjects(t.Context(), bucket, minio.ListObjectsOptions{Recursive: true}) {
		left = append(left, o.Key)
	}

	for u := range c.ListIncompleteUploads(t.Context(), bucket, "", true) {
		if u.Err != nil {
			t.Fatal(u.Err)
		}

		left = append(left, "upload of "+u.Key)
	}

	return left
}

var errMine = errors.New("mine")
