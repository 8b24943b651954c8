package demo

import (
	"slices"
	"strings"

	"github.com/talos-operator/talos-operator/lab/control"
)

// doing says what a machine is busy with, in words for a reader who has never seen Talos boot. What the operator says
// of it stands where the machine itself has nothing to tell.
func doing(n control.Node, operator string) string {
	// A machine has no stage while it is off, and an unknown one until its kernel runs, also when it reboots.
	if starting := !n.Powered || n.Stage == "unknown"; starting && n.Installed {
		return "rebooting into the installed system"
	} else if starting {
		return "powering on"
	}

	switch n.Stage {
	case "maintenance":
		return "in maintenance mode, waiting for a config"
	case "installing":
		return "installing Talos to disk"
	case "booting", "rebooting":
		return bootingDoing(n)
	case "running":
		return runningDoing(n, operator)
	case "resetting":
		return "wiping its disk"
	default:
		return operator
	}
}

func bootingDoing(n control.Node) string {
	switch {
	case n.Stage == "rebooting":
		return "rebooting into the installed system"
	case slices.Contains(n.Unmet, "services"):
		return "booting: starting services"
	case len(n.Unmet) > 0:
		return "booting: waiting for " + strings.Join(n.Unmet, ", ")
	default:
		return "booting"
	}
}

func runningDoing(n control.Node, operator string) string {
	switch {
	case !n.Ready && n.MachineType == "controlplane" && n.EtcdMember == "":
		return "running, waiting for etcd"
	case !n.Ready && len(n.Unmet) > 0:
		return "running, waiting for " + strings.Join(n.Unmet, ", ")
	case n.EtcdMember != "":
		return "running as etcd member and API server"
	case n.MachineType == "worker":
		return "running as a worker"
	default:
		return operator
	}
}
