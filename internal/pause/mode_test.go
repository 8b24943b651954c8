package pause_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/condition"
	"github.com/talos-operator/talos-operator/internal/pause"
	"github.com/talos-operator/talos-operator/test/plane"
)

var planes *plane.Plane

func TestMain(m *testing.M) { plane.Main(m, &planes) }

// marks are the two annotations; an empty string stands for none.
type marks struct{ paused, mode string }

func (m marks) on(o client.Object) {
	a := map[string]string{}
	if m.paused != "" {
		a[v1alpha1.PausedAnnotation] = m.paused
	}

	if m.mode != "" {
		a[v1alpha1.ReconcileModeAnnotation] = m.mode
	}

	o.SetAnnotations(a)
}

// TestFind: of all annotations on an object and above it the strictest applies, and an unknown mode is a dry run that
// reports itself as such.
func TestFind(t *testing.T) {
	ns, admin := planes.Namespace(t), planes.Admin(t)

	for name, tt := range map[string]struct {
		own, parent, top marks
		reason           string
		live, disabled   bool
	}{
		"nothing":               {live: true},
		"reconcile":             {own: marks{mode: "Reconcile"}, top: marks{paused: "false"}, live: true},
		"paused here":           {own: marks{paused: "yes"}, reason: v1alpha1.ReasonPaused},
		"paused at the top":     {top: marks{paused: "true"}, reason: v1alpha1.ReasonPaused},
		"reconcile below pause": {own: marks{mode: "Reconcile"}, top: marks{paused: "true"}, reason: v1alpha1.ReasonPaused},
		"dry run here":          {own: marks{mode: "DryRun"}, reason: v1alpha1.ReasonDryRun, live: true},
		"dry run above":         {parent: marks{mode: "DryRun"}, reason: v1alpha1.ReasonDryRun, live: true},
		"dry run at the top":    {own: marks{mode: "Reconcile"}, top: marks{mode: "DryRun"}, reason: v1alpha1.ReasonDryRun, live: true},
		"dry run and paused":    {own: marks{"true", "DryRun"}, reason: v1alpha1.ReasonDryRun, live: true},
		"unknown":               {own: marks{mode: "dryrun"}, reason: v1alpha1.ReasonInvalidReconcileMode, live: true},
		"unknown below dry run": {own: marks{mode: "off"}, top: marks{mode: "DryRun"}, reason: v1alpha1.ReasonInvalidReconcileMode, live: true},
		"disabled":              {own: marks{mode: "Disabled"}, reason: v1alpha1.ReasonDisabled, disabled: true},
		"disabled at the top": {
			own: marks{mode: "DryRun"}, parent: marks{paused: "true"}, top: marks{mode: "Disabled"},
			reason: v1alpha1.ReasonDisabled, disabled: true,
		},
	} {
		top := &vitistackv1alpha1.KubernetesCluster{ObjectMeta: metav1.ObjectMeta{Namespace: ns, GenerateName: "k-"}}
		top.Spec.TalosVersion, top.Spec.KubernetesVersion = "v1.13.9", "v1.36.2"
		top.Spec.ClusterEndpoint, top.Spec.ControlPlane.Replicas = "https://10.0.0.1:6443", 1
		tt.top.on(top)

		if err := admin.Create(t.Context(), top); err != nil {
			t.Fatal(err)
		}

		yes := true
		cp := &v1alpha1.TalosControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: ns, OwnerReferences: []metav1.OwnerReference{{
			APIVersion: vitistackv1alpha1.GroupVersion.String(), Kind: "KubernetesCluster", Name: top.Name,
			UID: top.UID, Controller: &yes,
		}}}}
		tt.parent.on(cp)

		m := &v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Namespace: ns, UID: types.UID("m")}}
		tt.own.on(m)

		hold, err := pause.Find(t.Context(), planes.Manager(t), m, cp)
		if err != nil {
			t.Fatal(err)
		}

		var conditions []metav1.Condition

		hold.Show(condition.Set{Conditions: &conditions})

		reason := ""
		if len(conditions) == 1 && conditions[0].Type == v1alpha1.ConditionPaused {
			reason = conditions[0].Reason
		}

		if reason != tt.reason || hold.Any() != (tt.reason != "") || hold.Live() != tt.live || hold.Disabled() != tt.disabled {
			t.Errorf("%s: %+v with reason %q", name, hold, reason)
		}
	}
}

// TestMove: the condition Paused tells of which move between shards the pause is, and only an ID gets into it.
func TestMove(t *testing.T) {
	t.Parallel()

	for annotation, want := range map[string]pause.Move{
		"":                      {},
		"2":                     {To: "2"},
		"2/0123abcd":            {To: "2", ID: "0123abcd"},
		"2/0123abcd/labels":     {To: "2", ID: "0123abcd", Labels: true},
		"2/<b>0123abcd</b>":     {To: "2"},
		"2/0123abcde/labels/..": {To: "2", Labels: true},
	} {
		o := &v1alpha1.TalosControlPlane{}
		o.Annotations = map[string]string{v1alpha1.PausedAnnotation: "true", v1alpha1.MovingToShardAnnotation: annotation}

		got := pause.MoveOf(o)
		if got != want || pause.ParseMove(got.String()) != want {
			t.Errorf("%q: %+v", annotation, got)
		}

		var conditions []metav1.Condition

		pause.Of(o).Show(condition.Set{Conditions: &conditions})

		if got.Shown(conditions) != (want.ID != "") || (pause.Move{To: "2", ID: "76543210"}).Shown(conditions) {
			t.Errorf("%q: the conditions are %v", annotation, conditions)
		}
	}

	// A move to another management cluster has an ID of its own.
	for annotation, want := range map[string]string{"": "", "0123abcd": "0123abcd", "<b>0123abcd": ""} {
		o := &v1alpha1.TalosControlPlane{}
		o.Annotations = map[string]string{v1alpha1.PausedAnnotation: "moved", v1alpha1.MovingAnnotation: annotation}

		var conditions []metav1.Condition

		pause.Of(o).Show(condition.Set{Conditions: &conditions})

		if got := pause.IDOfMove(o); got != want || pause.Shown("0123abcd", conditions) != (want != "") {
			t.Errorf("%q: %q, the conditions are %v", annotation, got, conditions)
		}
	}
}
