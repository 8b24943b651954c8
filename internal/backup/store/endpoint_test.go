package store_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/talos-operator/talos-operator/internal/backup/store"
	"github.com/talos-operator/talos-operator/internal/endpoint"
	"github.com/talos-operator/talos-operator/internal/failure"
)

// counting is a server that counts its requests, and redirects them if it has a target.
func counting(t *testing.T, target string) (s *httptest.Server, asked *atomic.Int64) {
	t.Helper()

	asked = &atomic.Int64{}
	s = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)

		if target != "" {
			http.Redirect(w, r, target+r.URL.Path, http.StatusTemporaryRedirect)
		}
	}))
	t.Cleanup(s.Close)

	return s, asked
}

func someBucket(at string, endpoints *endpoint.List) store.S3Settings {
	return store.S3Settings{
		Endpoint: at, Bucket: "backups", Endpoints: endpoints,
		Credentials: func(context.Context) (store.Credentials, error) {
			return store.Credentials{AccessKeyID: "a", SecretAccessKey: "b"}, nil
		},
	}
}

// TestEndpoints: nothing is sent to an address that the operator may not connect to, by its number or by a name.
func TestEndpoints(t *testing.T) {
	t.Parallel()

	server, asked := counting(t, "")
	refused := func(what string, err error) {
		t.Helper()

		if failure.Reason(err) != store.ReasonEndpoint || failure.ClassOf(err) != failure.ClassTerminal ||
			!strings.Contains(err.Error(), "s3://backups") || !strings.Contains(err.Error(), endpoint.Flag) {
			t.Errorf("%s: %v", what, err)
		}
	}

	_, err := store.NewS3(someBucket(server.URL, &endpoint.List{}))
	refused("an address", err)

	_, err = store.NewS3(someBucket("169.254.169.254", &endpoint.List{}))
	refused("a metadata service", err)

	named := strings.Replace(server.URL, "127.0.0.1", "localhost", 1)
	_, err = open(t, someBucket(named, &endpoint.List{})).Stat(t.Context(), "key")
	refused("a name", err)

	if asked.Load() > 0 {
		t.Errorf("%d requests arrived", asked.Load())
	}

	allowed := &endpoint.List{}
	if err := allowed.Set("127.0.0.1"); err != nil {
		t.Fatal(err)
	}

	_, err = open(t, someBucket(server.URL, allowed)).Stat(t.Context(), "key")
	if asked.Load() == 0 || failure.Reason(err) == store.ReasonEndpoint {
		t.Errorf("what is allowed is not asked: %v", err)
	}
}

// TestRedirect: a store cannot lead requests, which are signed with credentials, to another address.
func TestRedirect(t *testing.T) {
	t.Parallel()

	other, led := counting(t, "")
	server, asked := counting(t, other.URL)
	s := open(t, someBucket(server.URL, nil))

	if _, _, err := s.Get(t.Context(), "key"); failure.Reason(err) != store.ReasonRefused || asked.Load() == 0 {
		t.Errorf("reading ended with %v, after %d requests", err, asked.Load())
	}

	if err := s.Delete(t.Context(), "key"); failure.Reason(err) != store.ReasonRefused {
		t.Errorf("deleting ended with %v", err)
	}

	if led.Load() > 0 {
		t.Errorf("%d requests were led to another address", led.Load())
	}
}
