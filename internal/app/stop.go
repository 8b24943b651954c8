package app

import (
	"context"
	"fmt"
	"strings"
	"time"

	"k8s.io/utils/clock"

	"github.com/talos-operator/talos-operator/internal/liveness"
)

const (
	// stopTimeout is how long running reconciliations may take to end. An action that a node is carrying out has less
	// (talos.StopGrace), and the kubelet kills the process after 30 s.
	stopTimeout = 20 * time.Second
	// waitForever is the timeout of the manager of controller-runtime. With one of its own it would release the lease
	// while reconciliations are still running, and the next leader would act beside them.
	waitForever time.Duration = -1
)

// starter is a manager.
type starter interface {
	Start(ctx context.Context) error
}

// startAndStop runs a manager until the context ends, and until everything that it runs has ended; only then does the
// manager release its lease. If that takes longer than stopTimeout, it returns an error and the process is expected to
// end. The lease then expires instead, so that no other replica acts before this process is gone.
func startAndStop(ctx context.Context, mgr starter, c clock.Clock) error {
	ended := make(chan error, 1)

	go func() { ended <- mgr.Start(ctx) }()

	select {
	case err := <-ended:
		return running(err)
	case <-ctx.Done():
	}

	select {
	case err := <-ended:
		return running(err)
	case <-c.After(stopTimeout):
		return fmt.Errorf("stopping the manager: it has not ended for %s, and the process ends without releasing the Lease "+
			"%s, which expires; still running: %s", stopTimeout, LeaseName, strings.Join(liveness.Process.Running(), ", "))
	}
}

func running(err error) error {
	if err != nil {
		return fmt.Errorf("running the manager: %w", err)
	}

	return nil
}
