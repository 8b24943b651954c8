package app

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/talos-operator/talos-operator/internal/liveness"
	"github.com/talos-operator/talos-operator/internal/talos"
	"github.com/talos-operator/talos-operator/test/wait"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// held is a manager that ends once it is let go.
type held chan error

func (h held) Start(context.Context) error { return <-h }

// TestStop: a manager that was told to stop is waited for, and its error is returned.
func TestStop(t *testing.T) {
	c := clocktesting.NewFakeClock(noon)
	ctx, stop := context.WithCancel(t.Context())
	mgr, ended := make(held), make(chan error, 1)

	go func() { ended <- startAndStop(ctx, mgr, c) }()

	stop()
	wait.For(t, "it is waited for", func(context.Context) error { return wait.True(c.HasWaiters()) })
	c.Step(stopTimeout - 1)

	cause := errors.New("out of order")
	mgr <- cause

	if err := wait.Done(t, "the end", ended); !errors.Is(err, cause) {
		t.Errorf("it ended with %v", err)
	}
}

// TestStopOfStuck: what does not end in time is named, and the lease is not released: the manager releases it only once
// everything has ended, and has no timeout of its own after which it would.
func TestStopOfStuck(t *testing.T) {
	c := clocktesting.NewFakeClock(noon)
	ctx, stop := context.WithCancel(t.Context())
	mgr, ended := make(held), make(chan error, 1)

	t.Cleanup(func() { close(mgr) })

	end := liveness.Process.Begin(t.Context(), "talosmachine", types.NamespacedName{Namespace: "ns", Name: "stuck"}, noon)
	t.Cleanup(func() { end(noon) })

	go func() { ended <- startAndStop(ctx, mgr, c) }()

	stop()
	wait.For(t, "it is waited for", func(context.Context) error { return wait.True(c.HasWaiters()) })
	c.Step(stopTimeout)

	err := wait.Done(t, "the end", ended)
	if err == nil || !strings.Contains(err.Error(), "talosmachine ns/stuck") ||
		!strings.Contains(err.Error(), "without releasing the Lease "+LeaseName) {
		t.Errorf("it ended with %v", err)
	}

	if got := managerOptions(nil, Options{}, logr.Discard()).GracefulShutdownTimeout; got == nil || *got >= 0 {
		t.Errorf("the manager releases its lease after %v", got)
	}
}

// TestStopTimes: an action may end before its manager stops waiting, and that before the kubelet kills the process,
// which it does after 30 s unless a pod says otherwise.
func TestStopTimes(t *testing.T) {
	const kubelet = 30 * time.Second
	if talos.StopGrace >= stopTimeout || stopTimeout >= kubelet {
		t.Errorf("actions have %s, the manager %s", talos.StopGrace, stopTimeout)
	}
}

// TestAlive: healthz fails while reconciliations are stuck, and the log says which one.
func TestAlive(t *testing.T) {
	var log strings.Builder

	c, w := clocktesting.NewFakeClock(noon), &liveness.Watch{}
	check := alive(funcr.New(func(_, args string) { log.WriteString(args) }, funcr.Options{}), w, c)

	end := w.Begin(t.Context(), "talosmachine", types.NamespacedName{Namespace: "ns", Name: "hangs"}, c.Now())

	c.Step(liveness.Bound - 1)

	if err := check(&http.Request{}); err != nil || log.Len() > 0 {
		t.Errorf("%v, %s", err, log.String())
	}

	c.Step(1)

	if err := check(&http.Request{}); err == nil || !strings.Contains(log.String(), "ns/hangs") {
		t.Errorf("%v, %s", err, log.String())
	}

	end(c.Now())

	if err := check(&http.Request{}); err != nil {
		t.Error(err)
	}
}
