package taloscontrolplane

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/controller/condition"
	"github.com/talos-operator/talos-operator/internal/controller/rollout"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/kube"
	"github.com/talos-operator/talos-operator/internal/plan"
)

// finish derives the status from this pass, writes it once and maps the error to a result.
func (r *Reconciler) finish(ctx context.Context, s *scope, res ctrl.Result, err error) (ctrl.Result, error) {
	if s.released {
		return res, err
	}

	if s.hold.Disabled() {
		return ctrl.Result{}, s.hold.Settle(ctx, r.Client, s.cp, s.base, &s.cp.Status.Conditions)
	}

	before := slices.Clone(s.base.Status.Conditions)

	computeStatus(s, err)
	measureCertificates(s)

	write := kube.PatchStatus
	if rollout.Moved(s.base.Status.Plan, s.cp.Status.Plan) {
		write = kube.ClaimStatus
	}

	if perr := write(ctx, r.Client, s.cp, s.base); perr != nil {
		return failure.Result(ctrl.Result{}, client.IgnoreNotFound(perr), r.Resync)
	}

	kube.RecordTransitions(r.Recorder, s.cp, before, s.cp.Status.Conditions, condition.BadReasons...)

	// What an import stalls on may be mended in a Secret, or on a node, and nobody tells of that.
	if s.importing && failure.ClassOf(err) == failure.ClassTerminal {
		return ctrl.Result{RequeueAfter: pollImport}, nil
	}

	resync := r.estate.Interval(r.Resync)
	if s.held != nil {
		resync = r.watchGivenUp(s, s.remedy.Again(r.group(s).Within(resync)))
	}

	res, err = failure.Result(res, err, resync)

	// Nothing but the time tells that a maintenance window opens.
	if wait := max(s.window.Sub(r.Clock.Now()), time.Second); !s.window.IsZero() && res.RequeueAfter > wait {
		res.RequeueAfter = wait
	}

	return res, err
}

// computeStatus is pure. Conditions whose phase did not run keep their value.
func computeStatus(s *scope, err error) {
	st := &s.cp.Status
	paused := s.paused

	if !deleting(s.cp) && !paused {
		st.ObservedGeneration = s.cp.Generation
	}

	set := condition.Set{Conditions: &st.Conditions, Generation: s.cp.Generation}
	set.IfMissing(v1alpha1.ConditionReady, v1alpha1.ConditionAvailable, v1alpha1.ConditionReachable,
		v1alpha1.ConditionBootstrapped, v1alpha1.ConditionEtcdHealthy, v1alpha1.ConditionUpToDate,
		v1alpha1.ConditionCertificatesValid)

	st.Replicas = int32(len(s.cp.Spec.Machines)) //nolint:gosec // nine at most

	if s.observed {
		st.ReadyReplicas = readyMachines(s)
		st.EtcdMembers = int32(s.etcd.Members) //nolint:gosec // a handful

		setReachable(s, set)
		setEtcd(s, set)
		setUpToDate(s, set)
		setRemediating(s, set)
	}

	if s.fencing {
		set.While(len(s.fenced) > 0, v1alpha1.ConditionFencing, v1alpha1.ReasonMachineReturned,
			strings.Join(s.fenced, "; "))
	}

	if s.bootstrap != nil {
		setBootstrapped(s, set)
	}

	if s.asked {
		setAvailable(s, set)
	}

	setCertificates(s, set)
	setReady(s, err, set, !s.hold.Live())
	set.Transient(paused, deleting(s.cp), err)
	s.hold.Show(set)
	s.hold.ShowWould(set, s.would)
}

// readyMachines counts the machines that are ready and voting, healthy etcd members.
func readyMachines(s *scope) int32 {
	var count int32

	for _, m := range s.machines {
		if meta.IsStatusConditionTrue(m.Status.Conditions, v1alpha1.ConditionReady) &&
			slices.Contains(s.etcd.Voting, m.Name) && !slices.Contains(s.extra, m.Name) {
			count++
		}
	}

	return count
}

