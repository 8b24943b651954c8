package talconfig

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	model "github.com/talos-operator/talos-operator/internal/talconfig"
)

// TestEnded: an interruption is no failure of a node. The error tells what was done and how the node is left.
func TestEnded(t *testing.T) {
	t.Parallel()

	m := &target{Machine: &model.Machine{Node: model.Node{Hostname: "w-1"}}}
	m.begin("draining it", nothingSent)

	cause := errors.New("it is full")

	ctx, cancel := context.WithCancel(t.Context())
	if err := m.ended(ctx, cause, "1 of 2 nodes were changed", ""); !errors.Is(err, cause) ||
		!strings.Contains(err.Error(), "repair the node") || strings.Contains(err.Error(), "interrupted") {
		t.Errorf("a failure: %v", err)
	}

	cancel()

	const want = "w-1: interrupted while draining it; nothing was sent to it; 1 of 2 nodes were changed: run the command " +
		"again to go on; cordoned"
	if err := m.ended(ctx, cause, "1 of 2 nodes were changed", "; cordoned"); err.Error() != want {
		t.Errorf("an interruption: %v", err)
	}
}

// TestInterruptedBootstrap: a user learns whether a node was asked, and which one.
func TestInterruptedBootstrap(t *testing.T) {
	t.Parallel()

	now := time.Unix(1_000, 0)

	for want, rec := range map[string]*bootstrapRecord{
		"no node was asked to bootstrap etcd": nil,
		"cp-1 was chosen for the bootstrap":   {CA: "ca", Machine: "cp-1"},
		"etcd is bootstrapped":                {CA: "ca", Machine: "cp-1", EstablishedAt: &now},
		"another PKI":                         {CA: "other", Machine: "cp-1"},
	} {
		dir := t.TempDir()
		b := &bootstrapper{recordFile: newRecordFile(filepath.Join(dir, "talconfig.yaml"), dir, "prod", "ca")}
		put(t, b.path, rec)

		if got := b.state(); !strings.Contains(got, want) {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// TestInterruptedConfirmation: an interruption ends the question, and needs no answer.
func TestInterruptedConfirmation(t *testing.T) {
	t.Parallel()

	in, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}

	defer in.Close()
	defer write.Close()

	ctx, cancel := context.WithCancel(t.Context())
	cancel()

	a := &applier{environment: &environment{IOStreams: genericiooptions.IOStreams{In: in, Out: io.Discard, ErrOut: io.Discard}}}
	if err := a.confirm(ctx); err == nil || !strings.Contains(err.Error(), "interrupted while waiting for a confirmation") {
		t.Errorf("%v", err)
	}
}
