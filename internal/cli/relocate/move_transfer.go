package relocate

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/cli/access"
	"github.com/talos-operator/talos-operator/internal/cli/session"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/kube"
	"github.com/talos-operator/talos-operator/internal/pause"
)

// pollPaused is how often the source is checked for unpaused objects.
const pollPaused = 250 * time.Millisecond

// transfer is one move.
type transfer struct {
	from, to *session.Plane
	name     string
	timeout  time.Duration
	say      func(format string, args ...any)

	source  *session.Cluster
	state   *clusterstate.State
	backups backups
	items   []reference
	// uids maps the UIDs of the source to those of the target.
	uids map[types.UID]types.UID
	// paused is true once the source is paused; pauseID is what its objects have to show.
	paused  bool
	pauseID string
	// done is true if an earlier run released the copy, which is not changed any more.
	done bool
}

// check refuses a move that could not succeed, before anything is changed.
func (t *transfer) check(ctx context.Context) error {
	if err := t.load(ctx); err != nil {
		return err
	}

	if err := t.checkPlanes(ctx); err != nil {
		return err
	}

	if err := busy(t.from, t.source, t.state, &t.backups); err != nil {
		return err
	}

	if to := pause.MoveOf(rootOf(t.source)).To; to != "" {
		return fmt.Errorf("cluster %s is being moved to another shard; complete that move first: talos-operator shard "+
			"move %s -n %s --to %s", t.name, t.name, t.from.Namespace, to)
	}

	return t.checkTarget(ctx)
}

// load reads the source.
func (t *transfer) load(ctx context.Context) error {
	c, err := session.FindCluster(ctx, t.from, t.name)
	if err != nil {
		return err
	}

	t.source, t.uids = c, map[types.UID]types.UID{}

	if t.state, err = access.LoadState(ctx, t.from, c); err != nil {
		return err
	}

	if t.backups, err = findBackups(ctx, t.from, c.ControlPlane.Name); err != nil {
		return err
	}

	t.items, err = t.references(ctx)

	return err
}

func (t *transfer) names() []string {
	out := make([]string, 0, len(t.items))
	for _, r := range t.items {
		out = append(out, r.String())
	}

	return out
}

// checkPlanes checks that source and target are different API servers, and that the target knows all kinds.
func (t *transfer) checkPlanes(ctx context.Context) error {
	var ids []types.UID

	for _, p := range []*session.Plane{t.from, t.to} {
		system := &corev1.Namespace{}
		if err := p.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, system); err != nil {
			return fmt.Errorf("asking %s for its identity: %w", p.Config.Host, err)
		}

		ids = append(ids, system.UID)
	}

	if ids[0] == ids[1] {
		return fmt.Errorf("%s and %s are the same API server: there is nothing to move", t.from.Config.Host,
			t.to.Config.Host)
	}

	for _, list := range []client.ObjectList{
		&vitistackv1alpha1.KubernetesClusterList{}, &vitistackv1alpha1.MachineList{}, &v1alpha1.TalosControlPlaneList{},
		&v1alpha1.TalosWorkerList{}, &v1alpha1.TalosMachineList{}, &v1alpha1.TalosEtcdBackupList{},
		&v1alpha1.TalosEtcdBackupScheduleList{}, &v1alpha1.TalosEtcdRestoreList{},
	} {
		err := t.to.List(ctx, list, client.InNamespace(t.to.Namespace), client.Limit(1))
		if meta.IsNoMatchError(err) {
			return fmt.Errorf("the CRDs of talos-operator are missing at %s: install them first", t.to.Config.Host)
		}

		if err != nil {
			return fmt.Errorf("looking at %s: %w", t.to.Config.Host, err)
		}
	}

	return nil
}

