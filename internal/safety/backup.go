package safety

import "github.com/talos-operator/talos-operator/api/v1alpha1"

// BackupState is what is known of the backup that a disruption waits for.
type BackupState int

// Backup states.
const (
	// BackupMissing: there is none that is fresh, or nobody knows.
	BackupMissing BackupState = iota
	// BackupRunning: one is being made.
	BackupRunning
	// BackupFailed: it was tried, and failed for good.
	BackupFailed
	// BackupFresh: it is complete, as thoroughly verified as its spec asks for, and young enough.
	BackupFresh
)

// Backup is the evidence about a backup before a disruption. The zero Backup says that none is demanded.
type Backup struct {
	// Demanded: without a fresh one no working member goes away.
	Demanded bool
	// State of it.
	State BackupState
	// Name of its object, as far as there is one.
	Name string
	// Message says what is wrong, or what it waits for; it may be empty.
	Message string
}

// holds tells whether the backup speaks against a disruption.
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
