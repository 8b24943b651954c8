package upgrade

import "github.com/blang/semver/v4"

// latest are the releases that a path goes through if it is not told otherwise: the newest patch release of each minor
// that was known when this operator was built. Sources: the releases of siderolabs/talos, and the versions of
// k8s.io/kubelet, which is released with Kubernetes.
var latest = map[Component]map[uint64]string{
	Talos: {9: "v1.9.6", 10: "v1.10.9", 11: "v1.11.6", 12: "v1.12.12", 13: "v1.13.10"},
	Kubernetes: {
		28: "v1.28.15", 29: "v1.29.15", 30: "v1.30.14", 31: "v1.31.14", 32: "v1.32.13", 33: "v1.33.13", 34: "v1.34.13",
		35: "v1.35.10", 36: "v1.36.6",
	},
}

// waypoint is a release that has to run before a minor is left.
type waypoint struct {
	least  semver.Version
	reason string
}

// waypoints by the minor that they belong to.
var waypoints = map[Component]map[uint64]waypoint{
	Talos: {
		// https://etcd.io/blog/2025/zombie_members_upgrade/ and https://github.com/siderolabs/talos/issues/12467
		10: {
			least: semver.MustParse("1.10.9"),
			reason: "Talos 1.11 has etcd 3.6, in which members that were removed long ago come back unless etcd 3.5.26 of " +
				"Talos 1.10.9 has run before",
		},
	},
}

// etcd are the minors of etcd by the minor of Talos. Source: DefaultEtcdVersion in pkg/machinery/constants of
// siderolabs/talos.
var etcd = map[uint64]string{9: "3.5", 10: "3.5", 11: "3.6", 12: "3.6", 13: "3.6"}

// SameEtcd reports whether two versions of Talos are known to have the same minor of etcd: data that the newer minor
// has written is read by no older one.
func SameEtcd(a, b string) bool {
	x, err := parse(Talos, a)
	if err != nil {
		return false
	}

	y, err := parse(Talos, b)

	return err == nil && (x.Minor == y.Minor || etcd[x.Minor] != "" && etcd[x.Minor] == etcd[y.Minor])
}
