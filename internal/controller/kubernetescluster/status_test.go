package kubernetescluster_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/app"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/metrics"
	"github.com/talos-operator/talos-operator/test/harness"
)

// report writes what the controllers below say of a control plane and of a group.
func (b *bench) report(plane *v1alpha1.TalosControlPlane, group *v1alpha1.TalosWorker, ready metav1.Condition, workers int32) {
	b.t.Helper()
	b.get(plane, plane.Name)
	b.get(group, group.Name)

	ready.LastTransitionTime = metav1.NewTime(b.clock.Now())
	plane.Status.Conditions = []metav1.Condition{ready}
	group.Status.ReadyReplicas = workers
	group.Status.Conditions = []metav1.Condition{{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: "Told", ObservedGeneration: group.Generation,
		LastTransitionTime: ready.LastTransitionTime,
	}}

	for _, o := range []client.Object{plane, group} {
		if err := b.admin.Status().Update(b.t.Context(), o); err != nil {
			b.t.Fatal(err)
		}
	}
}

// summary: phase, numbers and Ready follow what is below, in both directions.
func (b *bench) summary() {
	c := b.create("summary", good)
	b.reconcile(c)

	plane, group := &v1alpha1.TalosControlPlane{}, &v1alpha1.TalosWorker{}
	plane.Name, group.Name = "summary", "summary-web"
	b.get(plane, plane.Name)

	is := func(kind string, status metav1.ConditionStatus, generation int64) metav1.Condition {
		return metav1.Condition{
			Type: kind, Status: status, Reason: "Told", Message: "told by the test", ObservedGeneration: generation,
		}
	}

	steps := []struct {
		name    string
		plane   metav1.Condition
		workers int32
		phase   vitistackv1alpha1.ClusterPhase
		ready   metav1.ConditionStatus
		text    string
	}{
		{"nothing yet", is("Ready", "False", plane.Generation), 0, "Provisioning", "False", "told by the test"},
		{"of an older spec", is("Ready", "True", plane.Generation-1), 2, "Provisioning", "False", "told by the test"},
		{"one worker", is("Ready", "True", plane.Generation), 1, "Provisioning", "False", "1 of 2 workers"},
		{"complete", is("Ready", "True", plane.Generation), 2, "Running", "True", vitistackv1alpha1.ReasonReady},
		{"stalled", is("Stalled", "True", plane.Generation), 2, "Failed", "False", "Told: control plane: told by the test"},
		{"well again", is("Ready", "True", plane.Generation), 2, "Running", "True", ""},
	}

	for _, s := range steps {
		b.report(plane, group, s.plane, s.workers)
		b.clock.SetTime(b.clock.Now().Add(time.Minute))

		before := c.ResourceVersion
		b.reconcile(c)
		b.condition(c, vitistackv1alpha1.ConditionReady, s.ready, s.text)

		st := c.Status
		if st.Phase != s.phase || st.WorkersReady != s.workers || st.MachineCount != 5 ||
			meta.IsStatusConditionTrue(st.Conditions, v1alpha1.ConditionStalled) != (s.name == "stalled") ||
			st.ControlPlaneReady != (s.text != "told by the test" && s.phase != "Failed") {
			b.t.Errorf("%s: %+v", s.name, st)
		}

		if at := st.LastUpdated; c.ResourceVersion != before && !at.Time.Equal(b.clock.Now()) {
			b.t.Errorf("%s: last updated %s at %s", s.name, at, b.clock.Now())
		}
	}

	// A dry run does not take a machine out, and does not claim that the spec is met.
	metav1.SetMetaDataAnnotation(&c.ObjectMeta, v1alpha1.ReconcileModeAnnotation, "DryRun")
	b.replicas(c, 1)
	b.condition(c, vitistackv1alpha1.ConditionReady, metav1.ConditionFalse, "summary-web-1 would be taken out")

	c.Spec.Workers[0].Replicas = 2
	b.update(c)
	b.reconcile(c)
	b.condition(c, vitistackv1alpha1.ConditionReady, metav1.ConditionTrue, "")
}

