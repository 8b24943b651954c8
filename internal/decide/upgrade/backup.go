package upgrade

// NeedsBackup reports whether a step is held until there is a backup, where a control plane demands one before
// disruptions: the first component of another minor of Kubernetes. Patch releases do not change what etcd holds, an
// upgrade that is taken back must not wait, and each reboot for another Talos is held by itself.
func NeedsBackup(component Component, from, to string) bool {
	return component == Kubernetes && !Newer(from, to) && minorDiffers(from, to)
}

// WithoutBackup says that a step goes on without a backup; empty where the control plane demands one, where a schedule
// takes them, or where none would be demanded.
func WithoutBackup(component Component, from, to string, demanded bool, schedules int) string {
	if demanded || schedules > 0 || component == Kubernetes && !NeedsBackup(component, from, to) {
		return ""
	}

	return "no TalosEtcdBackupSchedule is known for the cluster: the upgrade goes on without a backup"
}

func minorDiffers(a, b string) bool {
	one, err := parse(Kubernetes, a)
	if err != nil {
		return true // what is not known may be another minor
	}

	two, err := parse(Kubernetes, b)

	return err != nil || one.Minor != two.Minor
}
