package kubernetes_test

import (
	"context"
	"os"
	"slices"
	"sync"
	"testing"
)

// shared is a control plane of several tests that leave each other's objects alone and the API server as it is. It
// starts with the first of them, and ends with the last test of the package: an API server costs more than most of them
// do.
type shared struct {
	once  sync.Once
	log   lockedBuffer
	plane *controlPlane
}

var (
	// quiet has no node monitor, which would take taints away.
	quiet shared
	// general may have one. It has no nodes.
	general shared
)

// join is the control plane for one test.
func (s *shared) join(t *testing.T) *controlPlane {
	t.Helper()
	showLog(t, &s.log)
	s.once.Do(func() { s.plane = launch(packageTB{t}, &s.log) })

	p := s.plane
	if p == nil {
		t.Fatal("the shared control plane has not started")
	}

	return &controlPlane{
		t: t, address: p.address, cfg: p.cfg, opts: p.opts, member: p.member, log: p.log, server: p.server,
	}
}

// packageTB is a test whose things last as long as the tests of the package.
type packageTB struct{ testing.TB }

var (
	atEndMu sync.Mutex
	atEnd   []func()
)

// Cleanup implements testing.TB.
func (packageTB) Cleanup(f func()) {
	atEndMu.Lock()
	defer atEndMu.Unlock()

	atEnd = append(atEnd, f)
}

// Context implements testing.TB.
func (packageTB) Context() context.Context { return context.Background() }

// TempDir implements testing.TB.
func (p packageTB) TempDir() string {
	p.Helper()

	dir, err := os.MkdirTemp("", "talos-lab-kubernetes-")
	if err != nil {
		p.Fatal(err)
	}

	p.Cleanup(func() { _ = os.RemoveAll(dir) })

	return dir
}

func TestMain(m *testing.M) {
	code := m.Run()

	for _, f := range slices.Backward(atEnd) {
		f()
	}

	os.Exit(code)
}
