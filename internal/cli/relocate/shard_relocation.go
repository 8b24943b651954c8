package relocate

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
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/cli/output"
	"github.com/talos-operator/talos-operator/internal/cli/session"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/kube"
	"github.com/talos-operator/talos-operator/internal/pause"
	"github.com/talos-operator/talos-operator/internal/shard"
)

const (
	// valueShard is the value of the paused annotation of a move between shards, and valueShardFalse where a user had
	// written "false". Another value was set by a user, and stays.
	valueShard      = "moving-to-shard"
	valueShardFalse = valueShard + "/false"
	// mostRounds limits how often labels are read again and changed. Nothing but a user creates objects of a paused
	// cluster.
	mostRounds = 10
)

// errResumed: what holds the cluster for this move was changed by another user, so that work on it may have begun.
var errResumed = errors.New("the pause or the move was ended by a user or another process")

// relocation is one move between shards.
type relocation struct {
	*session.Plane

	name, to string
	timeout  time.Duration
	// settle is how long a reconciliation may take that began before the pause.
	settle time.Duration
	say    func(format string, args ...any)

	cluster *session.Cluster
	state   *clusterstate.State
	backups backups
	// move is the one of this command, and marked when it was written.
	move   pause.Move
	marked time.Time
	// held is true while this command, or an earlier run, may hold the cluster paused; torn once its labels may differ.
	held, torn bool
}

// left says in which state a move that failed has left the cluster; empty if it is as before.
func (r *relocation) left() string {
	if !r.held {
		return ""
	}

	state := "may be paused for the move"
	if r.torn {
		state = "is paused, and its objects may be in different shards, so that nothing works on it"
	}

	return fmt.Sprintf("cluster %s %s: run the command again to go on (talos-operator shard move %s -n %s --to %s)",
		r.name, state, r.name, r.Namespace, r.to)
}

func (r *relocation) run(ctx context.Context) (*shardMoved, error) {
	if err := r.load(ctx); err != nil {
		return nil, err
	}

	result := &shardMoved{Cluster: r.name, From: []string{}, To: r.to, Objects: []string{}}

	r.move = pause.MoveOf(rootOf(r.cluster))
	r.held = r.move.To == r.to

	if to := r.move.To; to != "" && !r.held {
		return nil, fmt.Errorf("cluster %s is being moved to shard %s: complete that move first (talos-operator shard move "+
			"%s -n %s --to %s), and move it from there", r.name, to, r.name, r.Namespace, to)
	}

	strays, all, err := r.strays(ctx)
	if err != nil {
		return nil, err
	}

	r.torn = r.held && (r.move.Labels || len(strays) < all)

	if r.move.To == "" && len(strays) == 0 {
		result.Paused = kube.IsPaused(rootOf(r.cluster))

		return result, nil
	}

	if err := r.permitted(ctx, strays); err != nil {
		return nil, err
	}

	from := map[string]bool{}

	for range mostRounds {
		err = r.relocate(ctx, result, from)
		if !errors.Is(err, errResumed) {
			break
		}

		r.say("Pausing cluster %s again: %v", r.name, err)
	}

	if err != nil {
		return nil, err
	}

	result.From = slices.Sorted(maps.Keys(from))
	result.Paused, err = r.resume(ctx)

	return result, err
}

// relocate pauses the cluster, and changes the labels. An earlier run may have paused it: it still has to be.
func (r *relocation) relocate(ctx context.Context, result *shardMoved, from map[string]bool) error {
	if err := r.load(ctx); err != nil {
		return err
	}

	if !r.move.Labels || r.move.ID == "" || r.holds(rootOf(r.cluster)) != nil {
		if err := r.stop(ctx); err != nil {
			return err
		}
	}

	if err := r.begin(ctx); err != nil {
		return err
	}

	return r.relabel(ctx, result, from)
}

// load reads the cluster, and keeps what was known of it if that fails. One without a PKI can be moved, too.
func (r *relocation) load(ctx context.Context) error {
	c, err := session.FindCluster(ctx, r.Plane, r.name)
	if err != nil {
		return err
	}

	r.cluster = c
	key := client.ObjectKeyFromObject(c.ControlPlane)

	held, err := (&clusterstate.Store{Client: r, Reader: r}).Load(ctx, key)

	switch {
	case err == nil:
		r.state = held.State
	case errors.Is(err, clusterstate.ErrNotFound):
		r.state = nil
	default:
		return err
	}

	r.backups, err = findBackups(ctx, r.Plane, key.Name)

	return err
}

// holds returns errResumed unless the top-level object is paused with what this command has written.
func (r *relocation) holds(o client.Object) error {
	if at := pause.MoveOf(o); !kube.IsPaused(o) || at.To != r.to || at.ID != r.move.ID {
		return errResumed
	}

	return nil
}

// permitted refuses a move that the user may not complete, before anything is written.
func (r *relocation) permitted(ctx context.Context, strays []client.Object) error {
	var denied []string

	try := func(name string, err error) error {
		if apierrors.IsForbidden(err) {
			denied = append(denied, name)
		} else if err != nil {
			return fmt.Errorf("trying to change %s: %w", name, err)
		}

		return nil
	}

	top := r.top()

	o, err := get(ctx, r.Plane, top)
	if err != nil {
		return err
	}

	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{
		v1alpha1.MovingToShardAnnotation: pause.Move{To: r.to}.String(),
	}}})
	if err != nil {
		return fmt.Errorf("encoding an annotation: %w", err)
	}

	err = r.Patch(ctx, o, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(fieldManager), client.DryRunAll)
	if err := try(top.String(), err); err != nil {
		return err
	}

	for _, o := range strays {
		name := shard.Kind(o) + "/" + o.GetName()
		if err := try(name, r.label(ctx, o, client.DryRunAll)); err != nil {
			return err
		}
	}

	if len(denied) > 0 {
		return fmt.Errorf("nothing was changed, because the user may not change %s: the role admin in the namespace "+
			"suffices", strings.Join(denied, ", "))
	}

	return nil
}

