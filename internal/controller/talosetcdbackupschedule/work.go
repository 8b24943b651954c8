package talosetcdbackupschedule

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// lookAgain is how often the store is listed if no backup is taken.
	lookAgain = 24 * time.Hour
	// workTimeout limits one run of retention, and one verification unless the backups set another limit.
	workTimeout = time.Hour
	// workPause is how long failed work is delayed.
	workPause = 5 * time.Minute
	// placePoll is how soon work that finds no free slot is tried again; completed work triggers only its own schedule.
	placePoll = 10 * time.Second
)

func (s *scope) verificationHandled(slot time.Time) {
	at := metav1.NewTime(slot)
	s.schedule.Status.LastVerificationTime = &at
}
