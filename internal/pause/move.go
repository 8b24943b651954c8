package pause

import (
	"cmp"
	"regexp"
	"strings"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// stageLabels ends the annotation of a move whose labels are being changed.
const stageLabels = "labels"

var moveID = regexp.MustCompile(`^[0-9a-f]{8}$`)

// Move is what the annotation of a move between shards says. The zero Move is none.
type Move struct {
	// To is the number of the shard.
	To string
	// ID of the pause, 8 hexadecimal digits: objects that report the pause of an earlier move have another one.
	ID string
	// Labels may differ from now on, so the move only goes on.
	Labels bool
}

// MoveOf returns the move of a cluster from the annotations of its top-level object.
func MoveOf(o metav1.Object) Move {
	return ParseMove(o.GetAnnotations()[v1alpha1.MovingToShardAnnotation])
}

// ParseMove reads the annotation. An ID that is none is left out: it would get into messages.
func ParseMove(annotation string) Move {
	parts := strings.Split(annotation, "/")
	m := Move{To: parts[0]}

	for _, p := range parts[1:] {
		switch {
		case p == stageLabels:
			m.Labels = true
		case moveID.MatchString(p):
			m.ID = p
		}
	}

	return m
}

// String is the annotation.
func (m Move) String() string {
	s := m.To
	if m.ID != "" {
		s += "/" + m.ID
	}

	if m.Labels {
		s += "/" + stageLabels
	}

	return s
}

// NewID returns the ID of a new pause.
func NewID() string { return uuid.NewString()[:8] }

// IDOfMove returns the ID of the pause of a move to another management cluster, from the annotations of the top-level
// object; empty if there is none.
func IDOfMove(o metav1.Object) string {
	if id := o.GetAnnotations()[v1alpha1.MovingAnnotation]; moveID.MatchString(id) {
		return id
	}

	return ""
}

// idOf returns the ID of the move that is under way.
func idOf(o metav1.Object) string { return cmp.Or(MoveOf(o).ID, IDOfMove(o)) }

// Shown tells whether the conditions of an object report the pause of this move.
func (m Move) Shown(conditions []metav1.Condition) bool { return Shown(m.ID, conditions) }

// Shown tells whether the conditions of an object report the pause with an ID: a reconciliation of it has begun after
// the pause, and has ended.
func Shown(id string, conditions []metav1.Condition) bool {
	for _, c := range conditions {
		if c.Type == v1alpha1.ConditionPaused {
			return id != "" && c.Status == metav1.ConditionTrue && strings.HasSuffix(c.Message, shownMove(id))
		}
	}

	return false
}

func shownMove(id string) string { return " (move " + id + ")" }
