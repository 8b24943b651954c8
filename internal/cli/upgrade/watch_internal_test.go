package upgrade

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/cli/exit"
	"github.com/talos-operator/talos-operator/internal/cli/session"
)

// look is what one reading of a cluster returns.
type look struct {
	state upgradeState
	err   error
}

func upgrading(message string) look {
	return look{state: upgradeState{Cluster: "c", Upgrade: &v1alpha1.UpgradeStatus{Message: message}}}
}

func stopped(why string) look {
	out := upgrading("stops")
	out.state.stopped = why

	return out
}

// follows has a follower read these, one after the other, until it ends. It returns what it printed, at which reading it
// ended, counted from one, and the error.
func follows(terminal bool, looks ...look) (out string, ended int, err error) {
	var printed bytes.Buffer

	at := 0
	f := &follower{
		out: &printed, terminal: terminal, told: map[string]string{},
		look: func(context.Context) (upgradeState, error) { return looks[at].state, looks[at].err },
	}

	for ; at < len(looks); at++ {
		if done, err := f.step(context.Background()); done || err != nil {
			return printed.String(), at + 1, err
		}
	}

	return printed.String(), 0, nil
}

// TestWatchOnTerminal: the table is drawn again when it changes, and only then.
func TestWatchOnTerminal(t *testing.T) {
	none := look{state: upgradeState{Cluster: "c"}}

	out, ended, err := follows(true, upgrading("one"), upgrading("one"), upgrading("two"), none, upgrading("three"))
	tables := strings.Split(out, clearScreen)

	if err != nil || ended != 4 || len(tables) != 4 || tables[0] != "" {
		t.Fatalf("%q, %d, %v", out, ended, err)
	}

	for i, title := range []string{"c: one\n", "c: two\n", "c: no upgrade is left to do\n"} {
		if !strings.HasPrefix(tables[i+1], title) || !strings.Contains(tables[i+1], "MACHINE") {
			t.Errorf("%q, want %q", tables[i+1], title)
		}
	}

	if out, _, _ := follows(false, upgrading("one"), none); out != "c: one\nc: no upgrade is left to do\n" {
		t.Errorf("elsewhere: %q", out)
	}
}

// TestWatchRetries: a request that fails is tried again, which is said once, except where that is in vain.
func TestWatchRetries(t *testing.T) {
	const line = "reading the cluster failed, and is tried again: "

	refused := look{err: errors.New("connection refused")}

	out, ended, err := follows(false, upgrading("one"), refused, refused, upgrading("one"), refused, upgrading("two"))
	if want := "c: one\n" + line + "connection refused\n" + line + "connection refused\nc: two\n"; out != want || ended != 0 || err != nil {
		t.Errorf("%q, %d, %v", out, ended, err)
	}

	// A terminal shows the same table again, without the line.
	out, _, _ = follows(true, upgrading("one"), refused, upgrading("one"))
	if tables := strings.Split(out, clearScreen); len(tables) != 3 || tables[1] != tables[2]+line+"connection refused\n" {
		t.Errorf("%q", out)
	}

	for name, c := range map[string]struct {
		looks []look
		ended int
	}{
		"the first one": {[]look{refused}, 1},
		"gone":          {[]look{upgrading(""), {err: fmt.Errorf("%w c", session.ErrNoCluster)}}, 2},
		"forbidden":     {[]look{upgrading(""), {err: apierrors.NewForbidden(schema.GroupResource{}, "c", nil)}}, 2},
		"unauthorized":  {[]look{upgrading(""), {err: apierrors.NewUnauthorized("expired")}}, 2},
	} {
		if _, ended, err := follows(false, c.looks...); ended != c.ended || err == nil {
			t.Errorf("%s: %d, %v", name, ended, err)
		}
	}
}

// TestWatchEndsStopped: an upgrade that has stopped ends the watch with an exit code of its own, unless it was just
// retried.
func TestWatchEndsStopped(t *testing.T) {
	out, ended, err := follows(false, upgrading("one"), stopped("a failed"), upgrading("two"), stopped("b failed"), stopped("b failed"))
	if ended != 5 || exit.CodeOf(err) != exit.Stopped || err.Error() != "the upgrade of c has stopped: b failed" ||
		!strings.HasSuffix(out, "c: stops\n") {
		t.Errorf("%q, %d, %v", out, ended, err)
	}
}
