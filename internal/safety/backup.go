package safety

import "github.com/talos-operator/talos-operator/api/v1alpha1"

// BackupState is the observed state of the backup that a disruption waits for.
type BackupState int

// Backup states.
const (
	// BackupMissing: there is no fresh backup, or its state is unknown.
	BackupMissing BackupState = iota
	// BackupRunning: a backup is in progress.
	BackupRunning
	// BackupFailed: the backup failed permanently.
	BackupFailed
	// BackupFresh: the backup is complete, verified at the level that its spec demands, and recent enough.
	BackupFresh
)

// Backup is the evidence about the backup before a disruption. The zero Backup means that no backup is demanded.
type Backup struct {
	// Demanded: no working member may be disrupted without a fresh backup.
	Demanded bool
	// State of the backup.
	State BackupState
	// Name of the backup object, if there is one.
	Name string
	// Message says what is wrong or what the backup waits for; it may be empty.
	Message string
}

// holds reports whether the backup blocks a disruption.
func (b Backup) holds(machine string) (Verdict, bool) {
	detail := ""
	if b.Message != "" {
		detail = ": " + b.Message
	}

	switch {
	case !b.Demanded || b.State == BackupFresh:
		return Verdict{}, false
	case b.State == BackupFailed:
		return refuseTo(v1alpha1.ReasonBackupFailed, "%s is blocked: TalosEtcdBackup %s, which is required first, failed%s; "+
			"fix the cause and delete it to retry", machine, b.Name, detail), true
	case b.State == BackupRunning:
		return waitFor(v1alpha1.ReasonWaitingForBackup, "%s is blocked until TalosEtcdBackup %s is complete%s", machine,
			b.Name,
			detail), true
	}

	return waitFor(v1alpha1.ReasonWaitingForBackup, "%s is blocked until there is a fresh backup%s", machine, detail), true
}

// PermitUpgrade decides whether the first component of another minor of Kubernetes may be replaced. No node is
// disrupted, but there is no way back once all control planes have written with the new API servers.
func PermitUpgrade(what string, b Backup) Verdict {
	if verdict, held := b.holds(what); held {
		return verdict
	}

	return Verdict{Action: Proceed, Reason: v1alpha1.ReasonSafe}
}
