package store_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/talos-operator/talos-operator/internal/backup/store"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/lab/s3"
	"github.com/talos-operator/talos-operator/test/loopback"
	"github.com/talos-operator/talos-operator/test/wait"
)

func beginUpload(t *testing.T, c *minio.Client, key string) {
	t.Helper()

	core := minio.Core{Client: c}
	if _, err := core.NewMultipartUpload(t.Context(), bucket, key, minio.PutObjectOptions{}); err != nil {
		t.Fatal(err)
	}
}

func TestS3RefusesSettingsThatCannotWork(t *testing.T) {
	t.Parallel()

	for name, change := range map[string]func(*store.S3Settings){
		"endpoint path":     func(s *store.S3Settings) { s.Endpoint = "https://host/path" },
		"endpoint scheme":   func(s *store.S3Settings) { s.Endpoint = "ftp://host" },
		"endpoint user":     func(s *store.S3Settings) { s.Endpoint = "https://user:secret@host" },
		"endpoint garbage":  func(s *store.S3Settings) { s.Endpoint = "https://%zz:secret" },
		"no bucket":         func(s *store.S3Settings) { s.Bucket = "" },
		"bucket":            func(s *store.S3Settings) { s.Bucket = "Not_A_Bucket!" },
		"prefix":            func(s *store.S3Settings) { s.Prefix = "/a/" },
		"style":             func(s *store.S3Settings) { s.Style = "auto" },
		"CA":                func(s *store.S3Settings) { s.CA = []byte("nothing") },
		"lock mode":         func(s *store.S3Settings) { s.Lock.Mode = "x" },
		"lock without time": func(s *store.S3Settings) { s.Lock.Mode = store.LockGovernance },
		"SSE":               func(s *store.S3Settings) { s.SSE = "rot13" },
	} {
		settings := store.S3Settings{Endpoint: "https://s3.example.org", Bucket: bucket}
		change(&settings)

		_, err := store.NewS3(settings)
		if failure.Reason(err) != store.ReasonInvalid || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestS3Faults is what each fault of a store looks like, and that none leaves anything.
func TestS3Faults(t *testing.T) {
	t.Parallel()

	server := serve(t, s3.Options{}, false)

	proxy, err := s3.NewProxy(server, loopback.Address(t))
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(proxy.Close)

	config := settings(server)
	config.Endpoint = proxy.Endpoint()
	s := open(t, config)

	status := func(method string, code int, word string) func(*http.Request) s3.Fault {
		return func(r *http.Request) s3.Fault {
			if r.Method != method {
				return s3.Fault{}
			}

			return s3.Fault{Status: code, Code: word}
		}
	}
	puts := func(f s3.Fault) func(*http.Request) s3.Fault {
		return func(r *http.Request) s3.Fault {
			if r.Method == http.MethodPut {
				return f
			}

			return s3.Fault{}
		}
	}

	for name, tc := range map[string]struct {
		fault  func(*http.Request) s3.Fault
		class  failure.Class
		reason string
	}{
		"403":          {status(http.MethodPut, 403, "AccessDenied"), failure.ClassAuth, store.ReasonForbidden},
		"bad key":      {status(http.MethodPut, 403, "InvalidAccessKeyId"), failure.ClassAuth, store.ReasonForbidden},
		"503":          {status(http.MethodPut, 503, "SlowDown"), failure.ClassTransient, store.ReasonUnavailable},
		"507":          {status(http.MethodPut, 507, "XMinioStorageFull"), failure.ClassTransient, store.ReasonFull},
		"bucket gone":  {status(http.MethodPut, 404, "NoSuchBucket"), failure.ClassTerminal, store.ReasonNotFound},
		"400":          {status(http.MethodPut, 400, "InvalidArgument"), failure.ClassTerminal, store.ReasonRefused},
		"cut":          {puts(s3.Fault{CutAfter: 50_000}), failure.ClassTransient, ""},
		"loses":        {puts(s3.Fault{Swallow: true}), failure.ClassTransient, ""},
		"503 at start": {status(http.MethodPost, 503, "SlowDown"), failure.ClassTransient, store.ReasonUnavailable},
	} {
		for _, size := range []int{100_000, 17 << 20} {
			if size == 100_000 && name == "503 at start" {
				continue // one request, and that is no POST
			}

			proxy.Set(tc.fault)

			_, err := s.Put(t.Context(), "c/x", writer(noise(size)))
			if err == nil || failure.ClassOf(err) != tc.class && name != "loses" || tc.reason != "" && failure.Reason(err) != tc.reason {
				t.Errorf("%s, %d bytes: class %v, reason %s: %v", name, size, failure.ClassOf(err), failure.Reason(err), err)
			}

			proxy.Set(nil)

			if left := leftovers(t, server); len(left) > 0 {
				t.Errorf("%s, %d bytes: left %v", name, size, left)
			}
		}
	}
}

func TestS3StallEnds(t *testing.T) {
	t.Parallel()

	server := serve(t, s3.Options{}, false)
	config := settings(server)
	config.Stall = time.Second
	s := open(t, config)

	if _, err := open(t, settings(server)).Put(t.Context(), "c/x", writer(noise(20<<20))); err != nil {
		t.Fatal(err)
	}

	var r io.ReadCloser

	// A busy computer may stall by itself.
	wait.For(t, "the object is read", func(context.Context) (err error) {
		r, _, err = s.Get(t.Context(), "c/x")

		return err
	})
	defer r.Close()

	if err := server.Freeze(true); err != nil {
		t.Fatal(err)
	}

	_, err := io.Copy(io.Discard, r)
	if failure.Reason(err) != store.ReasonUnreachable {
		t.Errorf("reading from a frozen store: %v", err)
	}

	put := make(chan error, 1)

	go func() {
		// The parts do not fit in the buffers of the connection: the store must take them.
		_, err := s.Put(t.Context(), "c/y", writer(noise(20<<20)))
		put <- err
	}()

	if err := wait.Done(t, "writing to a frozen store ends", put); err == nil {
		t.Error("writing to a frozen store: no error")
	}
}

func TestS3AnswerThatGotLost(t *testing.T) {
	t.Parallel()

	server := serve(t, s3.Options{}, false)

	proxy, err := s3.NewProxy(server, loopback.Address(t))
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(proxy.Close)
	// The response to the completion of an upload gets lost; the one to a repetition does not.
	var lost atomic.Bool

	proxy.Set(func(r *http.Request) s3.Fault {
		if r.Method == http.MethodPost && r.URL.Query().Has("uploadId") {
			return s3.Fault{LoseAnswer: !lost.Swap(true)}
		}

		return s3.Fault{}
	})

	config := settings(server)
	config.Endpoint = proxy.Endpoint()
	s := open(t, config)

	_, err = s.Put(t.Context(), "c/x", writer(noise(20<<20)))

	left := leftovers(t, server)
	if want := map[bool]int{true: 1, false: 0}[err == nil]; len(left) != want {
		t.Errorf("put says %v, and in the bucket is %v", err, left)
	}
}

// TestS3ReplaceFails: whatever becomes of the new object, there is the old one or the new one.
func TestS3ReplaceFails(t *testing.T) {
	t.Parallel()

	server := serve(t, s3.Options{}, false)

	proxy, err := s3.NewProxy(server, loopback.Address(t))
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(proxy.Close)

	config := settings(server)
	config.Endpoint = proxy.Endpoint()
	s := open(t, config)

	for name, tc := range map[string]struct {
		fault s3.Fault
		want  string
	}{
		"refused": {s3.Fault{Status: http.StatusServiceUnavailable, Code: "SlowDown"}, "old"},
		"lost":    {s3.Fault{LoseAnswer: true}, "newer"},
	} {
		proxy.Set(nil)

		if err := s.Replace(t.Context(), "c/"+name, []byte("old")); err != nil {
			t.Fatal(err)
		}

		proxy.Set(func(r *http.Request) s3.Fault {
			if r.Method != http.MethodPut {
				return s3.Fault{}
			}

			return tc.fault
		})

		if err := s.Replace(t.Context(), "c/"+name, []byte("newer")); err == nil {
			t.Errorf("%s: no error", name)
		}

		if got := string(read(t, s, "c/"+name)); got != tc.want {
			t.Errorf("%s: it holds %q", name, got)
		}
	}
}

func TestS3Trust(t *testing.T) {
	t.Parallel()

	server := serve(t, s3.Options{}, false)
	other := serve(t, s3.Options{}, false)
	plain := serve(t, s3.Options{Plain: true}, false)

	for name, change := range map[string]func(*store.S3Settings){
		"wrong CA": func(c *store.S3Settings) { c.CA = other.CA() },
		"no CA":    func(c *store.S3Settings) { c.CA = nil },
		"no TLS":   func(c *store.S3Settings) { c.Endpoint = plain.Host() },
	} {
		config := settings(server)
		change(&config)

		err := open(t, config).Check(t.Context(), 0)
		if failure.ClassOf(err) != failure.ClassAuth || failure.Reason(err) != store.ReasonUntrusted {
			t.Errorf("%s: %v", name, err)
		}
	}

	if err := open(t, settings(plain)).Check(t.Context(), 0); err != nil {
		t.Errorf("without TLS where that is asked for: %v", err)
	}

	gone := settings(server)
	gone.Bucket = "no-such-bucket"

	if err := open(t, gone).Check(t.Context(), 0); failure.Reason(err) != store.ReasonNotFound {
		t.Errorf("without the bucket: %v", err)
	}

	for _, err := range open(t, gone).List(t.Context(), "") {
		if failure.Reason(err) != store.ReasonNotFound {
			t.Errorf("listing without the bucket: %v", err)
		}
	}

	server.Kill()

	if err := open(t, settings(server)).Check(t.Context(), 0); failure.Reason(err) != store.ReasonUnreachable {
		t.Errorf("without the server: %v", err)
	}
}

func TestS3CredentialsRotate(t *testing.T) {
	t.Parallel()

	server := serve(t, s3.Options{}, false)

	var (
		current atomic.Pointer[store.Credentials]
		broken  atomic.Bool
	)

	current.Store(&store.Credentials{AccessKeyID: server.AccessKey, SecretAccessKey: "wrong"})

	config := settings(server)
	config.Credentials = func(context.Context) (store.Credentials, error) {
		if broken.Load() {
			return store.Credentials{}, errors.New("the Secret is gone")
		}

		return *current.Load(), nil
	}
	s := open(t, config)

	if err := s.Check(t.Context(), 0); failure.Reason(err) != store.ReasonForbidden || strings.Contains(err.Error(), "wrong") {
		t.Errorf("with a wrong key: %v", err)
	}

	current.Store(&store.Credentials{AccessKeyID: server.AccessKey, SecretAccessKey: server.SecretKey})

	if err := s.Check(t.Context(), 0); err != nil {
		t.Errorf("with the new key: %v", err)
	}

	broken.Store(true)

	if err := s.Check(t.Context(), 0); failure.Reason(err) != store.ReasonCredentials {
		t.Errorf("without a Secret: %v", err)
	}
}

func TestS3StandardEnvironment(t *testing.T) {
	server := serve(t, s3.Options{}, false)

	t.Setenv("AWS_ACCESS_KEY_ID", server.AccessKey)
	t.Setenv("AWS_SECRET_ACCESS_KEY", server.SecretKey)

	config := settings(server)
	config.Credentials = nil

	if err := open(t, config).Check(t.Context(), 0); err != nil {
		t.Error(err)
	}
}

func TestS3VirtualHosts(t *testing.T) {
	t.Parallel()

	address := loopback.Address(t)
	server := serve(t, s3.Options{Address: address, VirtualDomain: "localhost"}, false)
	config := settings(server)
	config.Style = store.StyleVirtualHost

	// The name of the bucket goes before an address, which no resolver knows: that is the proof that it is asked for.
	err := open(t, config).Check(t.Context(), 0)
	if err == nil || !strings.Contains(err.Error(), bucket+"."+address) {
		t.Errorf("virtual host: %v", err)
	}
}

func TestS3ObjectLock(t *testing.T) {
	t.Parallel()

	server := serve(t, s3.Options{}, true)
	config := settings(server)
	config.Lock = store.Lock{Mode: store.LockGovernance, For: time.Hour}
	s := open(t, config)

	if err := s.Check(t.Context(), 0); err != nil {
		t.Fatal(err)
	}

	for _, size := range []int{1000, 20 << 20} {
		key := fmt.Sprintf("c/%d", size)
		if _, err := s.Put(t.Context(), key, writer(noise(size))); err != nil {
			t.Fatal(err)
		}

		o, err := s.Stat(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}

		now := wait.Now()
		if left := o.LockedUntil.Sub(now); left < 55*time.Minute || left > time.Hour || !o.Locked(now) ||
			o.Locked(now.Add(2*time.Hour)) {
			t.Errorf("%d bytes: %+v", size, o)
		}
	}
}