// refusedBelow: what a machine of a worker group refuses shows at the top.
func (b *bench) refusedBelow() {
	c := b.create("below", good)
	b.reconcile(c)

	group := &v1alpha1.TalosWorker{}
	b.get(group, "below-web")
	group.Status.Conditions = []metav1.Condition{{
		Type: v1alpha1.ConditionStalled, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonConfigRefused,
		Message: "below-web-0: no such field", LastTransitionTime: metav1.NewTime(b.clock.Now()),
	}}

	if err := b.admin.Status().Update(b.t.Context(), group); err != nil {
		b.t.Fatal(err)
	}

	b.reconcile(c)

	const text = v1alpha1.ReasonConfigRefused + ": below-web: below-web-0: no such field"

	b.condition(c, vitistackv1alpha1.ConditionReady, metav1.ConditionFalse, text)
	b.condition(c, v1alpha1.ConditionStalled, metav1.ConditionTrue, text)

	if c.Status.Phase != vitistackv1alpha1.PhaseFailed {
		b.t.Errorf("phase %s", c.Status.Phase)
	}
}

// refused: rules that the API server cannot check. Each one makes nothing, names the field and is corrected by an edit.
func (b *bench) refused() {
	const twoNodes = `
      machineTemplate: {spec: {provider: {name: static, addresses: [10.1.1.1, 10.1.1.1]}}}
`

	tests := map[string]struct {
		old, bad string
		text     string
	}{
		"kubernetes":  {"v1.36.2", "v1.2.3", "v1.2.3"},
		"static":      {"    - {name: web, replicas: 2}\n", "    - name: web\n      replicas: 3" + twoNodes, "provider.addresses"},
		"duplicate":   {"    - {name: web, replicas: 2}\n", "    - name: web\n      replicas: 2" + twoNodes, "10.1.1.1"},
		"group-name":  {"name: web", "name: cp", "spec.workers[0]"},
		"contradicts": {"workers:", "talosConfig: {cluster: {name: another}}\n  clusterName: refused-contradicts\n  workers:", "another"},
		"overlap":     {"workers:", "podSubnets: [10.96.0.0/16]\n  serviceSubnets: [10.96.0.0/12]\n  workers:", "Subnets"},
		"token":       {"workers:", "talosConfig: {machine: {token: hush}}\n  workers:", "talosConfig.machine.token"},
		"patch": {
			"{replicas: 3}", "{replicas: 3, machineTemplate: {spec: {configPatches: ['machine: [']}}}",
			"spec.controlPlane.machineTemplate.spec.configPatches",
		},
		"service": {
			"{replicas: 3}", "{replicas: 3, machineTemplate: {spec: {extensionServices: [{name: a}]}}}",
			"spec.controlPlane.machineTemplate.spec.extensionServices[a]",
		},
		"pod": {
			"{replicas: 3}", "{replicas: 3, machineTemplate: {spec: {staticPods: [{metadata: {name: b}}]}}}",
			"spec.controlPlane.machineTemplate.spec.staticPods[default/b]",
		},
		"volume": {
			"{replicas: 3}", "{replicas: 3, machineTemplate: {spec: {volumes: {ephemeral: {minSize: large}}}}}",
			"spec.controlPlane.machineTemplate.spec.volumes.ephemeral.minSize",
		},
		"kernel": {
			"{replicas: 3}", "{replicas: 3, machineTemplate: {spec: {sysctls: {net.ifnames: '0'}}}}",
			"spec.controlPlane.machineTemplate.spec.sysctls[net.ifnames]",
		},
		"label": {
			"{replicas: 3}", "{replicas: 3, machineTemplate: {spec: {nodeLabels: {'a b': c}}}}",
			"spec.controlPlane.machineTemplate.spec.nodeLabels",
		},
	}

	for name, tc := range tests {
		c := b.create("refused-"+name, strings.Replace(good, tc.old, tc.bad, 1))
		b.reconcile(c)
		b.condition(c, vitistackv1alpha1.ConditionTopologyValid, metav1.ConditionFalse, tc.text)
		b.condition(c, vitistackv1alpha1.ConditionReady, metav1.ConditionFalse, tc.text)
		b.condition(c, v1alpha1.ConditionStalled, metav1.ConditionTrue, tc.text)

		if got := b.children(c); len(got) != 0 || c.Status.Phase != vitistackv1alpha1.PhaseFailed ||
			c.Status.MachineCount != 0 || !b.warned(tc.text) {
			b.t.Errorf("%s: children %v, status %+v, or no event", name, got, c.Status)
		}

		if _, err := os.Stat(filepath.Join(b.dir, c.Name)); !os.IsNotExist(err) {
			b.t.Errorf("%s: files (%v)", name, err)
		}

		for _, condition := range c.Status.Conditions {
			if strings.Contains(condition.Message, "hush") {
				b.t.Errorf("%s: a secret is quoted: %s", name, condition.Message)
			}
		}

		b.mend(c)
	}
}

