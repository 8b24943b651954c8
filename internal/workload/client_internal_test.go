package workload

import (
	"testing"
	"time"

	testclock "k8s.io/utils/clock/testing"

	"github.com/talos-operator/talos-operator/test/pki"
)

// TestClientAfterClockJump: a client is kept while its certificate is good, and not when that was made by a clock that was
// ahead and is right again: no API server takes it.
func TestClientAfterClockJump(t *testing.T) {
	now := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

	bundle, err := pki.New(now)
	if err != nil {
		t.Fatal(err)
	}

	clock := testclock.NewFakePassiveClock(now)
	clients := &Clients{Clock: clock}
	at := func(when time.Time) any {
		t.Helper()
		clock.SetTime(when)

		c, err := clients.client(bundle, "127.0.0.1")
		if err != nil {
			t.Fatal(err)
		}

		return c.http
	}

	first := at(now)
	if at(now.Add(time.Hour)) != first {
		t.Error("a client is made anew although its certificate is good")
	}

	if at(now.Add(13*time.Hour)) == first {
		t.Error("a client is kept although its certificate ends soon")
	}

	ahead := at(now.Add(24 * time.Hour))
	if at(now) == ahead {
		t.Error("a client is kept whose certificate is not valid yet")
	}
}

// TestForget: the clients of a cluster that is gone are dropped, with the keys in them, and those of others are kept.
func TestForget(t *testing.T) {
	now := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	clients := &Clients{Clock: testclock.NewFakePassiveClock(now)}

	var fingerprints []string

	for _, address := range []string{"127.0.0.1", "127.0.0.2"} {
		bundle, err := pki.New(now)
		if err != nil {
			t.Fatal(err)
		}

		if _, err := clients.client(bundle, address); err != nil {
			t.Fatal(err)
		}

		fingerprints = append(fingerprints, bundle.Fingerprint())
	}

	clients.Forget(fingerprints[0])

	if _, kept := clients.clients["127.0.0.1"]; kept {
		t.Error("the client of a cluster that is gone is kept")
	}

	if _, kept := clients.clients["127.0.0.2"]; !kept {
		t.Error("the client of another cluster is dropped")
	}
}
