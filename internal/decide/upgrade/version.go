package upgrade

import (
	"maps"
	"slices"

	"github.com/blang/semver/v4"
)

// Newer reports whether a version of Talos or Kubernetes is newer than another one. It is false for a text that is no
// version.
func Newer(version, than string) bool {
	a, err := parse(Talos, version)
	if err != nil {
		return false
	}

	b, err := parse(Talos, than)

	return err == nil && a.GT(b)
}

// IsVersion reports whether a text is a version of Talos, such as v1.13.9.
func IsVersion(text string) bool {
	_, err := parse(Talos, text)

	return err == nil
}

// NewestKnown returns the newest release of a component that this version of the operator knows.
func NewestKnown(of Component) string {
	return latest[of][slices.Max(slices.Collect(maps.Keys(latest[of])))]
}

// TooNew reports whether a Talos has a newer minor version than the newest known one. It is false for a text that is no
// version.
func TooNew(talos string) bool {
	v, err := parse(Talos, talos)

	return err == nil && v.Minor > slices.Max(slices.Collect(maps.Keys(latest[Talos])))
}

// installsOnly is the first Talos that installs without a reboot, by its LifecycleService. Source:
// https://github.com/siderolabs/talos/releases/tag/v1.13.0
var installsOnly = semver.MustParse("1.13.0-beta.0")

// Legacy reports whether a Talos installs and reboots by one call, the legacy one.
func Legacy(version string) bool {
	v, err := parse(Talos, version)

	return err == nil && v.LT(installsOnly)
}