// mend edits the spec and expects the cluster to be built.
func (b *bench) mend(c *vitistackv1alpha1.KubernetesCluster) {
	b.t.Helper()

	c.Spec.KubernetesVersion, c.Spec.TalosConfig = "v1.36.2", nil
	c.Spec.ControlPlane.MachineTemplate = vitistackv1alpha1.MachineTemplate{}
	c.Spec.Workers = []vitistackv1alpha1.WorkerGroup{{Name: "web", Replicas: 2}}

	// Subnets never change, so the pods' have to be right from the start; a cluster without nodes is applied anew.
	if len(c.Spec.PodSubnets) > 0 {
		return
	}

	b.update(c)
	b.reconcile(c)
	b.condition(c, vitistackv1alpha1.ConditionTopologyValid, metav1.ConditionTrue, "")

	if got := b.children(c); len(got) != 7 || c.Status.Phase != vitistackv1alpha1.PhaseProvisioning ||
		meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionStalled) != nil {
		b.t.Errorf("%s, mended: children %v, status %+v", c.Name, got, c.Status)
	}
}

// held: a paused cluster is shown and not touched, neither built nor taken down.
func (b *bench) held() {
	c := b.create("held", strings.Replace(good, "{name: NAME", "{name: NAME, annotations: {"+v1alpha1.PausedAnnotation+
		": 'true'}", 1))
	b.reconcile(c)
	b.condition(c, v1alpha1.ConditionPaused, metav1.ConditionTrue, "")
	b.condition(c, vitistackv1alpha1.ConditionReady, metav1.ConditionFalse, vitistackv1alpha1.ReasonPaused)

	if got := b.children(c); len(got) != 0 || len(c.Finalizers) != 0 {
		b.t.Errorf("children %v, finalizers %v", got, c.Finalizers)
	}

	delete(c.Annotations, v1alpha1.PausedAnnotation)
	b.update(c)
	b.reconcile(c)

	before := b.children(c)
	if len(before) != 7 || meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionPaused) != nil {
		b.t.Errorf("released: children %v, %+v", before, c.Status.Conditions)
	}

	metav1.SetMetaDataAnnotation(&c.ObjectMeta, v1alpha1.PausedAnnotation, "true")
	b.update(c)

	if err := b.admin.Delete(b.t.Context(), c); err != nil {
		b.t.Fatal(err)
	}

	b.reconcile(c)

	if diff := cmp.Diff(before, b.children(c)); diff != "" || len(c.Finalizers) == 0 {
		b.t.Errorf("a paused cluster was taken down: finalizers %v, children (-before +after):\n%s", c.Finalizers, diff)
	}
}

// modes: a dry run shows what the spec is worth and makes nothing; a disabled cluster is not even observed.
func (b *bench) modes() {
	c := b.create("modes", strings.Replace(good, "{name: NAME", "{name: NAME, annotations: {"+
		v1alpha1.ReconcileModeAnnotation+": DryRun}", 1))
	b.reconcile(c)
	b.condition(c, v1alpha1.ConditionPaused, metav1.ConditionTrue, "DryRun")
	b.condition(c, vitistackv1alpha1.ConditionTopologyValid, metav1.ConditionTrue, "")
	b.condition(c, vitistackv1alpha1.ConditionReady, metav1.ConditionFalse, "the control plane is being created")

	if got := b.children(c); len(got) != 0 || len(c.Finalizers) != 0 {
		b.t.Errorf("children %v, finalizers %v", got, c.Finalizers)
	}

	metav1.SetMetaDataAnnotation(&c.ObjectMeta, v1alpha1.ReconcileModeAnnotation, "Disabled")
	b.update(c)
	b.reconcile(c)
	b.condition(c, v1alpha1.ConditionPaused, metav1.ConditionTrue, "Disabled")

	written := c.ResourceVersion

	b.reconcile(c)

	if c.ResourceVersion != written {
		b.t.Errorf("a disabled cluster was written: %+v", c.Status)
	}

	delete(c.Annotations, v1alpha1.ReconcileModeAnnotation)
	b.update(c)
	b.reconcile(c)

	if got := b.children(c); len(got) != 7 || meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionPaused) != nil {
		b.t.Errorf("released: children %v, %+v", got, c.Status.Conditions)
	}
}

