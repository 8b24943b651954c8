package taloscontrolplane

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/backup/scheduled"
	"github.com/talos-operator/talos-operator/internal/decide/upgrade"
	"github.com/talos-operator/talos-operator/internal/kube"
)

// demandBackup has an upgrade wait for a backup although the spec demands none, if there is a schedule that can take
// it. If there is none, it says so among the obstacles and in an event.
func (r *Reconciler) demandBackup(ctx context.Context, s *scope, next *v1alpha1.UpgradeStatus) error {
	s.demand = nil

	p := s.guard.Planned
	if p == nil || p.Back() || s.cp.Spec.BackupBeforeDisruption != nil ||
		s.cp.Spec.Upgrade.Backup == v1alpha1.UpgradeBackupNone || !upgrade.WaitsForBackup(p.Component, p.From, p.To) {
		return nil
	}

	schedules := &v1alpha1.TalosEtcdBackupScheduleList{}
	if err := r.Client.List(ctx, schedules, client.InNamespace(s.cp.Namespace), kube.Shared); err != nil {
		return fmt.Errorf("listing the backup schedules of %s: %w", s.cp.Name, err)
	}

	demand, missing := scheduled.Default(s.cp, schedules.Items)
	if demand != nil {
		s.demand, s.guard.Backup = demand, true

		return nil
	}

	text := "no backup before this upgrade: " + missing

	// Both are short enough to be told whole.
	if was := s.cp.Status.Upgrade; was == nil || !strings.Contains(was.Obstacles, text) {
		r.Recorder.Eventf(s.cp, nil, corev1.EventTypeWarning, v1alpha1.ReasonNoBackup, "Upgrade", "%s %s: %s", p.Component,
			p.To, text)
	}

	if !strings.Contains(next.Obstacles, text) {
		next.Obstacles = kube.Shorten(upgrade.JoinObstacles(text, next.Obstacles), longestMessage)
	}

	return nil
}
