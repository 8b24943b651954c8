package talosetcdbackupschedule

import (
	"crypto/sha256"
	"encoding/binary"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/talos-operator/talos-operator/internal/schedule"
)

// timing is where a schedule stands.
type timing struct {
	// slot is the time of the schedule that is due and not handled yet, zero when there is none. Of several that were
	// missed it is the last one: a backup for each would be the same backup.
	slot time.Time
	// late: its deadline is over.
	late bool
	// next is when the one after it begins.
	next time.Time
}

// clockwork is what a timing is computed from.
type clockwork struct {
	cron, zone string
	// offset puts each time off; deadline is how late one may be, zero for no limit.
	offset, deadline time.Duration
	// created is when the schedule was made, handled the slot that was handled last.
	created time.Time
	handled *metav1.Time
}

// at computes where the schedule stands at a time.
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

// corrected is what counts as handled. What lies in the future was recorded by a clock that was ahead, and must not
// silence the schedule until then.
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

// tolerance is how far clocks differ without anybody having set them.
const tolerance = time.Minute

// jitter is the part of a duration that an object is put off by: always the same, and spread evenly over objects.
func jitter(uid types.UID, longest time.Duration) time.Duration {
	if longest < time.Second {
		return 0
	}

	sum := sha256.Sum256([]byte(uid))
	seconds := uint64(longest / time.Second)

	return time.Duration(binary.BigEndian.Uint64(sum[:])%(seconds+1)) * time.Second //nolint:gosec // less than longest
}