// blocked: files that cannot be written are told, and keep nothing from being built.
func (b *bench) blocked() {
	path := filepath.Join(b.dir, "blocked")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		b.t.Fatal(err)
	}

	logs := &harness.Log{}

	logger, err := app.NewLogger(logs, "info")
	if err != nil {
		b.t.Fatal(err)
	}

	before := b.counted("FileSystemError")
	c := b.create("blocked", good)
	ctx := ctrl.LoggerInto(b.t.Context(), logger)

	for range 2 {
		if _, err := b.r.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(c)}); err != nil {
			b.t.Error(err)
		}
	}

	b.reconcile(c)
	b.condition(c, vitistackv1alpha1.ConditionFilesGenerated, metav1.ConditionFalse,
		vitistackv1alpha1.ReasonGenerationFailed+": the manifests in "+path+" could not be written or removed: not a directory")

	if said := strings.Count(logs.String(), path+": not a directory"); said != 1 {
		b.t.Errorf("the log says %d times why:\n%s", said, logs)
	}

	if n := b.counted("FileSystemError") - before; n < 3 {
		b.t.Errorf("%f errors are counted", n)
	}

	b.condition(c, vitistackv1alpha1.ConditionMachinesCreated, metav1.ConditionTrue, "")

	if got := b.children(c); len(got) != 7 || c.Status.Phase != vitistackv1alpha1.PhaseProvisioning {
		b.t.Errorf("children %v, phase %s", got, c.Status.Phase)
	}

	if err := os.Remove(path); err != nil {
		b.t.Fatal(err)
	}

	res, err := b.r.Reconcile(b.t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(c)})
	if err != nil || res.RequeueAfter == 0 {
		b.t.Errorf("it does not look again: %+v, %v", res, err)
	}

	b.get(c, "blocked")
	b.condition(c, vitistackv1alpha1.ConditionFilesGenerated, metav1.ConditionTrue, "")
}

// full is the client of an operator whose namespace has no room for another object.
type full struct{ client.Client }

// Apply implements client.Writer.
func (full) Apply(context.Context, runtime.ApplyConfiguration, ...client.ApplyOption) error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: "machines"}, "m", errors.New("exceeded quota: few"))
}

// quota: what the API server says to a Machine that could not be created is told.
func (b *bench) quota() {
	room := b.r.Client
	b.r.Client = full{room}
	c := b.create("quota", good)
	b.reconcile(c)
	b.condition(c, vitistackv1alpha1.ConditionMachinesCreated, metav1.ConditionFalse, "exceeded quota: few; trying again")

	b.r.Client = room
	b.reconcile(c)
	b.condition(c, vitistackv1alpha1.ConditionMachinesCreated, metav1.ConditionTrue, "")
}

// counted are the errors of a type.
func (b *bench) counted(errorType string) float64 {
	m := &dto.Metric{}
	if err := metrics.Errors.WithLabelValues("kubernetescluster", errorType).Write(m); err != nil {
		b.t.Fatal(err)
	}

	return m.GetCounter().GetValue()
}

// again: a name that another owner has is checked again, although it is no event of the cluster that it is free. It
// counts as an error all the same.
func (b *bench) again() {
	theirs := &vitistackv1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "again-cp-1", Namespace: b.ns}}
	if err := b.admin.Create(b.t.Context(), theirs); err != nil {
		b.t.Fatal(err)
	}

	counted := func() float64 { return b.counted("OwnerReferenceError") }
	before := counted()

	c := b.create("again", good)

	// As the manager calls it.
	manages := failure.Revisit(metrics.Observe("kubernetescluster", b.r))

	res, err := manages.Reconcile(b.t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(c)})
	if err != nil || res.RequeueAfter != b.r.Resync || counted() <= before {
		b.t.Errorf("it is looked at again after %s, %f errors: %v", res.RequeueAfter, counted()-before, err)
	}

	b.reconcile(c)
	b.condition(c, v1alpha1.ConditionStalled, metav1.ConditionTrue, "OwnerReferenceError")
}