// mark records the move on the top-level object, and pauses the cluster unless it is paused, in one write, with an ID
// of its own. A change that another process makes meanwhile is read first.
func (r *relocation) mark(ctx context.Context) error {
	r.held = true // also if the answer is lost

	err := r.annotateTop(ctx, func(o client.Object, all map[string]string) error {
		under := pause.MoveOf(o)
		if under.To != "" && under.To != r.to {
			r.held = false

			return fmt.Errorf("another process has begun to move cluster %s to shard %s", r.name, under.To)
		}

		// Another process with the same target notices that, too, and waits for the new pause.
		r.move = pause.Move{To: r.to, ID: pause.NewID()}
		all[v1alpha1.MovingToShardAnnotation] = r.move.String()

		switch v, ok := all[v1alpha1.PausedAnnotation]; {
		case !ok:
			all[v1alpha1.PausedAnnotation] = valueShard
		case v == "false":
			all[v1alpha1.PausedAnnotation] = valueShardFalse
		}

		return nil
	})
	r.marked = time.Now()

	return err
}

// begin records that labels are being changed, as long as the cluster is paused.
func (r *relocation) begin(ctx context.Context) error {
	return r.annotateTop(ctx, func(o client.Object, all map[string]string) error {
		if err := r.holds(o); err != nil {
			return err
		}

		r.torn, r.move.Labels = true, true
		all[v1alpha1.MovingToShardAnnotation] = r.move.String()

		return nil
	})
}

// resume ends the move, and the pause if it is of the move. It returns whether the cluster stays paused. What another
// process with the same target has begun meanwhile is its own.
func (r *relocation) resume(ctx context.Context) (paused bool, err error) {
	err = r.annotateTop(ctx, func(o client.Object, all map[string]string) error {
		if under := pause.MoveOf(o); under.To != "" && (under.To != r.to || under.Labels != r.move.Labels) {
			return fmt.Errorf("another process is moving cluster %s to shard %s", r.name, under.To)
		}

		delete(all, v1alpha1.MovingToShardAnnotation)

		switch all[v1alpha1.PausedAnnotation] {
		case valueShard:
			delete(all, v1alpha1.PausedAnnotation)
		case valueShardFalse:
			all[v1alpha1.PausedAnnotation] = "false"
		}

		v, ok := all[v1alpha1.PausedAnnotation]
		paused = ok && v != "false"

		return nil
	})
	if err == nil {
		r.held, r.torn, r.move = false, false, pause.Move{}
	}

	return paused, err
}

func (r *relocation) top() reference {
	if r.cluster.Top != nil {
		return reference{session.KindCluster, r.cluster.Top.Name}
	}

	return reference{session.KindControlPlane, r.cluster.ControlPlane.Name}
}

func (r *relocation) annotateTop(ctx context.Context, change func(client.Object, map[string]string) error) error {
	top := r.top()

	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		o, err := get(ctx, r.Plane, top)
		if err != nil {
			return err
		}

		all := map[string]string{}
		maps.Copy(all, o.GetAnnotations())

		if err := change(o, all); err != nil || maps.Equal(all, o.GetAnnotations()) {
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
// It returns also how many objects the cluster has.
func (r *relocation) strays(ctx context.Context) (strays []client.Object, total int, err error) {
	var all []client.Object

	for _, list := range shard.Lists() {
		if err := r.List(ctx, list, client.InNamespace(r.Namespace)); err != nil {
			return nil, 0, session.Explain("listing the objects of "+r.name, err)
		}

		err := meta.EachListItem(list, func(i runtime.Object) error {
			if o, ok := i.(client.Object); ok {
				all = append(all, o)
			}

			return nil
		})
		if err != nil {
			return nil, 0, fmt.Errorf("reading the objects of %s: %w", r.name, err)
		}
	}

	members := shard.Members(all, rootOf(r.cluster))
	total = len(members)

	return slices.DeleteFunc(members, func(o client.Object) bool { return o.GetLabels()[shard.Label] == r.to }), total, nil
}

// relabel changes the labels until those that are read again are the new one, as long as the cluster is paused.
func (r *relocation) relabel(ctx context.Context, result *shardMoved, from map[string]bool) error {
	top := r.top()

	for range mostRounds {
		strays, _, err := r.strays(ctx)
		if err != nil || len(strays) == 0 {
			return err
		}

		r.say("Changing the label of %s", output.Plural(len(strays), "object"))

		for _, o := range strays {
			root, err := get(ctx, r.Plane, top)
			if err != nil {
				return err
			}

			if err := r.holds(root); err != nil {
				return err
			}

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
func (r *relocation) label(ctx context.Context, o client.Object, opts ...client.PatchOption) error {
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

	opts = append(opts, client.FieldOwner(fieldManager))

	err = r.Patch(ctx, target, client.RawPatch(types.MergePatchType, patch), opts...)
	if apierrors.IsNotFound(err) {
		return nil
	}

	return err
}
