package plan_test

import (
	"strings"
	"testing"

	"github.com/talos-operator/talos-operator/internal/plan"
)

// TestPermitBackup: where a backup is demanded, a working member goes away with a fresh one only. Whatever else holds a
// disruption is told first, and a member that does not work waits for no backup.
func TestPermitBackup(t *testing.T) {
	down := at(1, func(n *plan.Node) { n.Members, n.MemberID = nil, 0 })
	silent := at(2, func(n *plan.Node) { *n = dead(*n) })

	demanded := func(state plan.BackupState) plan.Backup {
		return plan.Backup{Demanded: true, State: state, Name: "c-before", Message: "the disk is full"}
	}

	for name, tt := range map[string]struct {
		change func([]plan.Node)
		want   plan.Disruption
		backup plan.Backup
		action plan.Action
		reason string
		part   string
	}{
		"not demanded":       {nil, reboot("b"), plan.Backup{State: plan.BackupFailed}, plan.Proceed, "Safe", ""},
		"fresh":              {nil, reboot("b"), demanded(plan.BackupFresh), plan.Proceed, "Safe", ""},
		"nobody knows":       {nil, reboot("b"), plan.Backup{Demanded: true}, plan.Wait, "WaitingForBackup", "b is blocked"},
		"missing":            {nil, remove("b"), demanded(plan.BackupMissing), plan.Wait, "WaitingForBackup", "disk is full"},
		"running":            {nil, reboot("b"), demanded(plan.BackupRunning), plan.Wait, "WaitingForBackup", "c-before"},
		"failed":             {nil, remove("b"), demanded(plan.BackupFailed), plan.Refuse, "BackupFailed", "c-before"},
		"another reason":     {silent, reboot("b"), demanded(plan.BackupMissing), plan.Wait, "EtcdUnhealthy", ""},
		"its etcd is down":   {down, reboot("b"), demanded(plan.BackupFailed), plan.Proceed, "Safe", ""},
		"a dead member goes": {silent, replace("c", 3, true), demanded(plan.BackupFailed), plan.Proceed, "Safe", ""},
	} {
		nodes := controlPlane(3)
		if tt.change != nil {
			tt.change(nodes)
		}

		tt.want.Backup = tt.backup

		v := plan.Permit(nodes, "", tt.want)
		if v.Action != tt.action || v.Reason != tt.reason || !strings.Contains(v.Message, tt.part) {
			t.Errorf("%s: %v %s: %s", name, v.Action, v.Reason, v.Message)
		}
	}
}