func setReachable(s *scope, set condition.Set) {
	var silent []string

	for _, n := range s.nodes {
		if n.Answer == plan.AnswerUnknown && n.Address != "" {
			silent = append(silent, n.Name)
		}
	}

	if len(silent) == 0 {
		set.True(v1alpha1.ConditionReachable, v1alpha1.ReasonReachable, "every control-plane node answers")

		return
	}

	slices.Sort(silent)
	set.False(v1alpha1.ConditionReachable, v1alpha1.ReasonNodeUnreachable, strings.Join(silent, ", ")+" does not answer")
}

func setEtcd(s *scope, set condition.Set) {
	status := metav1.ConditionFalse
	if s.etcd.Healthy {
		status = metav1.ConditionTrue
	}

	set.Put(v1alpha1.ConditionEtcdHealthy, status, s.etcd.Reason, s.etcd.Message)
}

func setUpToDate(s *scope, set condition.Set) {
	if s.backup != nil {
		set.False(v1alpha1.ConditionUpToDate, s.backup.Reason, s.backup.Message)

		return
	}

	if len(s.extra) > 0 {
		set.False(v1alpha1.ConditionUpToDate, v1alpha1.ReasonScalingDown, strings.Join(s.extra, ", ")+
			" left the list; "+s.scaling)

		return
	}

	if reason, message := rollout.Report(s.cp.Status.Plan, s.machines); reason != "" {
		set.False(v1alpha1.ConditionUpToDate, reason, message)

		return
	}

	set.True(v1alpha1.ConditionUpToDate, v1alpha1.ReasonUpToDate, "the live configs are the wanted ones")
}

func setRemediating(s *scope, set condition.Set) {
	c := s.remedy
	if c == nil {
		kube.RemoveCondition(set.Conditions, v1alpha1.ConditionRemediating)

		return
	}

	set.True(v1alpha1.ConditionRemediating, cmp.Or(c.Reason, v1alpha1.ReasonReplacing),
		cmp.Or(c.Message, c.Spare+" takes the place of "+c.Machine))
}

func setBootstrapped(s *scope, set condition.Set) {
	status := metav1.ConditionFalse
	if s.bootstrap.Action == plan.BootstrapDone {
		status = metav1.ConditionTrue
	}

	set.Put(v1alpha1.ConditionBootstrapped, status, s.bootstrap.Reason, s.bootstrap.Message)
}

func setAvailable(s *scope, set condition.Set) {
	switch {
	case s.version == "":
		set.False(v1alpha1.ConditionAvailable, v1alpha1.ReasonAPIServerUnavailable, "no API server of the cluster answers")
	case !s.etcd.Quorum:
		set.False(v1alpha1.ConditionAvailable, v1alpha1.ReasonEtcdUnhealthy, "etcd has no quorum")
	default:
		s.cp.Status.ObservedKubeVersion = s.version
		set.True(v1alpha1.ConditionAvailable, v1alpha1.ReasonAvailable, "the Kubernetes API answers and etcd has quorum")
	}
}

func setReady(s *scope, err error, set condition.Set, paused bool) {
	st := &s.cp.Status

	switch {
	case deleting(s.cp):
		set.False(v1alpha1.ConditionReady, v1alpha1.ReasonDeleting, "the object is being deleted")
	case paused:
	case err != nil && failure.Reason(err) != "":
		set.False(v1alpha1.ConditionReady, failure.Reason(err), failure.Message(err))
	case err != nil:
	case !s.asked || !s.observed:
	case st.ReadyReplicas < st.Replicas:
		set.False(v1alpha1.ConditionReady, v1alpha1.ReasonWaitingForMachines, "waiting for "+waitingFor(s))
	default:
		set.True(v1alpha1.ConditionReady, v1alpha1.ReasonReady,
			"every control-plane node is a voting, healthy etcd member, and the Kubernetes API answers")
	}
}

// waitingFor names the machines that are not ready and why.
func waitingFor(s *scope) string {
	var out []string

	for _, m := range s.machines {
		c := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionReady)

		switch {
		case c == nil:
			out = append(out, m.Name)
		case c.Status != metav1.ConditionTrue:
			out = append(out, m.Name+" ("+c.Message+")")
		}
	}

	if missing := len(s.cp.Spec.Machines) - len(s.machines); missing > 0 {
		out = append(out, "machines that are being created")
	}

	return strings.Join(out, ", ")
}
