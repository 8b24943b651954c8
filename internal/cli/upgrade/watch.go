package upgrade

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/cli/exit"
	"github.com/talos-operator/talos-operator/internal/cli/output"
	"github.com/talos-operator/talos-operator/internal/cli/session"
	"github.com/talos-operator/talos-operator/internal/text"
)

// clearScreen clears a terminal and moves to its beginning.
const clearScreen = "\x1b[H\x1b[2J"

// follower prints the state of an upgrade whenever it changes.
type follower struct {
	out      io.Writer
	terminal bool
	look     func(context.Context) (upgradeState, error)

	// told are the lines that were printed, and drawn the table that a terminal shows.
	told  map[string]string
	drawn string
	// read is set once the cluster was read: errors before that may be those of the command line.
	read bool
	// stopped is set if the upgrade had stopped when it was read last.
	stopped bool
}

// step reads the state once, and reports whether the watch ends. What fails later than the first time is tried again:
// an upgrade takes longer than an API server restarts.
func (f *follower) step(ctx context.Context) (done bool, err error) {
	state, err := f.look(ctx)

	switch {
	case err != nil && (!f.read || isFinal(err) || ctx.Err() != nil):
		return false, err
	case err != nil:
		f.fails(err)

		return false, nil
	}

	f.read = true
	f.print(state)

	// The record of an upgrade that was just retried is that of before for a moment.
	stays := f.stopped && state.stopped != ""
	f.stopped = state.stopped != ""

	if stays {
		return true, &exit.Error{Code: exit.Stopped, Err: fmt.Errorf("the upgrade of %s has stopped: %s", state.Cluster,
			state.stopped)}
	}

	return !state.left(), nil
}

// isFinal reports whether another attempt would fail the same way.
func isFinal(err error) bool {
	return errors.Is(err, session.ErrNoCluster) || apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err)
}

// fails says once that reading the state fails. The table is drawn again afterwards.
func (f *follower) fails(err error) {
	line := "reading the cluster failed, and is tried again: " + text.Line(err.Error())
	if f.told["error"] != line {
		f.told["error"] = line
		fmt.Fprintln(f.out, line)
	}

	f.drawn = ""
}

func (f *follower) print(state upgradeState) {
	delete(f.told, "error")

	if !f.terminal {
		state.printLines(f.out, f.told)

		return
	}

	var table strings.Builder

	state.printTable(&table)

	if now := table.String(); now != f.drawn {
		f.drawn = now
		fmt.Fprint(output.RawOf(f.out), clearScreen)
		fmt.Fprint(f.out, now)
	}
}

// stoppedOf says why an upgrade of a cluster has stopped, as its record says; empty if none has. A machine that is
// about to be retried may continue it.
func stoppedOf(ctx context.Context, p *session.Plane, c *session.Cluster) (string, error) {
	if _, retried := c.ControlPlane.Annotations[v1alpha1.RetryAnnotation]; retried {
		return "", nil
	}

	for i := range c.Nodes {
		if _, retried := c.Nodes[i].Annotations[v1alpha1.RetryAnnotation]; retried {
			return "", nil
		}
	}

	history, err := historyOf(ctx, p, c.ControlPlane, time.Now())
	if err != nil {
		return "", err
	}

	for _, run := range history.Runs {
		if run.State == v1alpha1.UpgradeRunStopped {
			return run.Message, nil
		}
	}

	return "", nil
}