// checkTarget checks that existing objects of the target with the same names are copies of this move. Once a copy is
// released, it is independent.
func (t *transfer) checkTarget(ctx context.Context) error {
	var foreign []string

	for _, r := range t.items {
		o, have, err := t.both(ctx, r)
		if apierrors.IsNotFound(err) {
			continue
		}

		if err != nil {
			return err
		}

		if have.GetAnnotations()[v1alpha1.MovedFromAnnotation] != string(o.GetUID()) {
			foreign = append(foreign, r.String())

			continue
		}

		if r == t.top() && have.GetAnnotations()[v1alpha1.PausedAnnotation] != valueMoving {
			t.done = true

			return nil
		}

		t.uids[o.GetUID()] = have.GetUID()
	}

	if len(foreign) > 0 {
		return fmt.Errorf("%s exists in namespace %s at %s and is no copy of this cluster: remove it, or move elsewhere",
			strings.Join(foreign, ", "), t.to.Namespace, t.to.Config.Host)
	}

	return nil
}

// both reads an object of the source and its copy.
func (t *transfer) both(ctx context.Context, r reference) (o, have *unstructured.Unstructured, err error) {
	if o, err = get(ctx, t.from, r); err != nil {
		return nil, nil, err
	}

	have, err = get(ctx, t.to, r)

	return o, have, err
}

// move pauses, copies, compares and releases.
func (t *transfer) move(ctx context.Context) error {
	if err := t.holdSchedules(ctx); err != nil {
		return err
	}

	if err := t.awaitBackups(ctx); err != nil {
		return err
	}

	if err := t.pause(ctx); err != nil {
		return err
	}

	// A backup may have begun in between; no further one begins.
	if err := t.awaitBackups(ctx); err != nil {
		return err
	}

	// Include what the operator wrote until it was paused.
	if err := t.load(ctx); err != nil {
		return err
	}

	if err := busy(t.from, t.source, t.state, &t.backups); err != nil {
		return err
	}

	if err := t.ensureNamespace(ctx); err != nil {
		return err
	}

	t.say("Copying %d objects to %s", len(t.items), t.to.Config.Host)

	for _, r := range t.items {
		if err := t.put(ctx, r); err != nil {
			return err
		}
	}

	// Write the state again, because the UID of the control plane is known now.
	if err := t.put(ctx, t.items[0]); err != nil {
		return err
	}

	if err := t.verify(ctx); err != nil {
		return err
	}

	t.say("All is copied and compared; releasing it there")

	return t.release(ctx)
}

// pause pauses the source and waits until all of its objects are paused.
func (t *transfer) pause(ctx context.Context) error {
	if err := t.pauseTop(ctx); err != nil {
		return err
	}

	if err := t.pauseMachines(ctx); err != nil {
		return err
	}

	t.say("Paused at %s; waiting until every object shows it", t.from.Config.Host)

	ctx, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()

	tick := time.NewTicker(pollPaused)
	defer tick.Stop()

	var last []string

	for {
		left, err := unpaused(ctx, t.from, t.name, t.pauseID)
		if err == nil && len(left) == 0 {
			return nil
		}

		if err == nil {
			last = left
		}

		select {
		case <-ctx.Done():
			if len(last) == 0 {
				return fmt.Errorf("waiting for the pause: %w", cmp.Or(err, ctx.Err()))
			}

			return fmt.Errorf("%s did not show the pause within %s: is the operator at %s running, and not older than this "+
				"program?", strings.Join(last, ", "), t.timeout, t.from.Config.Host)
		case <-tick.C:
		}
	}
}

// pauseMachines pauses the Machines: their providers do not check the objects above.
func (t *transfer) pauseMachines(ctx context.Context) error {
	for i := range t.source.Machines {
		o, err := get(ctx, t.from, reference{session.KindMachine, t.source.Machines[i].Name})
		if err != nil {
			return err
		}

		if !kube.IsPaused(o) {
			if err := setPaused(ctx, t.from, o, valueMoved); err != nil {
				return err
			}
		}
	}

	return nil
}

// pauseTop pauses the top-level object with an ID. A pause of this command is gone on with; that of a person may have
// been lifted and set again since an earlier run.
func (t *transfer) pauseTop(ctx context.Context) error {
	o, err := get(ctx, t.from, t.top())
	if err != nil {
		return err
	}

	id := pause.IDOfMove(o)
	if id == "" || o.GetAnnotations()[v1alpha1.PausedAnnotation] != valueMoved {
		id = pause.NewID()
		set := map[string]any{v1alpha1.MovingAnnotation: id}

		if !kube.IsPaused(o) {
			set[v1alpha1.PausedAnnotation] = valueMoved
		}

		if err := annotateAll(ctx, t.from, o, set); err != nil {
			return err
		}
	}

	t.paused, t.pauseID = true, id

	return nil
}

