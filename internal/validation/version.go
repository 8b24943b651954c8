package validation

import (
	"fmt"
	"strings"
	"sync"

	"github.com/blang/semver/v4"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/compatibility"
)

// VersionFields are the paths of the two version fields.
type VersionFields struct {
	Talos, Kubernetes string
}

// SpecVersions are the paths in every spec of this project.
var SpecVersions = VersionFields{Talos: "spec.talosVersion", Kubernetes: "spec.kubernetesVersion"}

// Versions checks that both versions are well formed and that Talos supports this Kubernetes.
func (f VersionFields) Versions(talos, kubernetes string) Failures {
	t, failures := parseVersion(f.Talos, "Talos", talos)
	k, more := parseVersion(f.Kubernetes, "Kubernetes", kubernetes)

	if failures = append(failures, more...); len(failures) > 0 {
		return failures
	}

	low, high, known := SupportedKubernetes(talos)
	if !known {
		first, last := SupportedTalos()

		return Failures{{
			Field:   f.Talos,
			Problem: fmt.Sprintf("Talos v%s is not known to this operator", t),
			Remedy:  fmt.Sprintf("use Talos v%s to v%s", first, last),
		}}
	}

	if Supports(t, k) == nil {
		return nil
	}

	age := "old"
	if k.Minor >= low.Minor {
		age = "new"
	}

	return Failures{{
		Field:   f.Kubernetes,
		Problem: fmt.Sprintf("Kubernetes v%s is too %s for Talos v%s", k, age, t),
		Remedy: fmt.Sprintf("Talos v%d.%d supports Kubernetes v%d.%d to v%d.%d",
			t.Major, t.Minor, low.Major, low.Minor, high.Major, high.Minor),
	}}
}

// TalosChange checks a desired Talos version against the one that runs.
func (f VersionFields) TalosChange(running, wanted string) Failures {
	return f.change(f.Talos, "Talos", running, wanted)
}

// KubernetesChange checks a desired Kubernetes version against the one that runs: no way back, one minor at a time.
func (f VersionFields) KubernetesChange(running, wanted string) Failures {
	failures := f.change(f.Kubernetes, "Kubernetes", running, wanted)
	if len(failures) > 0 {
		return failures
	}

	from, err := semver.ParseTolerant(running)
	if err != nil {
		return nil
	}

	to, err := semver.ParseTolerant(wanted)
	if err != nil || (to.Major == from.Major && to.Minor <= from.Minor+1) {
		return nil
	}

	return Failures{{
		Field:   f.Kubernetes,
		Problem: fmt.Sprintf("Kubernetes cannot go from v%s to v%s in one step", from, to),
		Remedy:  fmt.Sprintf("go to v%d.%d first", from.Major, from.Minor+1),
	}}
}

// change refuses a downgrade. A running version that is empty or unreadable says nothing.
func (f VersionFields) change(field, what, running, wanted string) Failures {
	to, failures := parseVersion(field, what, wanted)
	if len(failures) > 0 {
		return failures
	}

	from, err := semver.ParseTolerant(running)
	if err != nil || to.GTE(from) {
		return nil
	}

	return Failures{{
		Field:   field,
		Problem: fmt.Sprintf("%s v%s is older than v%s, which runs", what, to, from),
		Remedy:  fmt.Sprintf("use v%s or later; a downgrade is refused", from),
	}}
}

func parseVersion(field, what, text string) (semver.Version, Failures) {
	v, err := semver.Parse(strings.TrimPrefix(text, "v"))
	if err == nil && strings.HasPrefix(text, "v") {
		return v, nil
	}

	return v, Failures{{
		Field:   field,
		Problem: fmt.Sprintf("%q is not a %s version", text, what),
		Remedy:  "write it like v1.13.9",
	}}
}

// Supports says why a Talos does not support a Kubernetes; nil if it does. It asks the machinery library, whose tables
// need not be copied.
func Supports(talos, kubernetes semver.Version) error {
	target, err := compatibility.ParseTalosVersion(&machine.VersionInfo{Tag: talos.String()})
	if err != nil {
		return err
	}

	version, err := compatibility.ParseKubernetesVersion(kubernetes.String())
	if err != nil {
		return err
	}

	return version.SupportedWith(target)
}

// The library says yes or no for one pair, but has no way to list what it knows. The versions that could ever be in
// its tables are asked one by one, once for each Talos version.
const (
	firstMinor = 2
	lastMinor  = 99
)

var kubernetesRanges sync.Map

type minorRange struct {
	low, high semver.Version
	known     bool
}

// SupportedKubernetes returns the first and last Kubernetes minor that a Talos version supports, and whether that Talos
// version is known at all.
func SupportedKubernetes(talos string) (low, high semver.Version, known bool) {
	v, err := semver.ParseTolerant(talos)
	if err != nil {
		return low, high, false
	}

	key := [2]uint64{v.Major, v.Minor}
	if cached, ok := kubernetesRanges.Load(key); ok {
		r := cached.(minorRange)

		return r.low, r.high, r.known
	}

	var r minorRange

	for minor := uint64(firstMinor); minor <= lastMinor; minor++ {
		candidate := semver.Version{Major: 1, Minor: minor}
		if Supports(semver.Version{Major: v.Major, Minor: v.Minor}, candidate) != nil {
			continue
		}

		if !r.known {
			r.low, r.known = candidate, true
		}

		r.high = candidate
	}

	kubernetesRanges.Store(key, r)

	return r.low, r.high, r.known
}

// SupportedTalos returns the first and last Talos minor that is known, such as 1.13.
func SupportedTalos() (first, last string) { return knownTalos() }

var knownTalos = sync.OnceValues(func() (first, last string) {
	for minor := firstMinor; minor <= lastMinor; minor++ {
		version := fmt.Sprintf("1.%d", minor)
		if _, _, known := SupportedKubernetes(version); !known {
			continue
		}

		if first == "" {
			first = version
		}

		last = version
	}

	return first, last
})
