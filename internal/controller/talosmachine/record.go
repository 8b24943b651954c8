package talosmachine

import (
	"context"
	"fmt"
	"strings"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/change"
	"github.com/talos-operator/talos-operator/internal/decide/rollout"
	"github.com/talos-operator/talos-operator/internal/decide/upgrade"
	"github.com/talos-operator/talos-operator/internal/kube"
	"github.com/talos-operator/talos-operator/internal/machineconfig"
)

// noteCompared records what the machine was compared to, so that its group knows that its plan is complete.
func (s *scope) noteCompared() {
	st := &s.machine.Status
	st.ComparedTo = rollout.ComparedTo(s.controlPlane, s.worker, s.machine)
	st.PatchesVersion = s.patches.Version
}

// noteEqual records that a paused machine without a change runs what the spec asks for, so that its group can say that
// too. What differs is recorded with the change, once the machine is no longer paused.
func noteEqual(_ context.Context, s *scope) (ctrl.Result, error) {
	st := &s.machine.Status
	same := s.systems == nil || s.systems.want == s.systems.live && !s.systems.incomplete

	if s.compared && s.unsourced == nil && s.diff.Equal() && same && st.Change == nil && st.Intent == nil {
		s.noteCompared()
	}

	return ctrl.Result{}, nil
}

// input returns the evidence of this reconciliation for decisions about the change.
func (r *Reconciler) input(s *scope) change.Input {
	st, o := &s.machine.Status, s.rollout()
	_, retry := s.machine.Annotations[v1alpha1.RetryAnnotation]

	in := change.Input{
		Now: r.Clock.Now(), Name: s.machine.Name,
		Key:          string(s.machine.UID) + " " + rollout.ComparedTo(s.controlPlane, s.worker, s.machine),
		ControlPlane: s.machine.Spec.Role == v1alpha1.RoleControlPlane,
		Options: change.Options{
			HealthTimeout: o.HealthTimeout, TryTimeout: o.TryTimeout, Drift: o.Drift,
			Drains: o.RebootPolicy != v1alpha1.RebootManual,
		},
		Record: change.Record{Change: st.Change, Intent: st.Intent, Sent: st.ConfigHash}, Grant: s.machine.Spec.Change,
		Live: s.liveHash, Want: s.wantHash, Fields: change.List(s.diff.Paths()),
		Equal:  s.diff.Equal() && (s.unsourced == nil || s.liveHash == s.wantHash),
		Cuts:   strings.Join(machineconfig.AffectsConnection(s.diff.Changes), ", "),
		Edited: limited(s.edited), Reverting: s.reverting, Importing: s.heldImport, Retry: retry && !s.keeps(),
		Pass: s.pass,
	}

	in.Asked = r.asked.at(s.key().String(), stepOf(st.Intent))
	in.Legacy = upgrade.Legacy(s.machine.Status.TalosVersion)
	in.BootID = st.BootID // of the last response, as long as there is no other

	if f := s.facts; f != nil {
		in.Lags, in.Refuted = s.lagging, s.refuted
		in.BootID, in.Stage, in.Ready, in.Unmet = f.BootID, f.Stage, f.Ready, strings.Join(f.Unmet, ", ")
	}

	return in
}

// noteAsked notes that the machine is asked for the step that is recorded, whatever it answers.
func (r *Reconciler) noteAsked(s *scope) {
	r.asked.sinceIn(s.key().String(), stepOf(s.machine.Status.Intent), r.Clock.Now())
}

// stepOf identifies a recorded step.
func stepOf(i *v1alpha1.MachineIntent) string {
	if i == nil {
		return ""
	}

	return fmt.Sprintf("%s %s %d %d", i.Step, i.BootID, i.Attempt, i.Since.Unix())
}

// record keeps a decided record in the status.
func (s *scope) record(r change.Record) {
	st := &s.machine.Status
	st.Change, st.Intent, st.ConfigHash = r.Change, r.Intent, r.Sent

	if st.Change != nil {
		st.Change.Message = kube.Shorten(st.Change.Message, longestMessage)
	}
}

// longestMessage is the maximum length of a status message.
const longestMessage = 1000

// keeps reports whether the node is left as it is: in a dry run, and while its cluster is being restored.
func (s *scope) keeps() bool {
	return s.paused || s.held != nil && s.held.State.Runtime.Restore != nil
}

func (s *scope) rollout() rollout.Options { return rollout.OptionsOf(s.controlPlane, s.worker) }

// intends reports whether a step is recorded.
func (s *scope) intends(step string) bool {
	return s.machine.Status.Intent != nil && s.machine.Status.Intent.Step == step
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
