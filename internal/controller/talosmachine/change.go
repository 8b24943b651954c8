package talosmachine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/controller/rollout"
	"github.com/talos-operator/talos-operator/internal/kube"
	"github.com/talos-operator/talos-operator/internal/machineconfig"
	"github.com/talos-operator/talos-operator/internal/talos"
)

// planChange plans how the live configuration becomes the desired one; it sends nothing but a dry run. The machine
// counts as compared only afterwards: a plan without the changes that a node rejects would be incomplete.
func (r *Reconciler) planChange(ctx context.Context, s *scope) (ctrl.Result, error) {
	// Finish a step that has begun first: the node is between two configurations.
	if !s.compared || !s.diff.Equal() && (s.intends(v1alpha1.StepTry) || s.intends(v1alpha1.StepReboot)) {
		return ctrl.Result{}, nil
	}

	again := s.beginAgain()

	res, err := r.decideChange(ctx, s)
	if err != nil {
		return res, err
	}

	s.machine.Status.ComparedTo = rollout.ComparedTo(s.controlPlane, s.worker, s.machine)

	if again {
		err = r.endRetry(ctx, s)
	}

	return res, err
}

func (r *Reconciler) decideChange(ctx context.Context, s *scope) (ctrl.Result, error) {
	st := &s.machine.Status

	if s.diff.Equal() {
		// What is on trial is not applied yet: the node may roll it back, and that would then count as an edit by hand.
		if !s.heldImport && !s.intends(v1alpha1.StepTry) {
			st.ConfigHash = s.liveHash
		}

		return ctrl.Result{}, nil
	}

	// The spec demands nothing new: the only difference is what was changed outside of the operator.
	if len(s.edited) > 0 && s.wantHash == st.ConfigHash {
		switch s.rollout().Drift {
		case v1alpha1.DriftReport:
			return ctrl.Result{}, r.forgo(ctx, s)
		case v1alpha1.DriftAdopt:
			err := r.forgo(ctx, s)
			if err != nil || s.paused {
				return ctrl.Result{}, err
			}

			return ctrl.Result{RequeueAfter: pollChange}, r.takeOver(ctx, s)
		case v1alpha1.DriftEnforce:
		}
	}

	return ctrl.Result{}, r.describeChange(ctx, s)
}

// forgo drops a change whose only purpose is gone. The node may have been made unschedulable for it; a dry run does not
// change that, and keeps the change.
func (r *Reconciler) forgo(ctx context.Context, s *scope) error {
	if s.machine.Status.Change == nil || s.paused {
		return nil
	}

	if err := r.uncordon(ctx, s); err != nil {
		return err
	}

	s.machine.Status.Change, s.machine.Status.Intent = nil, nil

	return nil
}

func (s *scope) rollout() rollout.Options { return rollout.OptionsOf(s.controlPlane, s.worker) }

// intends reports whether a step is recorded.
func (s *scope) intends(step string) bool {
	return s.machine.Status.Intent != nil && s.machine.Status.Intent.Step == step
}

// describeChange records the details of a change. A change that is already described is not modified.
func (r *Reconciler) describeChange(ctx context.Context, s *scope) error {
	st := &s.machine.Status

	if c := st.Change; c != nil && c.Target == s.wantHash && (s.between() || slices.Equal(c.Undoes, limited(s.edited))) {
		c.Drain = c.Drain || s.drains(c.Reboot) // reboots may be allowed in the meantime

		return nil
	}

	node, err := r.node(ctx, s)
	if err != nil {
		return err
	}

	would, err := node.Apply(ctx, s.want, talos.ApplyOptions{Mode: talos.ApplyAuto, DryRun: true})
	if err != nil {
		return fmt.Errorf("asking %s what a config change would do: %w", s.machine.Name, err)
	}

	now := stamp(r.Clock.Now())
	reboot := would.Mode == talos.ApplyReboot
	controlPlane := s.machine.Spec.Role == v1alpha1.RoleControlPlane

	c := &v1alpha1.MachineChange{
		Target: s.wantHash, Base: s.liveHash, Cause: s.cause(), Undoes: limited(s.edited), Phase: v1alpha1.ChangePending,
		Since: now, Reboot: reboot, Drain: s.drains(reboot),
	}
	// Reverting to the last working configuration must not be refused because it needs a reboot.
	c.Try = len(machineconfig.AffectsConnection(s.diff.Changes)) > 0 && (!reboot || c.Cause == v1alpha1.CauseSpec)
	// A node that is cut off from the operator is cut off from the other members as well.
	c.Etcd = controlPlane && (reboot || c.Try || machineconfig.AffectsEtcd(s.diff.Changes))
	c.Fields, c.MoreFields = fieldsOf(s.diff.Changes)
	c.ID = s.changeID(c)

	st.Change, st.Intent = c, nil

	return nil
}

