package talosmachine

import (
	"testing"
	"time"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/condition"
)

// TestOutputIsDetail: what an installer prints is no news.
func TestOutputIsDetail(t *testing.T) {
	m := &v1alpha1.TalosMachine{}
	m.Status.Change = &v1alpha1.MachineChange{Kind: v1alpha1.ChangeTalos, Phase: v1alpha1.ChangeApplying}

	s := newScope(m, time.Unix(100, 0))
	m.Status.Change.Progress = "copying kernel and initramfs"

	if got := s.weight(false); got != condition.Detail {
		t.Errorf("a line: %v", got)
	}

	m.Status.Change.Phase = v1alpha1.ChangeFailed

	if got := s.weight(false); got != condition.News {
		t.Errorf("a failure: %v", got)
	}
}
