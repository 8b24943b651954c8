// Package control is how a person, or a test in another process, handles the machines of a running lab: HTTP over a
// unix socket in the lab's directory.
package control

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
)

// SocketName is the name of the socket in the directory of a lab.
const SocketName = "control.sock"

// maxSocketPath is what fits into the kernel's address of a socket.
const maxSocketPath = 104

// Info is what a lab says of itself.
type Info struct {
	// Dir is the lab's directory, PID its process.
	Dir string `json:"dir"`
	PID int    `json:"pid"`
	// Subnet of the machines.
	Subnet string `json:"subnet"`
	// Kubeconfig is the path of the admin's kubeconfig of the management plane, Server its URL.
	Kubeconfig string `json:"kubeconfig"`
	Server     string `json:"server"`
	// Store is the URL of the lab's S3 server.
	Store string `json:"store,omitempty"`
	// Ready is true once everything has started.
	Ready bool `json:"ready"`
	// Manager says how the operator is.
	Manager ManagerInfo `json:"manager"`
}

// ManagerInfo describes the operator's process.
type ManagerInfo struct {
	PID      int    `json:"pid,omitempty"`
	Restarts int    `json:"restarts"`
	Metrics  string `json:"metrics,omitempty"`
	Health   string `json:"health,omitempty"`
	Log      string `json:"log,omitempty"`
	// RSSPeakBytes is the most memory that the process, or one before it, has used.
	RSSPeakBytes int64 `json:"rssPeakBytes,omitempty"`
}

// Node is one machine.
type Node struct {
	Name              string   `json:"name"`
	Address           string   `json:"address"`
	Powered           bool     `json:"powered"`
	Frozen            bool     `json:"frozen"`
	Partitioned       bool     `json:"partitioned"`
	DiskFull          bool     `json:"diskFull"`
	SecureBoot        bool     `json:"secureBoot"`
	Stage             string   `json:"stage,omitempty"`
	Ready             bool     `json:"ready"`
	Unmet             []string `json:"unmet,omitempty"`
	BootID            string   `json:"bootID,omitempty"`
	Installed         bool     `json:"installed"`
	TalosVersion      string   `json:"talosVersion,omitempty"`
	Hostname          string   `json:"hostname,omitempty"`
	MachineType       string   `json:"machineType,omitempty"`
	ClusterID         string   `json:"clusterID,omitempty"`
	ClusterName       string   `json:"clusterName,omitempty"`
	KubernetesVersion string   `json:"kubernetesVersion,omitempty"`
	EtcdMember        string   `json:"etcdMember,omitempty"`
	// MaintenanceFingerprint is that of the certificate which the machine shows in maintenance mode.
	MaintenanceFingerprint string `json:"maintenanceFingerprint,omitempty"`
	// Calls is how many calls the machine API has received, MutatingCalls how many of them asked for a change.
	Calls         int `json:"calls"`
	MutatingCalls int `json:"mutatingCalls"`
	// Timings are the phases of the machine's own work.
	Timings []Timing `json:"timings,omitempty"`
}

// Timing is how long a phase of a machine's own work took.
type Timing struct {
	Phase   string  `json:"phase"`
	Start   string  `json:"start"`
	Seconds float64 `json:"seconds"`
}

// Boot asks for a new machine, or for power for one that is there.
type Boot struct {
	Name         string `json:"name,omitempty"`
	Address      string `json:"address,omitempty"`
	CPUs         int    `json:"cpus,omitempty"`
	MemoryMiB    int    `json:"memoryMiB,omitempty"`
	DiskGiB      []int  `json:"diskGiB,omitempty"`
	TalosVersion string `json:"talosVersion,omitempty"`
	SecureBoot   bool   `json:"secureBoot,omitempty"`
}

// Actions on a machine.
const (
	ActionFreeze    = "freeze"
	ActionThaw      = "thaw"
	ActionPartition = "partition"
	ActionHeal      = "heal"
	ActionKill      = "kill"
	ActionStart     = "start"
	ActionStop      = "stop"
	ActionRestart   = "restart"
	ActionWipe      = "wipe"
	ActionRemove    = "remove"
	ActionSlow      = "slow"
	ActionFail      = "fail"
	ActionClear     = "clear"
	ActionStall     = "stall-pulls"
	ActionFill      = "fill-disk"
	// The machine reports a fault of its network, in place of another one; it can be reached all the same.
	ActionLinkDown  = "link-down"
	ActionLinkGone  = "link-missing"
	ActionNoDNS     = "no-resolvers"
	ActionSilentDNS = "silent-resolvers"
	ActionNoTunnels = "no-tunnels"
	ActionNoMembers = "no-members"
	// ActionSecure and ActionInsecure switch Secure Boot on and off, from the next boot on.
	ActionSecure   = "secure-boot-on"
	ActionInsecure = "secure-boot-off"
)

// Action asks to do something to machines.
type Action struct {
	// Names of the machines: full, without the namespace where that is clear, or addresses.
	Names []string `json:"names"`
	// Action is one of the constants.
	Action string `json:"action"`
	// Method of the machine API, for slow and fail; empty means every method.
	Method string `json:"method,omitempty"`
	// Delay of each call, for slow.
	Delay string `json:"delay,omitempty"`
	// Link is the name of a link, for link-down and link-missing.
	Link string `json:"link,omitempty"`
	// Code that calls answer, for fail, in the words of gRPC: Unavailable.
	Code string `json:"code,omitempty"`
	// Nth is the first call that fails, 1 being the next, Count how many fail (0: all that follow).
	Nth   int `json:"nth,omitempty"`
	Count int `json:"count,omitempty"`
}

// Socket returns the path of the socket of the lab in a directory. A path too long for the kernel is replaced by one
// in the directory for temporary files.
func Socket(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("finding the socket of the lab: %w", err)
	}

	path := filepath.Join(dir, SocketName)
	if len(path) < maxSocketPath {
		return path, nil
	}

	sum := sha256.Sum256([]byte(dir))

	return filepath.Join(os.TempDir(), "talos-lab-"+hex.EncodeToString(sum[:8])+".sock"), nil
}
