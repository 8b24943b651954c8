package pause

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/condition"
	"github.com/talos-operator/talos-operator/internal/kube"
)

// strength of a pause. If an object and its parents have several, the strongest applies.
type strength int

const (
	none strength = iota
	paused
	dryRun
	// unknown is a dry run that states its reason: an unknown value of the annotation shows that its author did not want
	// the normal mode.
	unknown
	disabled
)

// Hold is what the annotations on an object and above it permit. The zero Hold permits everything.
type Hold struct {
	strength strength
	// move is the ID of the move that is under way, between shards or management clusters.
	move string
}

// Untouched says what happens to machines that were removed from their list while their group is paused.
const Untouched = "no machine is removed while the object is paused"

// Any reports whether the object is paused in any way: nothing is written to a node or to another object.
func (h Hold) Any() bool { return h.strength > none }

// Live reports whether the whole status is computed as if the object were not paused.
func (h Hold) Live() bool { return h.strength == none || h.strength == dryRun || h.strength == unknown }

// Disabled reports whether nothing is done at all.
func (h Hold) Disabled() bool { return h.strength == disabled }

// Show sets the condition Paused.
func (h Hold) Show(set condition.Set) {
	reason, message := v1alpha1.ReasonPaused, "the paused annotation is set here or above"

	switch h.strength {
	case none:
		return
	case paused:
	case dryRun:
		reason, message = v1alpha1.ReasonDryRun, "the reconcile mode here or above is DryRun: only the status is written"
	case unknown:
		reason = v1alpha1.ReasonInvalidReconcileMode
		message = "the reconcile mode here or above is none of Reconcile, DryRun, Disabled; it counts as DryRun"
	case disabled:
		reason = v1alpha1.ReasonDisabled
		message = "the reconcile mode here or above is Disabled: nothing is done, and the status is not kept"
	}

	if h.move != "" {
		message += shownMove(h.move)
	}

	set.True(v1alpha1.ConditionPaused, reason, message)
}

// ShowWould sets the condition that reports, in a dry run, what would be written to other objects. It is removed
// together with the pause.
func (h Hold) ShowWould(set condition.Set, would []string) {
	set.While(h.Any() && h.Live() && len(would) > 0, v1alpha1.ConditionWouldChange, v1alpha1.ReasonDryRun,
		kube.Shorten("the operator would "+strings.Join(would, "; "), longestWould))
}

// longestWould is the maximum length of the message of that condition.
const longestWould = 1000

// Of returns what the annotations on the object itself permit.
func Of(o metav1.Object) Hold {
	h := none
	if kube.IsPaused(o) {
		h = paused
	}

	mode, ok := o.GetAnnotations()[v1alpha1.ReconcileModeAnnotation]
	if !ok {
		return Hold{strength: h, move: idOf(o)}
	}

	switch v1alpha1.ReconcileMode(mode) {
	case v1alpha1.ReconcileModeReconcile:
	case v1alpha1.ReconcileModeDryRun:
		h = dryRun
	case v1alpha1.ReconcileModeDisabled:
		h = disabled
	default:
		h = unknown
	}

	return Hold{strength: h, move: idOf(o)}
}

// add applies the annotations of another object, too.
func (h *Hold) add(o metav1.Object) {
	other := Of(o)
	h.strength, h.move = max(h.strength, other.strength), cmp.Or(h.move, other.move)
}

// Find combines the annotations of the objects, of the KubernetesClusters that control them, and of the Machines that
// TalosMachines run on. Objects must not be nil. An object that cannot be read is an error: nothing may be sent to a
// node unless it is known not to be paused.
func Find(ctx context.Context, c client.Reader, objects ...client.Object) (Hold, error) {
	var out Hold

	asked := map[string]bool{}

	for _, o := range objects {
		out.add(o)

		if infra, err := machineOf(ctx, c, o); err != nil {
			return Hold{}, err
		} else if infra != nil {
			out.add(infra)
		}

		name, ok := clusterOf(o)
		if !ok || asked[name] {
			continue
		}

		asked[name] = true

		cluster := &vitistackv1alpha1.KubernetesCluster{}

		switch err := c.Get(ctx, client.ObjectKey{Namespace: o.GetNamespace(), Name: name}, cluster); {
		case apierrors.IsNotFound(err):
		case err != nil:
			return Hold{}, fmt.Errorf("finding out whether KubernetesCluster %s is paused: %w", name, err)
		default:
			out.add(cluster)
		}
	}

	return out, nil
}

// machineOf returns the Machine that the node of a TalosMachine runs on; nil for all other objects, and if it is
// unknown.
func machineOf(ctx context.Context, c client.Reader, o client.Object) (*vitistackv1alpha1.Machine, error) {
	m, ok := o.(*v1alpha1.TalosMachine)
	if !ok || m.Spec.MachineRef == nil {
		return nil, nil // there is none, and that is no error
	}

	infra := &vitistackv1alpha1.Machine{}

	err := c.Get(ctx, client.ObjectKey{Namespace: m.Namespace, Name: m.Spec.MachineRef.Name}, infra)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}

	if err != nil {
		return nil, fmt.Errorf("finding out whether Machine %s is paused: %w", m.Spec.MachineRef.Name, err)
	}

	return infra, nil
}

// Holds reports whether the node of a machine is paused, by the machine itself or by the Machine that it runs on. It is
// for controllers of other objects that send something to a node. If the state cannot be determined, the node counts as
// paused.
func Holds(ctx context.Context, c client.Reader, m *v1alpha1.TalosMachine) bool {
	hold, err := Find(ctx, c, m)

	return err != nil || hold.Any()
}

// Settle writes once that an object is disabled, and nothing else.
func (h Hold) Settle(ctx context.Context, c client.Client, o, base client.Object,
	conditions *[]metav1.Condition,
) error {
	h.Show(condition.Set{Conditions: conditions, Generation: o.GetGeneration()})

	return client.IgnoreNotFound(kube.PatchStatus(ctx, c, o, base))
}
