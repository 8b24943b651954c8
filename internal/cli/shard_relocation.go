package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/kube"
	"github.com/talos-operator/talos-operator/internal/shard"
)

const (
	// valueShard is the value of the paused annotation of a move between shards. Another value was set by a user, and
	// stays.
	valueShard = "moving-to-shard"
	// stageLabels follows the number of the shard in the annotation of a move whose labels are being changed: from then on
	// it only goes on.
	stageLabels = "/labels"
	// mostRounds limits how often labels are read again and changed. Nothing but a user creates objects of a paused
	// cluster.
	mostRounds = 10
)

// shardOf returns the shard that the annotation of a move names.
func shardOf(annotation string) string { return strings.TrimSuffix(annotation, stageLabels) }

// relocation is one move between shards.
type relocation struct {
	*plane

	name, to string
	timeout  time.Duration
	say      func(format string, args ...any)

	cluster *cluster
	state   *clusterstate.State
	backups backups
	// held is true while this command, or an earlier run, holds the cluster paused; torn once its labels may differ.
	held, torn bool
}

// left says in which state a move that failed has left the cluster; empty if it is as before.
func (r *relocation) left() string {
	if !r.held {
		return ""
	}

	state := "is paused for the move"
	if r.torn {
		state = "is paused, and its objects are in different shards, so that nothing works on it"
	}

	return fmt.Sprintf("cluster %s %s: run the command again to go on (talos-operator shard move %s -n %s --to %s)",
		r.name, state, r.name, r.namespace, r.to)
}

func (r *relocation) run(ctx context.Context) (*shardMoved, error) {
	if err := r.load(ctx); err != nil {
		return nil, err
	}

	result := &shardMoved{Cluster: r.name, From: []string{}, To: r.to, Objects: []string{}}

	under := r.cluster.root().GetAnnotations()[v1alpha1.MovingToShardAnnotation]
	r.held, r.torn = shardOf(under) == r.to, under == r.to+stageLabels

	if under != "" && !r.held {
		return nil, fmt.Errorf("cluster %s is being moved to shard %s: end that first (talos-operator shard move %s -n %s "+
			"--to %s), and move it from there", r.name, shardOf(under), r.name, r.namespace, shardOf(under))
	}

	strays, err := r.strays(ctx)
	if err != nil {
		return nil, err
	}

	if under == "" && len(strays) == 0 {
		result.Paused = kube.IsPaused(r.cluster.root())

		return result, nil
	}

	if !r.torn {
		if err := r.stop(ctx); err != nil {
			return nil, err
		}
	}

	if err := r.mark(ctx, r.to+stageLabels); err != nil {
		return nil, err
	}

	r.torn = true

	if err := r.relabel(ctx, result); err != nil {
		return nil, err
	}

	result.Paused, err = r.resume(ctx, r.to+stageLabels)

	return result, err
}

// load reads the cluster, and keeps what was known of it if that fails. One without a PKI can be moved, too.
func (r *relocation) load(ctx context.Context) error {
	c, err := findCluster(ctx, r.plane, r.name)
	if err != nil {
		return err
	}

	r.cluster = c
	key := client.ObjectKeyFromObject(c.controlPlane)

	held, err := (&clusterstate.Store{Client: r, Reader: r}).Load(ctx, key)

	switch {
	case err == nil:
		r.state = held.State
	case errors.Is(err, clusterstate.ErrNotFound):
		r.state = nil
	default:
		return err
	}

	r.backups, err = findBackups(ctx, r.plane, key.Name)

	return err
}

// stop pauses the cluster at a moment in which no step is in progress, and returns once nothing works on it. When its
// time ends before, the cluster is resumed.
func (r *relocation) stop(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()

	err := r.still(limited)
	if err == nil || ctx.Err() != nil || limited.Err() == nil {
		return err
	}

	// It may have been marked without this process having seen the answer.
	if _, undo := r.resume(ctx, r.to); undo != nil {
		return fmt.Errorf("%w; ending the move failed, too: %w", err, undo)
	}

	return fmt.Errorf("%w; the cluster stays in its shard, and is not paused for the move any more", err)
}

