package s3_test

import (
	"bytes"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/minio/minio-go/v7"

	"github.com/talos-operator/talos-operator/lab/process"
	"github.com/talos-operator/talos-operator/lab/s3"
	"github.com/talos-operator/talos-operator/test/loopback"
)

func start(t *testing.T, address string) *s3.Server {
	t.Helper()

	assets, err := process.Assets()
	if err != nil {
		t.Fatal(err)
	}

	log := &bytes.Buffer{}

	s, err := s3.Start(t.Context(), s3.Options{
		Binary: filepath.Join(assets, "versitygw"), Dir: t.TempDir(), Address: address, Log: log,
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, log)
	}

	t.Cleanup(s.Kill)

	return s
}

func TestServerKeepsObjectsOverARestart(t *testing.T) {
	t.Parallel()

	s := start(t, loopback.Address(t))

	for range 2 {
		if err := s.CreateBucket(t.Context(), "backups", false); err != nil {
			t.Fatal(err)
		}
	}

	c, err := s.Client()
	if err != nil {
		t.Fatal(err)
	}

	content := strings.Repeat("x", 1<<20)
	if _, err := c.PutObject(t.Context(), "backups", "a/b", strings.NewReader(content), int64(len(content)),
		minio.PutObjectOptions{}); err != nil {
		t.Fatal(err)
	}

	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}

	o, err := c.GetObject(t.Context(), "backups", "a/b", minio.GetObjectOptions{})
	if err != nil {
		t.Fatal(err)
	}

	if got, err := io.ReadAll(o); err != nil || string(got) != content {
		t.Errorf("read %d bytes, %v", len(got), err)
	}
}

func TestProxyMakesTrouble(t *testing.T) {
	t.Parallel()

	s := start(t, loopback.Address(t))

	p, err := s3.NewProxy(s, loopback.Address(t))
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(p.Close)
	p.Set(func(r *http.Request) s3.Fault {
		if r.URL.Path == "/gone" {
			return s3.Fault{Status: http.StatusServiceUnavailable, Code: "SlowDown"}
		}

		return s3.Fault{}
	})

	c := &http.Client{Transport: s.Transport()}

	for path, want := range map[string]int{"/gone": http.StatusServiceUnavailable, "/health": http.StatusOK} {
		resp, err := c.Get(p.Endpoint() + path)
		if err != nil {
			t.Fatal(err)
		}

		_ = resp.Body.Close()

		if resp.StatusCode != want {
			t.Errorf("%s answers %d, want %d", path, resp.StatusCode, want)
		}
	}

	if got := p.Seen(); len(got) != 2 {
		t.Errorf("the proxy saw %v", got)
	}
}
