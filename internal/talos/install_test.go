package talos_test

import (
	"context"
	"strings"
	"testing"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/test/loopback"
	"github.com/talos-operator/talos-operator/test/wait"
)

const installer = "ghcr.io/siderolabs/installer:"

// TestInstall: an installer that ends well makes its system the next to boot, and nothing else; one that fails, or an
// image that cannot be pulled, is told with the reason and leaves the machine as it was.
func TestInstall(t *testing.T) {
	t.Parallel()

	address := loopback.Address(t)
	c := newCluster(t, address)
	n := boot(t, address)
	c.configure(n)

	conn := c.open(n, c.creds())
	version := func() string {
		t.Helper()

		var got string

		wait.For(t, "the machine answers", func(ctx context.Context) error {
			facts, err := conn.Facts(ctx)
			got = facts.TalosVersion

			return err
		})

		return got
	}

	before := version()

	for image, reason := range map[string]string{
		"v1.13.9-missing": v1alpha1.ReasonImagePull, "v1.13.9-broken-installer": v1alpha1.ReasonInstallFailed,
	} {
		err := conn.Install(t.Context(), installer+image, nil)
		if failure.Reason(err) != reason || !strings.Contains(failure.Message(err), installer+image) {
			t.Errorf("%s: %v", image, err)
		}
	}

	var said []string
	if err := conn.Install(t.Context(), installer+"v1.13.10", func(line string) { said = append(said, line) }); err != nil {
		t.Fatal(err)
	}

	if all := strings.Join(said, "|"); !strings.Contains(all, "running Talos installer v1.13.10|") {
		t.Errorf("it printed %q", all)
	}

	if got := version(); got != before {
		t.Errorf("it runs %s without a reboot", got)
	}

	boot, err := conn.BootID(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	if err := conn.Reboot(t.Context()); err != nil {
		t.Fatal(err)
	}

	wait.For(t, "it boots the new system", func(ctx context.Context) error {
		facts, err := conn.Facts(ctx)
		if err != nil {
			return err
		}

		return wait.True(facts.BootID != boot && facts.TalosVersion == "v1.13.10")
	})
}