// still waits until nothing is in progress, pauses, and waits until that shows. What began in between may end first.
func (r *relocation) still(ctx context.Context) error {
	for {
		if !r.held {
			if err := r.await(ctx, "cluster "+r.name+" is still busy", r.inProgress); err != nil {
				return err
			}
		}

		if err := r.mark(ctx, r.to); err != nil {
			return err
		}

		r.held = true

		err := r.await(ctx, "cluster "+r.name+" does not stand still (does a replica hold its shard? talos-operator shard "+
			"list tells)", r.atWork)
		if err != nil {
			return err
		}

		begun, err := r.inProgress(ctx)
		if err != nil || begun == "" {
			return err
		}

		r.say("It began before the pause: %s. Resuming the cluster until it has ended", begun)

		if _, err := r.resume(ctx, r.to); err != nil {
			return err
		}
	}
}

// await waits until nothing is left, and tells what it waits for.
func (r *relocation) await(ctx context.Context, problem string, left func(context.Context) (string, error)) error {
	var (
		told   string
		failed error
	)

	err := wait.PollUntilContextCancel(ctx, pollPaused, true, func(ctx context.Context) (bool, error) {
		text, err := left(ctx)
		if err != nil {
			failed = err

			return false, nil
		}

		if text != "" && text != told {
			r.say("Waiting: %s", text)
		}

		told, failed = text, nil

		return text == "", nil
	})

	switch {
	case err == nil:
		return nil
	case told == "" && failed != nil:
		return failed
	case ctx.Err() == context.DeadlineExceeded:
		return fmt.Errorf("after %s %s: %s", r.timeout, problem, told)
	}

	return fmt.Errorf("waiting: %s: %w", told, err)
}

// inProgress is the step that is in progress; empty for none.
func (r *relocation) inProgress(ctx context.Context) (string, error) {
	if err := r.load(ctx); err != nil {
		return "", err
	}

	if err := busy(r.plane, r.cluster, r.state, &r.backups); err != nil {
		return err.Error(), nil //nolint:nilerr // it is what is waited for
	}

	return "", nil
}

// atWork is what still works on the cluster although it is paused; empty for nothing.
func (r *relocation) atWork(ctx context.Context) (string, error) {
	left, err := unpaused(ctx, r.plane, r.name)
	if err != nil {
		return "", err
	}

	if len(left) > 0 {
		return strings.Join(left, ", ") + " does not show the pause yet", nil
	}

	if err := r.load(ctx); err != nil {
		return "", err
	}

	if running := r.backups.running(); len(running) > 0 {
		return strings.Join(running, ", ") + " is not complete yet", nil
	}

	return "", nil
}

// mark records the move on the top-level object, and pauses the cluster unless it is paused, in one write. A change
// that another process makes meanwhile is read first.
func (r *relocation) mark(ctx context.Context, stage string) error {
	return r.annotateTop(ctx, func(all map[string]string) error {
		under := all[v1alpha1.MovingToShardAnnotation]
		if to := shardOf(under); to != "" && to != r.to {
			return fmt.Errorf("another process has begun to move cluster %s to shard %s", r.name, to)
		}

		// Another process with the same target may be further.
		if under != r.to+stageLabels {
			all[v1alpha1.MovingToShardAnnotation] = stage
		}

		if v, ok := all[v1alpha1.PausedAnnotation]; !ok || v == "false" {
			all[v1alpha1.PausedAnnotation] = valueShard
		}

		return nil
	})
}

