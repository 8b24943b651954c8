package node_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/cosi-project/runtime/pkg/safe"
	configmachine "github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"

	"github.com/talos-operator/talos-operator/lab/node"
	"github.com/talos-operator/talos-operator/test/wait"
)

// TestSecureBoot: a machine shows Secure Boot from the next boot on, and then does not boot what is not signed.
func TestSecureBoot(t *testing.T) {
	f := newFleet(t, true)
	n := f.boot(1)

	f.first(n, f.render(configmachine.TypeControlPlane))
	wait.For(t, "it is installed", shows(n, func(s node.Status) bool { return s.Installed && s.Stage == "booting" }))
	n.SetSecureBoot(true)
	n.Kill()

	if err := n.PowerOn(t.Context()); err == nil || !strings.Contains(err.Error(), "not signed") {
		t.Errorf("an image that is not signed boots: %v", err)
	}

	n.SetSecureBoot(false)

	if err := n.PowerOn(t.Context()); err != nil {
		t.Fatal(err)
	}

	wait.For(t, "it shows that Secure Boot is off", func(ctx context.Context) error {
		got, err := safe.ReaderGetByID[*runtime.SecurityState](ctx, f.client(n).COSI, runtime.SecurityStateID)
		if err != nil {
			return err
		}

		if s := got.TypedSpec(); s.SecureBoot || s.PCRSigningKeyFingerprint != "" {
			return fmt.Errorf("it shows %+v", s)
		}

		return nil
	})
}
