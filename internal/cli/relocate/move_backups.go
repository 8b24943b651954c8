package relocate

import (
	"context"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/cli/session"
	"github.com/talos-operator/talos-operator/internal/kube"
)

// backups are the objects for the backups of a cluster; the data in a store is not moved.
type backups struct {
	schedules []v1alpha1.TalosEtcdBackupSchedule
	taken     []v1alpha1.TalosEtcdBackup
	restores  []v1alpha1.TalosEtcdRestore
}

// findBackups reads the objects of a control plane, sorted by name. A plane without these kinds has none.
func findBackups(ctx context.Context, p *session.Plane, controlPlane string) (backups, error) {
	schedules, taken := &v1alpha1.TalosEtcdBackupScheduleList{}, &v1alpha1.TalosEtcdBackupList{}
	restores := &v1alpha1.TalosEtcdRestoreList{}

	for _, list := range []client.ObjectList{schedules, taken, restores} {
		if err := p.List(ctx, list, client.InNamespace(p.Namespace)); err != nil && !meta.IsNoMatchError(err) {
			return backups{}, session.Explain("listing the backups of "+controlPlane, err)
		}
	}

	return backups{
		schedules: session.Keep(schedules.Items, func(s *v1alpha1.TalosEtcdBackupSchedule) bool {
			return s.Spec.BackupTemplate.Spec.ControlPlaneRef.Name == controlPlane
		}),
		taken: session.Keep(taken.Items, func(b *v1alpha1.TalosEtcdBackup) bool {
			return b.Spec.ControlPlaneRef.Name == controlPlane
		}),
		restores: session.Keep(restores.Items, func(r *v1alpha1.TalosEtcdRestore) bool {
			return r.Spec.ControlPlaneRef.Name == controlPlane
		}),
	}, nil
}

// references returns the objects in the order in which they are copied: a schedule owns its backups, and a restore may
// name one.
func (b *backups) references() []reference {
	var out []reference

	for i := range b.schedules {
		out = append(out, reference{kindBackupSchedule, b.schedules[i].Name})
	}

	for i := range b.taken {
		out = append(out, reference{kindBackup, b.taken[i].Name})
	}

	for i := range b.restores {
		out = append(out, reference{kindRestore, b.restores[i].Name})
	}

	return out
}

func (b *backups) objects() []client.Object {
	var out []client.Object

	for i := range b.schedules {
		out = append(out, &b.schedules[i])
	}

	for i := range b.taken {
		out = append(out, &b.taken[i])
	}

	for i := range b.restores {
		out = append(out, &b.restores[i])
	}

	return out
}

// holdSchedules prevents new backups on the source.
func (t *transfer) holdSchedules(ctx context.Context) error {
	for i := range t.backups.schedules {
		o, err := get(ctx, t.from, reference{kindBackupSchedule, t.backups.schedules[i].Name})
		if err != nil {
			return err
		}

		if kube.IsPaused(o) {
			continue
		}

		if err := setPaused(ctx, t.from, o, valueMoved); err != nil {
			return err
		}
	}

	return nil
}

// awaitBackups waits until no backup is in progress. An interrupted one would remain in the store incomplete until it
// is taken again.
func (t *transfer) awaitBackups(ctx context.Context) error {
	end := time.NewTimer(t.timeout)
	defer end.Stop()

	tick := time.NewTicker(pollPaused)
	defer tick.Stop()

	told := false

	for {
		b, err := findBackups(ctx, t.from, t.source.ControlPlane.Name)
		if err != nil {
			return err
		}

		running := b.running()
		if len(running) == 0 {
			return nil
		}

		names := strings.Join(running, ", ")

		if !told {
			t.say("Waiting until %s is complete", names)

			told = true
		}

		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w", names, ctx.Err())
		case <-end.C:
			return fmt.Errorf("%s is not complete after %s; the schedules at %s are paused: wait, and run the command again",
				names, t.timeout, t.from.Config.Host)
		case <-tick.C:
		}
	}
}

// running returns the backups that are being taken or verified.
func (b *backups) running() []string {
	var out []string

	for i := range b.taken {
		c := meta.FindStatusCondition(b.taken[i].Status.Conditions, v1alpha1.ConditionReconciling)
		if c != nil && c.Status == metav1.ConditionTrue &&
			(c.Reason == v1alpha1.ReasonBackingUp || c.Reason == v1alpha1.ReasonVerifying) {
			out = append(out, "TalosEtcdBackup "+b.taken[i].Name)
		}
	}

	return out
}
