package talosetcdbackupschedule

import (
	"crypto/sha256"
	"encoding/binary"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/talos-operator/talos-operator/internal/schedule"
)

// timing is what is due according to a schedule.
type timing struct {
	// slot is the scheduled time that is due and not handled yet, zero if there is none. If several were missed, it is the
	// last one, because a backup for each would result in the same data.
	slot time.Time
	// late: the deadline of the slot has passed.
	late bool
	// next is when the following slot begins.
	next time.Time
}

// clockwork is the input of a timing.
type clockwork struct {
	cron, zone string
	// offset delays each slot; deadline is how late a slot may be, zero for no limit.
	offset, deadline time.Duration
	// created is when the schedule was created, handled the slot that was handled last.
	created time.Time
	handled *metav1.Time
}

// at computes the timing at a point in time.
func (c clockwork) at(now time.Time) (timing, error) {
	until, base := now.Add(-c.offset), c.created
	if c.handled != nil {
		base = c.handled.Time
	}

	slot, err := schedule.Last(c.cron, c.zone, base, until)
	if err != nil {
		return timing{}, err
	}

	from := until
	if base.After(from) {
		from = base
	}

	next, err := schedule.Next(c.cron, c.zone, from)
	if err != nil {
		return timing{}, err
	}

	t := timing{slot: slot, next: next.Add(c.offset)}
	t.late = !slot.IsZero() && c.deadline > 0 && now.After(slot.Add(c.offset).Add(c.deadline))

	return t, nil
}

// corrected returns the last handled slot. A slot in the future was recorded by a clock that was ahead, and must not
// suspend the schedule until then.
func (c clockwork) corrected(now time.Time) *metav1.Time {
	last := c.created
	if c.handled != nil {
		last = c.handled.Time
	}

	if !last.After(now.Add(tolerance)) {
		return c.handled
	}

	at := metav1.NewTime(now.Add(-c.offset))

	return &at
}

// tolerance is the clock skew that is expected without a clock having been set.
const tolerance = time.Minute

// jitter returns the fraction of a duration by which an object is delayed: always the same for an object, and evenly
// distributed over objects.
func jitter(uid types.UID, longest time.Duration) time.Duration {
	if longest < time.Second {
		return 0
	}

	sum := sha256.Sum256([]byte(uid))
	seconds := uint64(longest / time.Second)

	return time.Duration(binary.BigEndian.Uint64(sum[:])%(seconds+1)) * time.Second
}
