package talosetcdbackupschedule

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/backup/scheduled"
	"github.com/talos-operator/talos-operator/internal/pause"
)

// observe reads the current state, and computes what is due.
func (r *Reconciler) observe(ctx context.Context, s *scope) error {
	o := s.schedule
	held := []client.Object{o}

	cp := &v1alpha1.TalosControlPlane{}
	key := client.ObjectKey{Namespace: o.Namespace, Name: o.Spec.BackupTemplate.Spec.ControlPlaneRef.Name}

	switch err := r.Client.Get(ctx, key, cp); {
	case client.IgnoreNotFound(err) != nil:
		return fmt.Errorf("reading TalosControlPlane %s: %w", key.Name, err)
	case err == nil:
		s.controlPlane = cp
		held = append(held, cp)
	}

	var err error
	if s.hold, err = pause.Find(ctx, r.Client, held...); err != nil {
		return err
	}

	if s.backups, err = scheduled.List(ctx, r.Client, o); err != nil {
		return err
	}

	s.tick()
	s.observed = true

	return nil
}

// tick computes the timing of the schedule.
func (s *scope) tick() {
	spec, st := &s.schedule.Spec, &s.schedule.Status
	created := s.schedule.CreationTimestamp.Time

	backups := clockwork{cron: spec.Schedule, zone: spec.TimeZone, created: created, handled: st.LastScheduleTime}
	if spec.Jitter != nil {
		backups.offset = jitter(s.schedule.UID, spec.Jitter.Duration)
	}

	if spec.StartingDeadline != nil {
		backups.deadline = spec.StartingDeadline.Duration
	}

	backups.handled = backups.corrected(s.now)
	st.LastScheduleTime = backups.handled

	var err error
	if s.timing, err = backups.at(s.now); err != nil {
		s.invalid = "schedule: " + err.Error()
	}

	if spec.Verification == nil {
		return
	}

	verification := clockwork{
		cron: spec.Verification.Schedule, zone: spec.TimeZone, created: created, handled: st.LastVerificationTime,
	}

	verification.handled = verification.corrected(s.now)
	st.LastVerificationTime = verification.handled

	if s.verification, err = verification.at(s.now); err != nil && s.invalid == "" {
		s.invalid = "verification.schedule: " + err.Error()
	}
}
