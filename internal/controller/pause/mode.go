package pause

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/controller/condition"
	"github.com/talos-operator/talos-operator/internal/kube"
)

// strength of a hold; of several the strongest counts, wherever it stands.
type strength int

const (
	none strength = iota
	paused
	dryRun
	// unknown is a dry run that says why: who wrote the annotation wanted something else than the usual.
	unknown
	disabled
)

// Hold is what the annotations on an object and above it allow. The zero Hold allows everything.
type Hold struct{ strength strength }

// Untouched says of machines that left their list what happens to them while their group is held.
const Untouched = "no machine is removed while the object is paused"

// Any tells whether anything is held: no node and no other object is written to.
func (h Hold) Any() bool { return h.strength > none }

// Live tells whether the whole status is computed, as if nothing were held.
func (h Hold) Live() bool { return h.strength == none || h.strength == dryRun || h.strength == unknown }

// Disabled tells whether nothing is done at all.
func (h Hold) Disabled() bool { return h.strength == disabled }

// Show sets the condition Paused of what is held.
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

	set.True(v1alpha1.ConditionPaused, reason, message)
}

// ShowWould sets the condition that tells, in a dry run, what would be written to other objects; it goes with the hold.
func (h Hold) ShowWould(set condition.Set, would []string) {
	set.While(h.Any() && h.Live() && len(would) > 0, v1alpha1.ConditionWouldChange, v1alpha1.ReasonDryRun,
		kube.Shorten("the operator would "+strings.Join(would, "; "), longestWould))
}

// longestWould is the longest message of the condition.
const longestWould = 1000

// Of is what the annotations on the object itself say.
func Of(o metav1.Object) Hold {
	h := none
	if kube.IsPaused(o) {
		h = paused
	}

	mode, ok := o.GetAnnotations()[v1alpha1.ReconcileModeAnnotation]
	if !ok {
		return Hold{h}
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

	return Hold{h}
}

// Find combines the annotations of the objects, of the KubernetesClusters that control them, and of the Machines that
// TalosMachines run on. Objects may not be nil.
// What cannot be read is an error: without knowing, nothing may be sent to a node.
func Find(ctx context.Context, c client.Reader, objects ...client.Object) (Hold, error) {
	var out Hold

	asked := map[string]bool{}

	for _, o := range objects {
		out.strength = max(out.strength, Of(o).strength)

		if infra, err := machineOf(ctx, c, o); err != nil {
			return Hold{}, err
		} else if infra != nil {
			out.strength = max(out.strength, Of(infra).strength)
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
			out.strength = max(out.strength, Of(cluster).strength)
		}
	}

	return out, nil
}

// machineOf is the Machine that the node of a TalosMachine runs on; nil for everything else, and where it is not known.
func machineOf(ctx context.Context, c client.Reader, o client.Object) (*vitistackv1alpha1.Machine, error) {
	m, ok := o.(*v1alpha1.TalosMachine)
	if !ok || m.Spec.MachineRef == nil {
		return nil, nil //nolint:nilnil // there is none, and that is no error
	}

	infra := &vitistackv1alpha1.Machine{}

	err := c.Get(ctx, client.ObjectKey{Namespace: m.Namespace, Name: m.Spec.MachineRef.Name}, infra)
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // as above
	}

	if err != nil {
		return nil, fmt.Errorf("finding out whether Machine %s is paused: %w", m.Spec.MachineRef.Name, err)
	}

	return infra, nil
}

// Holds tells whether the node of a machine is held, by the machine itself or by the Machine that it runs on. It is for
// those who send something to a node and are held by other objects. Where that cannot be found out it counts as held.
func Holds(ctx context.Context, c client.Reader, m *v1alpha1.TalosMachine) bool {
	hold, err := Find(ctx, c, m)

	return err != nil || hold.Any()
}

// Settle writes that an object is disabled, once, and nothing else.
func (h Hold) Settle(ctx context.Context, c client.Client, o, base client.Object,
	conditions *[]metav1.Condition,
) error {
	h.Show(condition.Set{Conditions: conditions, Generation: o.GetGeneration()})

	return client.IgnoreNotFound(kube.PatchStatus(ctx, c, o, base))
}
