package upgrade

import (
	"fmt"
	"slices"
	"strings"

	"github.com/talos-operator/talos-operator/internal/decide/change"
)

// NeededSpace is how much of the volume EPHEMERAL a machine has to have free before it is upgraded. containerd keeps
// an image packed and unpacked: that is up to about 0.7 GiB of an installer with extensions, or of the five images of a
// version of Kubernetes on a control-plane machine. The rest is for what etcd and pods write meanwhile: a pull that
// fills the volume stops the etcd member that is on it.
const NeededSpace = 1 << 30

const (
	mebibyte = 1 << 20
	// shownMebibytes is how exactly messages tell the free space: with each MiB that a pod writes, they would change.
	shownMebibytes = 100
)

// Space is what a machine has free on the volume EPHEMERAL.
type Space struct {
	Machine string
	// Free is in bytes.
	Free uint64
	// Problem says why that is unknown; empty if it is known.
	Problem string
}

// RefuseSpace says which machines have too little space for the images of a version; empty if none is known to.
func RefuseSpace(version string, all []Space) string {
	full := named(all, func(s Space) string {
		if s.Problem != "" || s.Free >= NeededSpace {
			return ""
		}

		return fmt.Sprintf("%s (%d MiB free)", s.Machine, s.Free/mebibyte/shownMebibytes*shownMebibytes)
	})
	if len(full) == 0 {
		return ""
	}

	return fmt.Sprintf("%s: too little space on /var (EPHEMERAL) for the images of %s, which need %d MiB: delete what is "+
		"not needed there, which talosctl usage /var shows, or enlarge the volume", change.List(full), version,
		NeededSpace/mebibyte)
}

// UnknownSpace says of which machines the free space is unknown, and why of the first one; empty if it is known of all.
func UnknownSpace(all []Space) string {
	names := named(all, func(s Space) string {
		if s.Problem != "" {
			return s.Machine
		}

		return ""
	})

	if len(names) == 0 {
		return ""
	}

	first := slices.IndexFunc(all, func(s Space) bool { return s.Machine == names[0] })

	return fmt.Sprintf("the free space on /var (EPHEMERAL) of %s is unknown: %s", change.List(names), all[first].Problem)
}

// RefuseUnknownSpace says that it is unknown whether the images of a version have space.
func RefuseUnknownSpace(version, why string) string {
	return fmt.Sprintf("insufficient evidence that the images of %s have space: %s; the check is repeated", version, why)
}

// JoinObstacles returns the obstacles of an upgrade as one text.
func JoinObstacles(all ...string) string {
	return strings.Join(slices.DeleteFunc(all, func(text string) bool { return text == "" }), "; ")
}

// named returns the texts of machines in the order of their names, without empty ones.
func named(all []Space, text func(Space) string) []string {
	var out []string

	for _, s := range all {
		if t := text(s); t != "" {
			out = append(out, t)
		}
	}

	slices.Sort(out)

	return out
}
