package talosmachine

import (
	"context"
	"fmt"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/change"
	"github.com/talos-operator/talos-operator/internal/decide/upgrade"
	"github.com/talos-operator/talos-operator/internal/failure"
)

// revert sets the desired system of a machine that was rolled back, or is to be: what it ran before, if it runs what is
// not desired, and what it runs otherwise. image is the installer that the spec names.
func (o *systems) revert(m *v1alpha1.TalosMachine, of running, image, spec string) {
	runs := m.Annotations[v1alpha1.RevertAnnotation] == o.live.hash()
	o.reverting, o.want = true, o.live

	if !runs {
		return
	}

	if o.refused = o.cannotRevert(m); o.refused == "" {
		o.want, o.image = systemOf(m.Status.PreviousSystem), m.Status.PreviousSystem.Image
		o.old, _ = of.again(image, spec)
	}
}

// cannotRevert says why a machine cannot boot what it ran before; empty if it can.
func (o *systems) cannotRevert(m *v1alpha1.TalosMachine) string {
	previous := m.Status.PreviousSystem

	switch {
	case previous == nil, previous.ReplacedBy != o.live.hash():
		return "what it ran before is not known, because the operator has not installed what runs"
	case previous.Image == "":
		return fmt.Sprintf("an installer was started on it since the upgrade, and may have overwritten Talos %s",
			previous.TalosVersion)
	case previous.ConfigHash != o.config:
		return "its config has changed since the upgrade, and an older Talos might not read that"
	case m.Spec.Role == v1alpha1.RoleControlPlane && !upgrade.SameEtcd(previous.TalosVersion, o.live.version):
		return fmt.Sprintf("Talos %s is not known to have the minor version of etcd of %s, and an older one may not read "+
			"the data of a newer one: downgrade etcd first, or replace the machine", previous.TalosVersion, o.live.version)
	}

	return ""
}

// verdict returns the reason why the machine is not up to date because of its operating system; empty if there is none.
func (o *systems) verdict(c *v1alpha1.MachineChange) string {
	switch {
	case o == nil:
	case o.refused != "":
		return v1alpha1.ReasonUpgradeUnsupported
	case change.IsUpgrade(c):
		return v1alpha1.ReasonUpgradePending
	case c == nil && o.reverting:
		return v1alpha1.ReasonReverted
	}

	return ""
}

// explain is the message that goes with a verdict.
func (o *systems) explain(c *v1alpha1.MachineChange) string {
	switch {
	case o.refused != "" && o.reverting:
		return "it is not rolled back: " + o.refused
	case o.refused != "":
		return "it is not upgraded: " + o.refused
	case change.IsUpgrade(c):
		return upgradeMessage(c)
	}

	return fmt.Sprintf("the machine was rolled back to Talos %s; remove the annotation %s to try the other one again, or "+
		"name another release in the spec", o.live.version, v1alpha1.RevertAnnotation)
}

// notReverted says why the machine is not rolled back although that was requested; empty if it was not, or is.
func (o *systems) notReverted() string {
	if o == nil || !o.reverting || o.refused == "" {
		return ""
	}

	return "; " + o.explain(nil)
}

func systemOf(p *v1alpha1.PreviousSystem) system { return system{p.TalosVersion, p.Schematic} }

// overwritePrevious notes that an installer is about to be started: it writes to where the system is that ran before
// what runs now. What is known of that stays: a machine that boots it all the same has fallen back.
func (s *scope) overwritePrevious(act change.Act) {
	previous := s.machine.Status.PreviousSystem
	installs := act == change.Install || act == change.Upgrade || act == change.Uninstall
	if !installs || previous == nil || previous.ReplacedBy != s.systems.live.hash() {
		return
	}

	s.machine.Status.PreviousSystem = previous.DeepCopy()
	s.machine.Status.PreviousSystem.Image = ""
}

// rollBack requests that the node boots what it ran before. Only a request whose answer is not known may have been
// carried out: one that never left is taken back, and a node that refuses has nothing to boot.
func (r *Reconciler) rollBack(ctx context.Context, s *scope, in change.Input) (*change.Step, error) {
	node, err := r.node(ctx, s)
	if err != nil {
		return nil, err
	}

	sent := false
	err = node.ToItself(ctx, s.self(), func() error {
		r.forfeit(ctx, s, node)

		sent = true

		return node.Rollback(ctx)
	})

	switch class := failure.ClassOf(err); {
	case err == nil:
	case class == failure.ClassTerminal:
		s.pass.Failed = failure.Message(err)
	case !sent, class == failure.ClassWaiting, class == failure.ClassAuth:
		unsent := change.Unsent(in, failure.Message(err))

		return &unsent, nil
	default:
		return nil, fmt.Errorf("rolling %s back: %w", s.machine.Name, err)
	}

	return nil, nil
}
