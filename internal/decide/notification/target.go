package notification

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// Target is a webhook that a spec names.
type Target struct {
	v1alpha1.UpgradeNotification

	// Since when the spec has named it.
	Since time.Time
}

// Key names the target in ledgers and in the book.
func (t Target) Key() string { return KeyOf(&t.UpgradeNotification) }

// Book is what is recorded of the webhooks that a spec names, by their keys.
type Book map[string]Known

// Known is what is recorded of one of them.
type Known struct {
	Since metav1.Time `json:"since"`
	// Problem with its address that was told by an event.
	Problem string `json:"problem,omitempty"`
}

// Follow returns the book of the webhooks that a spec names now. One that was removed is forgotten: if it comes back,
// it is not told of what happened in between.
func (b Book) Follow(spec []v1alpha1.UpgradeNotification, now time.Time) Book {
	out := Book{}

	for i := range spec {
		key := KeyOf(&spec[i])

		known, ok := b[key]
		if !ok {
			known = Known{Since: stamp(now)}
		}

		out[key] = known
	}

	return out
}

// Targets returns the webhooks that a spec names, each once: it gets the events of all entries that name it.
func (b Book) Targets(spec []v1alpha1.UpgradeNotification) []Target {
	var out []Target

	for i := range spec {
		t := Target{UpgradeNotification: *spec[i].DeepCopy(), Since: b[KeyOf(&spec[i])].Since.Time}

		at := slices.IndexFunc(out, func(o Target) bool { return o.Key() == t.Key() })
		switch {
		case at < 0:
			out = append(out, t)
		case len(out[at].Events) == 0 || len(t.Events) == 0:
			out[at].Events = nil
		default:
			out[at].Events = append(out[at].Events, t.Events...)
		}
	}

	return out
}
