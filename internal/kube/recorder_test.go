package kube_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"

	"github.com/talos-operator/talos-operator/internal/kube"
)

const escaped = "cp-0\x1b[2J\u202e"

// TestRecorder: the API server accepts each event, and its text is only text: a longer one would be lost.
func TestRecorder(t *testing.T) {
	t.Parallel()

	fake := events.NewFakeRecorder(2)
	recorder := kube.Recorder(fake)

	recorder.Eventf(&corev1.Pod{}, nil, corev1.EventTypeWarning, "Reason", "Action", "%s, 100%% of %d", escaped, 3)
	recorder.Eventf(&corev1.Pod{}, nil, corev1.EventTypeWarning, "Reason", "Action", "%s", strings.Repeat("日", 100_000))

	if got := <-fake.Events; got != "Warning Reason cp-0\ufffd[2J\ufffd, 100% of 3" {
		t.Errorf("the event is %q", got)
	}

	note := strings.TrimPrefix(<-fake.Events, "Warning Reason ")
	if len(note) > 1024 || len(note) < 1000 || !utf8.ValidString(note) {
		t.Errorf("a long event has %d bytes", len(note))
	}
}

// TestConditionIsPlain: so is the message of a condition.
func TestConditionIsPlain(t *testing.T) {
	t.Parallel()

	var conditions []metav1.Condition

	kube.SetCondition(&conditions, metav1.Condition{Type: "Ready", Status: metav1.ConditionFalse, Reason: "R", Message: escaped})

	if got := conditions[0].Message; got != "cp-0\ufffd[2J\ufffd" {
		t.Errorf("the message is %q", got)
	}
}