func (t *transfer) ensureNamespace(ctx context.Context) error {
	ns := &corev1.Namespace{}

	err := t.to.Get(ctx, client.ObjectKey{Name: t.to.Namespace}, ns)
	if !apierrors.IsNotFound(err) {
		return err
	}

	ns.Name = t.to.Namespace
	if err := t.to.Create(ctx, ns); client.IgnoreAlreadyExists(err) != nil {
		return fmt.Errorf("creating namespace %s: %w", ns.Name, err)
	}

	return nil
}

// verify reads and compares both sides again: this reveals fields that an older CRD drops, and changes that were made
// on the source in the meantime.
func (t *transfer) verify(ctx context.Context) error {
	for _, r := range t.items {
		o, have, err := t.both(ctx, r)
		if err != nil {
			return err
		}

		want, err := t.copyOf(ctx, o)
		if err != nil {
			return err
		}

		if !sameObject(have, want) {
			return fmt.Errorf("%s is not the same on both sides: it was changed meanwhile, or the CRDs at %s are of another "+
				"version", r, t.to.Config.Host)
		}
	}

	return nil
}

// release removes the pause from the copy, child objects first: the top-level object keeps the others paused until it
// is released last.
func (t *transfer) release(ctx context.Context) error {
	for _, r := range slices.Backward(t.items) {
		if r.isData() {
			continue
		}

		o, have, err := t.both(ctx, r)
		if err != nil {
			return err
		}

		if err := setPaused(ctx, t.to, have, personal(o)); err != nil {
			return err
		}
	}

	return nil
}

// personal returns the value of the paused annotation that a user set; empty if there is none.
func personal(o metav1.Object) string {
	if v := o.GetAnnotations()[v1alpha1.PausedAnnotation]; v != valueMoved {
		return v
	}

	return ""
}

func (t *transfer) heldByPerson() bool {
	if t.source.Top != nil {
		return personal(t.source.Top) != "" && kube.IsPaused(t.source.Top)
	}

	return personal(t.source.ControlPlane) != "" && kube.IsPaused(t.source.ControlPlane)
}

// markMoved records on the source where the cluster was moved to.
func (t *transfer) markMoved(ctx context.Context, to string) error {
	o, err := get(ctx, t.from, t.top())
	if err != nil {
		return err
	}

	// An earlier run may have released the copy, and a user may have resumed the source since then.
	if !kube.IsPaused(o) {
		if err := setPaused(ctx, t.from, o, valueMoved); err != nil {
			return err
		}
	}

	if have := o.GetAnnotations(); have[v1alpha1.MovedToAnnotation] == to && have[v1alpha1.MovingAnnotation] == "" {
		return nil
	}

	return annotateAll(ctx, t.from, o, map[string]any{v1alpha1.MovedToAnnotation: to, v1alpha1.MovingAnnotation: nil})
}

// setPaused sets the paused annotation, or removes it if the value is empty. It writes nothing if nothing changes.
func setPaused(ctx context.Context, p *session.Plane, o *unstructured.Unstructured, value string) error {
	if have, ok := o.GetAnnotations()[v1alpha1.PausedAnnotation]; have == value && ok == (value != "") {
		return nil
	}

	var v any
	if value != "" {
		v = value
	}

	return annotateAll(ctx, p, o, map[string]any{v1alpha1.PausedAnnotation: v})
}

// annotateAll sets annotations in one write, and removes those that are nil.
func annotateAll(ctx context.Context, p *session.Plane, o *unstructured.Unstructured, set map[string]any) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": set}})
	if err != nil {
		return fmt.Errorf("encoding an annotation: %w", err)
	}

	err = p.Patch(ctx, o, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(fieldManager))
	if err != nil {
		return fmt.Errorf("annotating %s/%s at %s: %w", o.GetKind(), o.GetName(), p.Config.Host, err)
	}

	return nil
}
