package upgrade

// NeedsBackup reports whether a step is blocked until there is a backup, where a control plane demands one before
// disruptions: the first component of another minor of Kubernetes. Patch releases do not change what etcd holds, an
// upgrade that is taken back must not wait, and each reboot for another Talos is blocked by itself.
func NeedsBackup(component Component, from, to string) bool {
	return component == Kubernetes && !Newer(from, to) && minorDiffers(from, to)
}

// WaitsForBackup reports whether a step waits for the backup that is taken by default, where a control plane demands
// none before disruptions: what would be blocked there, and another Talos.
func WaitsForBackup(component Component, from, to string) bool {
	return component == Talos || NeedsBackup(component, from, to)
}

func minorDiffers(a, b string) bool {
	one, err := parse(Kubernetes, a)
	if err != nil {
		return true // what is not known may be another minor
	}

	two, err := parse(Kubernetes, b)

	return err != nil || one.Minor != two.Minor
}
