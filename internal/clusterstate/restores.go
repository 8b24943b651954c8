package clusterstate

import (
	"slices"
	"time"
)

// maxRestores limits the number of recorded restores.
const maxRestores = 64

// RestoreRun is the record of one TalosEtcdRestore.
type RestoreRun struct {
	Name string `json:"name"`
	UID  string `json:"uid"`
	// Spec is a digest of its spec, Backup the ID of the chosen backup.
	Spec   string `json:"spec"`
	Backup string `json:"backup,omitempty"`
	// Since is when it was first about to wipe or to bootstrap something.
	Since time.Time `json:"since"`
	// Step is the last recorded step; the final one if EndedAt is set.
	Step    string     `json:"step"`
	EndedAt *time.Time `json:"endedAt,omitempty"`
}

// RestoreRun returns the record of a restore: of the object itself, else of the last one with its name; nil if there is
// none.
func (r *Runtime) RestoreRun(name, uid string) *RestoreRun {
	for _, is := range []func(RestoreRun) bool{
		func(o RestoreRun) bool { return o.UID == uid }, func(o RestoreRun) bool { return o.Name == name },
	} {
		if i := slices.IndexFunc(r.Restores, is); i >= 0 {
			return &r.Restores[i]
		}
	}

	return nil
}

// RecordRestore records what a restore is about to do, or its result. There is one entry per name. Beyond the limit,
// the entry that began first is dropped, those that have ended before others.
func (r *Runtime) RecordRestore(run RestoreRun) {
	if i := slices.IndexFunc(r.Restores, func(o RestoreRun) bool { return o.Name == run.Name }); i >= 0 {
		if r.Restores[i].UID == run.UID {
			run.Since = r.Restores[i].Since
		}

		r.Restores[i] = run

		return
	}

	r.Restores = append(r.Restores, run)

	for len(r.Restores) > maxRestores {
		last := len(r.Restores) - 1
		oldest := 0

		for i, o := range r.Restores[:last] {
			if at := r.Restores[oldest]; (o.EndedAt != nil) == (at.EndedAt != nil) && o.Since.Before(at.Since) ||
				o.EndedAt != nil && at.EndedAt == nil {
				oldest = i
			}
		}

		r.Restores = slices.Delete(r.Restores, oldest, oldest+1)
	}
}
