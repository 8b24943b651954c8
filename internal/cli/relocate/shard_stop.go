package relocate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/internal/cli/session"
	"github.com/talos-operator/talos-operator/internal/kube"
	"github.com/talos-operator/talos-operator/internal/pause"
	"github.com/talos-operator/talos-operator/internal/shard"
)

// pollShard is how often the objects of a cluster are read while it is waited for.
const pollShard = 2 * time.Second

// stop pauses the cluster at a moment in which no step is in progress, and returns once nothing works on it. When its
// time ends before, the cluster is resumed, unless an earlier run has begun to change labels.
func (r *relocation) stop(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()

	err := r.still(limited)
	if err == nil || ctx.Err() != nil || limited.Err() == nil || r.torn {
		return err
	}

	// It may have been marked without this process having got the response.
	if _, undo := r.resume(ctx); undo != nil {
		return fmt.Errorf("%w; ending the move failed, too: %w", err, undo)
	}

	return fmt.Errorf("%w; the cluster stays in its shard, and is not paused for the move any more", err)
}

// still waits until nothing is in progress, pauses, and waits until that shows. What began in between may end first,
// but for a cluster with labels that differ: nothing goes on there.
func (r *relocation) still(ctx context.Context) error {
	for {
		if !r.held {
			if err := r.await(ctx, "cluster "+r.name+" is still busy", r.inProgress); err != nil {
				return err
			}
		}

		if err := r.mark(ctx); err != nil {
			return err
		}

		err := r.await(ctx, "cluster "+r.name+" is not paused on every object (does a replica hold its shard? "+
			"talos-operator shard list tells)", r.atWork)
		if err != nil {
			return err
		}

		begun, err := r.inProgress(ctx)
		if err != nil || begun == "" || r.torn {
			return err
		}

		r.say("It began before the pause: %s. Resuming the cluster until it has ended", begun)

		if _, err := r.resume(ctx); err != nil {
			return err
		}
	}
}

// await waits until nothing is left, and tells what it waits for, and each new error. One that does not go away by
// itself ends it.
func (r *relocation) await(ctx context.Context, problem string, left func(context.Context) (string, error)) error {
	var told, complained string

	err := wait.PollUntilContextCancel(ctx, pollShard, true, func(ctx context.Context) (bool, error) {
		text, err := left(ctx)

		switch {
		case err == nil:
		case lasting(err):
			return false, err
		default:
			if s := err.Error(); s != complained && ctx.Err() == nil {
				complained = s
				r.say("Trying again: %s", s)
			}

			return false, nil
		}

		if text != "" && text != told {
			r.say("Waiting: %s", text)
		}

		told, complained = text, ""

		return text == "", nil
	})

	switch {
	case err == nil:
		return nil
	case lasting(err):
		return err
	case told == "" && complained != "":
		return fmt.Errorf("%s: %w", complained, err)
	case ctx.Err() == context.DeadlineExceeded && told != "":
		return fmt.Errorf("after %s %s: %s", r.timeout, problem, told)
	}

	return fmt.Errorf("waiting: %s: %w", told, err)
}

// lasting tells whether an error remains until a user does something.
func lasting(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) ||
		meta.IsNoMatchError(err) || errors.Is(err, session.ErrNoCluster) || errors.Is(err, errResumed)
}

// inProgress is the step that is in progress; empty for none, and for a cluster of which objects are refused.
func (r *relocation) inProgress(ctx context.Context) (string, error) {
	if err := r.load(ctx); err != nil {
		return "", err
	}

	if len(r.refused()) > 0 {
		return "", nil
	}

	if err := busy(r.Plane, r.cluster, r.state, &r.backups); err != nil {
		return err.Error(), nil //nolint:nilerr // it is what is waited for
	}

	return "", nil
}

// atWork is what still works on the cluster although it is paused; empty for nothing.
func (r *relocation) atWork(ctx context.Context) (string, error) {
	if err := r.load(ctx); err != nil {
		return "", err
	}

	// Another process with the same target may have paused it anew: that pause is the one to be observed.
	root := rootOf(r.cluster)
	if at := pause.MoveOf(root); kube.IsPaused(root) && at.To == r.to && at.ID != "" && at.ID != r.move.ID {
		r.move, r.marked = at, time.Now()
	}

	if err := r.holds(root); err != nil {
		return "", err
	}

	refused := r.refused()

	left := reported(r.cluster, func(name string, conditions []metav1.Condition) bool {
		return !slices.Contains(refused, name) && !r.move.Shown(conditions)
	})

	if len(left) > 0 {
		return strings.Join(left, ", ") + " does not show the pause yet", nil
	}

	if len(refused) > 0 && time.Since(r.marked) < r.settle {
		return fmt.Sprintf("no replica works on %s, because the labels there and above differ; what began before that "+
			"has %s to end", strings.Join(refused, ", "), r.settle), nil
	}

	if running := r.backups.running(); len(running) > 0 {
		return strings.Join(running, ", ") + " is not complete yet", nil
	}

	return "", nil
}

// refused returns the objects with a condition Paused that each shard refuses, because they, or what they run on, are
// in another shard than what they belong to.
func (r *relocation) refused() []string {
	c, at := r.cluster, func(o client.Object) string { return o.GetLabels()[shard.Label] }
	root := at(rootOf(c))

	machines, groups := map[string]string{}, map[string]string{}
	for i := range c.Machines {
		machines[c.Machines[i].Name] = at(&c.Machines[i])
	}

	var out []string

	note := func(name string, differ bool) {
		if differ {
			out = append(out, name)
		}
	}

	plane := at(c.ControlPlane)
	note(session.KindControlPlane.Kind+"/"+c.ControlPlane.Name, plane != root)

	for i := range c.Workers {
		w := &c.Workers[i]
		groups[w.Name] = at(w)
		note(session.KindWorker.Kind+"/"+w.Name, at(w) != root || plane != root)
	}

	for i := range c.Nodes {
		m := &c.Nodes[i]
		differ := at(m) != root || plane != root

		if o := metav1.GetControllerOf(m); o != nil && o.Kind == session.KindWorker.Kind {
			differ = differ || groups[o.Name] != root
		}

		if on := m.Spec.MachineRef; on != nil {
			label, known := machines[on.Name]
			differ = differ || known && label != root
		}

		note(session.KindTalosMachine.Kind+"/"+m.Name, differ)
	}

	return out
}