// drains reports whether pods are evicted before the operator reboots the node.
func (s *scope) drains(reboot bool) bool {
	return reboot && (s.reverting || s.rollout().RebootPolicy != v1alpha1.RebootManual)
}

func (s *scope) cause() v1alpha1.ChangeCause {
	switch {
	case s.reverting:
		return v1alpha1.CauseRevert
	case len(s.edited) > 0 && s.wantHash == s.machine.Status.ConfigHash:
		return v1alpha1.CauseDrift
	}

	return v1alpha1.CauseSpec
}

// changeID derives an ID from the difference, from its effect on the node, and from the generations in which it was
// found, so that a reconciliation with a stale cache finds the same ID. It differs from the ID of an earlier change
// with the same target: allowing that change to begin created a new generation of the machine.
func (s *scope) changeID(c *v1alpha1.MachineChange) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %s %s %s %t %t %t", c.Base, c.Target, s.machine.UID,
		rollout.ComparedTo(s.controlPlane, s.worker, s.machine), c.Reboot, c.Try, c.Etcd))

	return hex.EncodeToString(sum[:])[:16]
}

func idOf(c *v1alpha1.MachineChange) string {
	if c == nil {
		return ""
	}

	return c.ID
}

// Maximum lengths of a field in a status.
const (
	longestField = 512
	longestValue = 256
	longestError = 1024
)

func fieldsOf(differences []machineconfig.Change) ([]v1alpha1.FieldChange, int32) {
	var changes []machineconfig.Change
	for _, c := range differences {
		changes = append(append(changes, c), c.Content...)
	}

	out := make([]v1alpha1.FieldChange, 0, min(len(changes), maxListed))

	for _, c := range changes[:min(len(changes), maxListed)] {
		out = append(out, v1alpha1.FieldChange{
			Field: cut(c.Field(), longestField), Old: cut(c.Old, longestValue), New: cut(c.New, longestValue),
		})
	}

	return out, int32(len(changes) - len(out))
}

func limited(fields []string) []string {
	if len(fields) == 0 {
		return nil
	}

	out := make([]string, 0, min(len(fields), maxListed))
	for _, f := range fields[:min(len(fields), maxListed)] {
		out = append(out, cut(f, longestField))
	}

	return out
}

// cut shortens a text to a number of bytes, at a character boundary.
func cut(text string, longest int) string { return kube.Shorten(text, longest) }

// beginAgain restarts a failed change at the request of a user: a change that is live gets a new health timeout, any
// other one is planned again. It reports whether a retry was requested.
func (s *scope) beginAgain() bool {
	if _, asked := s.machine.Annotations[v1alpha1.RetryAnnotation]; !asked || s.paused {
		return false
	}

	switch c := s.machine.Status.Change; {
	case c == nil || c.Phase != v1alpha1.ChangeFailed:
	case !s.diff.Equal():
		s.machine.Status.Change = nil
	case s.liveHash == c.Target:
		c.Phase, c.Since, c.Message = v1alpha1.ChangeSettling, stamp(s.now), ""
	}

	return true
}

// endRetry removes the annotation after the status records the retry. In the reverse order, a crash would lose the
// request.
func (r *Reconciler) endRetry(ctx context.Context, s *scope) error {
	if err := r.claim(ctx, s); err != nil {
		return err
	}

	base := s.machine.DeepCopy()
	delete(s.machine.Annotations, v1alpha1.RetryAnnotation)

	if err := r.Client.Patch(ctx, s.machine, client.MergeFrom(base)); err != nil {
		return fmt.Errorf("removing the annotation %s from %s: %w", v1alpha1.RetryAnnotation, s.machine.Name, err)
	}

	s.base = s.machine.DeepCopy()

	return nil
}
