// Package upgrade plans the way of a cluster from the versions that it runs to others: which releases of Talos and of
// Kubernetes it goes through, in which order, and why. It is pure: versions in, steps out.
package upgrade

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// Component is what a step upgrades.
type Component string

// Components.
const (
	// Talos is the operating system. A step reboots each machine once.
	Talos Component = "Talos"
	// Kubernetes is the control plane, kube-proxy and the kubelets. A step reboots no machine.
	Kubernetes Component = "Kubernetes"
)

// Node is a machine of the cluster as it runs.
type Node struct {
	Name         string
	ControlPlane bool
	// Talos and Kubelet are versions such as v1.13.9.
	Talos, Kubelet string
	// Components are the versions of the other parts of Kubernetes on a control-plane machine, as far as they are known.
	Components map[v1alpha1.KubernetesComponent]string
}

// NodeOf returns what a machine runs, as its status tells.
func NodeOf(m *v1alpha1.TalosMachine) Node {
	out := Node{
		Name: m.Name, ControlPlane: m.Spec.WorkerRef == nil, Talos: m.Status.TalosVersion,
		Kubelet: VersionOf(m.Status.KubeletVersion),
	}

	if v := m.Status.ComponentVersions; v != nil && out.ControlPlane {
		out.Components = map[v1alpha1.KubernetesComponent]string{
			v1alpha1.ComponentAPIServer: VersionOf(v.APIServer), v1alpha1.ComponentScheduler: VersionOf(v.Scheduler),
			v1alpha1.ComponentControllerManager: VersionOf(v.ControllerManager), v1alpha1.ComponentProxy: VersionOf(v.Proxy),
		}
	}

	return out
}

// VersionOf returns the version in the tag of an image: builds of one version come under tags of their own, such as
// v1.36.2-slim. Tags of releases before a version, such as v1.37.0-rc.0, are versions themselves.
func VersionOf(tag string) string {
	version, build, _ := strings.Cut(tag, "-")

	for _, before := range []string{"alpha", "beta", "rc"} {
		if strings.HasPrefix(build, before) {
			return tag
		}
	}

	return version
}

// Fields of a change of kind Talos: what of the operating system it replaces.
const (
	FieldTalos     = "Talos"
	FieldSchematic = "schematic"
)

// SystemHash identifies an operating system, by its version and schematic: as base and target of a change of kind
// Talos, and as what worked last.
func SystemHash(version, schematic string) string {
	sum := sha256.Sum256([]byte(version + "\n" + schematic))

	return hex.EncodeToString(sum[:])
}

// Cluster is what runs.
type Cluster struct {
	Nodes []Node
	// Kubernetes is the version of an API server that responds. Where the versions of components are known, the oldest one
	// counts.
	Kubernetes string
	// Upgraded is the version of Kubernetes that an upgrade has begun to bring; empty if none has. What was upgraded
	// otherwise, by hand, is not taken back.
	Upgraded string
}

// Target is what is to run; an empty field keeps what runs.
type Target struct {
	Talos      string `json:"talos,omitempty"`
	Kubernetes string `json:"kubernetes,omitempty"`
}

// String lists the versions for a sentence.
func (t Target) String() string {
	var parts []string

	if t.Talos != "" {
		parts = append(parts, "Talos "+t.Talos)
	}

	if t.Kubernetes != "" {
		parts = append(parts, "Kubernetes "+t.Kubernetes)
	}

	return strings.Join(parts, " with ")
}

// Step is one upgrade of all machines that are older.
type Step struct {
	Component Component `json:"component"`
	// From is the oldest version that runs before the step, of API servers if it upgrades them; To is what runs after it.
	From string `json:"from"`
	To   string `json:"to"`
	// Machines that the step upgrades, in its order: control plane first, then by name.
	Machines []string `json:"machines"`
	// Reboots is the number of machines that reboot.
	Reboots int `json:"reboots"`
	// Reason says why the path goes through this version.
	Reason string `json:"reason"`
}

// Refusal is why there is no path.
type Refusal struct {
	// Problem for users.
	Problem string
	// Nearest is the target closest to the desired one that can be reached; empty if nothing can.
	Nearest Target
}

// Error implements error.
func (r *Refusal) Error() string {
	if r.Nearest == (Target{}) {
		return r.Problem
	}

	return fmt.Sprintf("%s; the nearest that can be reached is %s", r.Problem, r.Nearest)
}