// resume ends the move in a stage, and the pause if it is of the move. It returns whether the cluster stays paused.
func (r *relocation) resume(ctx context.Context, stage string) (paused bool, err error) {
	err = r.annotateTop(ctx, func(all map[string]string) error {
		if under := all[v1alpha1.MovingToShardAnnotation]; under != "" && under != stage {
			return fmt.Errorf("another process is moving cluster %s to shard %s", r.name, shardOf(under))
		}

		delete(all, v1alpha1.MovingToShardAnnotation)

		if all[v1alpha1.PausedAnnotation] == valueShard {
			delete(all, v1alpha1.PausedAnnotation)
		}

		v, ok := all[v1alpha1.PausedAnnotation]
		paused = ok && v != "false"

		return nil
	})
	if err == nil {
		r.held, r.torn = false, false
	}

	return paused, err
}

func (r *relocation) annotateTop(ctx context.Context, change func(map[string]string) error) error {
	root := r.cluster.root()
	top := reference{kindControlPlane, root.GetName()}

	if r.cluster.top != nil {
		top.kind = kindCluster
	}

	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		o, err := get(ctx, r.plane, top)
		if err != nil {
			return err
		}

		all := map[string]string{}
		maps.Copy(all, o.GetAnnotations())

		if err := change(all); err != nil || maps.Equal(all, o.GetAnnotations()) {
			return err
		}

		base := o.DeepCopy()
		o.SetAnnotations(all)

		patch := client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})
		if err := r.Patch(ctx, o, patch, client.FieldOwner(fieldManager)); err != nil {
			return fmt.Errorf("annotating %s: %w", top, err)
		}

		return nil
	})
}

// strays returns the objects of the cluster that are not in the new shard, each before what it belongs to.
func (r *relocation) strays(ctx context.Context) ([]client.Object, error) {
	var all []client.Object

	for _, list := range shard.Lists() {
		if err := r.List(ctx, list, client.InNamespace(r.namespace)); err != nil {
			return nil, explain("listing the objects of "+r.name, err)
		}

		err := meta.EachListItem(list, func(i runtime.Object) error {
			if o, ok := i.(client.Object); ok {
				all = append(all, o)
			}

			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("reading the objects of %s: %w", r.name, err)
		}
	}

	return slices.DeleteFunc(shard.Members(all, r.cluster.root()), func(o client.Object) bool {
		return o.GetLabels()[shard.Label] == r.to
	}), nil
}

// relabel changes the labels until those that are read again are the new one.
func (r *relocation) relabel(ctx context.Context, result *shardMoved) error {
	from := map[string]bool{}

	for range mostRounds {
		strays, err := r.strays(ctx)
		if err != nil {
			return err
		}

		if len(strays) == 0 {
			result.From = slices.Sorted(maps.Keys(from))

			return nil
		}

		r.say("Changing the label of %s", plural(len(strays), "object"))

		for _, o := range strays {
			name := shard.Kind(o) + "/" + o.GetName()

			if err := r.label(ctx, o); err != nil {
				return fmt.Errorf("labelling %s: %w", name, err)
			}

			from[cmp.Or(o.GetLabels()[shard.Label], "none")] = true
			result.Objects = append(result.Objects, name)
		}
	}

	return fmt.Errorf("objects of cluster %s get another label again and again: is it being moved by another process, or "+
		"a GitOps tool", r.name)
}

// label changes the label of one object; one that is gone needs none.
func (r *relocation) label(ctx context.Context, o client.Object) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]string{shard.Label: r.to}}})
	if err != nil {
		return fmt.Errorf("encoding a label: %w", err)
	}

	gvk, err := r.GroupVersionKindFor(o)
	if err != nil {
		return fmt.Errorf("finding the kind of an object: %w", err)
	}

	// What is patched is not o, whose label is still asked for.
	target := &unstructured.Unstructured{}
	target.SetGroupVersionKind(gvk)
	target.SetNamespace(o.GetNamespace())
	target.SetName(o.GetName())

	err = r.Patch(ctx, target, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(fieldManager))
	if apierrors.IsNotFound(err) {
		return nil
	}

	return err
}
