package safety_test

import (
	"strings"
	"testing"

	"github.com/talos-operator/talos-operator/internal/safety"
)

// TestPermitBackup: if a backup is demanded, a working member is disrupted only after a fresh one. Any other reason
// that blocks a disruption is reported first, and a member that does not work waits for no backup.
func TestPermitBackup(t *testing.T) {
	down := at(1, func(n *safety.Node) { n.Members, n.MemberID = nil, 0 })
	silent := at(2, func(n *safety.Node) { *n = dead(*n) })

	demanded := func(state safety.BackupState) safety.Backup {
		return safety.Backup{Demanded: true, State: state, Name: "c-before", Message: "the disk is full"}
	}

	for name, tt := range map[string]struct {
		change func([]safety.Node)
		want   safety.Disruption
		backup safety.Backup
		action safety.Action
		reason string
		part   string
	}{
		"not demanded":       {nil, reboot("b"), safety.Backup{State: safety.BackupFailed}, safety.Proceed, "Safe", ""},
		"fresh":              {nil, reboot("b"), demanded(safety.BackupFresh), safety.Proceed, "Safe", ""},
		"nobody knows":       {nil, reboot("b"), safety.Backup{Demanded: true}, safety.Wait, "WaitingForBackup", "b is blocked"},
		"missing":            {nil, remove("b"), demanded(safety.BackupMissing), safety.Wait, "WaitingForBackup", "disk is full"},
		"running":            {nil, reboot("b"), demanded(safety.BackupRunning), safety.Wait, "WaitingForBackup", "c-before"},
		"failed":             {nil, remove("b"), demanded(safety.BackupFailed), safety.Refuse, "BackupFailed", "c-before"},
		"another reason":     {silent, reboot("b"), demanded(safety.BackupMissing), safety.Wait, "EtcdUnhealthy", ""},
		"its etcd is down":   {down, reboot("b"), demanded(safety.BackupFailed), safety.Proceed, "Safe", ""},
		"a dead member goes": {silent, replace("c", 3, true), demanded(safety.BackupFailed), safety.Proceed, "Safe", ""},
	} {
		nodes := controlPlane(3)
		if tt.change != nil {
			tt.change(nodes)
		}

		tt.want.Backup = tt.backup

		v := safety.Permit(nodes, "", tt.want)
		if v.Action != tt.action || v.Reason != tt.reason || !strings.Contains(v.Message, tt.part) {
			t.Errorf("%s: %v %s: %s", name, v.Action, v.Reason, v.Message)
		}
	}
}

// TestPermitUpgrade: the first component of a minor of Kubernetes waits for a backup that is demanded, and for no node.
func TestPermitUpgrade(t *testing.T) {
	for name, c := range map[string]struct {
		backup safety.Backup
		action safety.Action
		part   string
	}{
		"not demanded": {safety.Backup{}, safety.Proceed, ""},
		"fresh":        {safety.Backup{Demanded: true, State: safety.BackupFresh}, safety.Proceed, ""},
		"missing":      {safety.Backup{Demanded: true}, safety.Wait, "Kubernetes v1.36.2 is blocked until there is a fresh backup"},
		"running":      {safety.Backup{Demanded: true, State: safety.BackupRunning, Name: "b"}, safety.Wait, "TalosEtcdBackup b is complete"},
		"failed":       {safety.Backup{Demanded: true, State: safety.BackupFailed, Name: "b"}, safety.Refuse, "delete it to retry"},
	} {
		v := safety.PermitUpgrade("Kubernetes v1.36.2", c.backup)
		if v.Action != c.action || !strings.Contains(v.Message, c.part) || c.part == "" && v.Message != "" {
			t.Errorf("%s: %+v", name, v)
		}
	}
}
