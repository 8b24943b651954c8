package talosmachine

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/change"
	"github.com/talos-operator/talos-operator/internal/decide/upgrade"
	"github.com/talos-operator/talos-operator/internal/failure"
)

// revert sets what is wanted of a machine that is not to run what the cluster is upgraded to: what it ran before, if it
// has booted the other one, and what it runs otherwise.
func (o *systems) revert(m *v1alpha1.TalosMachine, live, image, spec string) {
	unwanted := o.want
	o.reverting, o.want = true, o.live

	if o.live != unwanted {
		return
	}

	previous := m.Status.PreviousSystem

	switch {
	case previous == nil || systemOf(previous) == o.live:
		o.refused = "what it ran before its last upgrade is not known, or its config has changed since then, and an older " +
			"Talos might not read that"
	case m.Spec.Role == v1alpha1.RoleControlPlane && !upgrade.SameEtcd(previous.TalosVersion, o.live.version):
		o.refused = fmt.Sprintf("Talos %s has another minor version of etcd than %s, which may not read the data of the newer "+
			"one: downgrade etcd first, or replace the machine", previous.TalosVersion, o.live.version)
	default:
		o.want, o.image = systemOf(previous), previous.Image
		o.old, _ = installerOf(o.live, live, image, spec)
	}
}

// refusal says what is not done, and why.
func (o *systems) refusal() string {
	if o.reverting {
		return "it is not rolled back: " + o.refused
	}

	return "it is not upgraded: " + o.refused
}

func systemOf(t *v1alpha1.TalosSystem) system { return system{t.TalosVersion, t.Schematic} }

// keepPrevious notes what the machine can be rolled back to: what runs when another Talos is installed, until its
// configuration changes. The name of the installer in it does no harm.
func (s *scope) keepPrevious(act change.Act) {
	st := &s.machine.Status

	switch act { //nolint:exhaustive // the others change neither
	case change.Install, change.Upgrade:
		st.PreviousSystem = &v1alpha1.TalosSystem{
			TalosVersion: s.systems.live.version, Schematic: s.systems.live.schematic, Image: st.Change.OldImage,
		}
	case change.Apply, change.Stage, change.Try:
		if slices.ContainsFunc(s.diff.Paths(), func(path string) bool { return !strings.HasSuffix(path, "machine.install.image") }) {
			st.PreviousSystem = nil
		}
	}
}

// rollBack requests that the node boots what it ran before. A node that refuses has nothing to boot.
func (r *Reconciler) rollBack(ctx context.Context, s *scope, in change.Input) (*change.Step, error) {
	node, err := r.node(ctx, s)
	if err != nil {
		return nil, err
	}

	err = node.ToItself(ctx, s.self(), func() error {
		r.forfeit(ctx, s, node)

		return node.Rollback(ctx)
	})

	switch {
	case err == nil:
		return nil, nil
	case failure.ClassOf(err) == failure.ClassTerminal:
		refused := change.Refuse(in, failure.Message(err))

		return &refused, nil
	}

	return nil, fmt.Errorf("rolling %s back: %w", s.machine.Name, err)
}

// rollBackFailed requests the rollback of a machine that did not become healthy with another Talos, as a user would:
// the annotation stays, so that the machine is not upgraded to the same again by itself.
func (r *Reconciler) rollBackFailed(ctx context.Context, s *scope) (ctrl.Result, error) {
	o, c := s.controlPlane.Spec.Upgrade, s.machine.Status.Change

	if o == nil || o.Rollback != v1alpha1.RollbackAutomatic || !isUpgrade(c) || s.systems == nil || s.keeps() ||
		c.Phase != v1alpha1.ChangeFailed || c.Cause == v1alpha1.CauseRevert || s.systems.live.hash() != c.Target {
		return ctrl.Result{}, nil
	}

	would := *s.systems
	if would.revert(s.machine, "", "", ""); would.refused != "" || s.machine.Annotations[v1alpha1.RevertAnnotation] == c.Target {
		return ctrl.Result{}, nil
	}

	if err := r.claim(ctx, s); err != nil {
		return ctrl.Result{}, err
	}

	base := s.machine.DeepCopy()
	metav1.SetMetaDataAnnotation(&s.machine.ObjectMeta, v1alpha1.RevertAnnotation, c.Target)

	if err := r.Client.Patch(ctx, s.machine, client.MergeFrom(base)); err != nil {
		return ctrl.Result{}, fmt.Errorf("requesting the rollback of %s: %w", s.machine.Name, err)
	}

	s.base = s.machine.DeepCopy()
	r.Recorder.Eventf(s.machine, nil, corev1.EventTypeWarning, v1alpha1.ReasonChangeFailed, "Rollback", "Rolling back to Talos %s: "+
		"it was not healthy with %s", would.want.version, c.Image)

	return ctrl.Result{}, nil
}
