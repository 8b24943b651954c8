package clusterstate

import (
	"slices"
	"time"
)

// maxRestores bounds the restores that are remembered.
const maxRestores = 64

// RestoreRun is what is remembered of one TalosEtcdRestore.
type RestoreRun struct {
	Name string `json:"name"`
	UID  string `json:"uid"`
	// Spec is a digest of its spec, Backup the ID of the backup that it chose.
	Spec   string `json:"spec"`
	Backup string `json:"backup,omitempty"`
	// Since is when it was first about to wipe or to found something.
	Since time.Time `json:"since"`
	// Step is the one whose act was recorded last: that of its end when EndedAt is set.
	Step    string     `json:"step"`
	EndedAt *time.Time `json:"endedAt,omitempty"`
}

// RestoreRun is what is remembered of a restore: of the object itself, else of the last one of its name; nil when there
// is nothing.
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

// RecordRestore remembers what a restore is about to do, or what became of it. There is one entry a name. Of too many
// the one is forgotten that began first, those that have ended before others.
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
