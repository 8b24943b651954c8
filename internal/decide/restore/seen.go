package restore

import (
	"strings"

	"github.com/talos-operator/talos-operator/internal/safety"
)

// Seen summarizes the observed state of the nodes that a decision is based on, for users who want to know why a restore
// waits. Nodes in the same state are grouped.
func Seen(nodes []Node) string {
	var order []string

	names := map[string][]string{}

	for _, n := range nodes {
		text := n.seen()
		if names[text] == nil {
			order = append(order, text)
		}

		names[text] = append(names[text], n.Name)
	}

	for i, text := range order {
		order[i] = list(names[text]) + ": " + text
	}

	return strings.Join(order, "; ")
}

func (n Node) seen() string {
	var out []string

	switch {
	case n.Foreign:
		out = append(out, "runs under another CA")
	case n.Answer == safety.AnswerUnknown:
		out = append(out, "unreachable")
	case n.Answer == safety.AnswerMaintenance:
		out = append(out, "in maintenance mode")
	default:
		out = append(out, n.seenEtcd(), n.seenConfig())

		if !n.TimeSynced {
			out = append(out, "clock not in sync")
		}

		if n.Boot == "" {
			out = append(out, "boot ID unknown")
		}
	}

	if n.Leaving {
		out = append(out, "being deleted")
	}

	return list(out)
}

func (n Node) seenEtcd() string {
	switch {
	case n.Serves() && n.Leader != 0:
		return "etcd runs and has a leader"
	case runs(n):
		return "etcd runs without a leader"
	case n.EtcdFailed:
		return "etcd failed: " + n.EtcdMessage
	case n.waits():
		return "no etcd data, ready for a bootstrap"
	case n.empty():
		return "no etcd data, not ready for a bootstrap"
	case n.hasData():
		return "etcd data, etcd does not respond"
	}

	return "etcd data unknown"
}

func (n Node) seenConfig() string {
	switch n.Config {
	case ConfigTried:
		return "a config was tried since its boot"
	case ConfigStaged:
		return "a config of the type " + n.NextType + " is staged"
	case ConfigSettled:
		return "machine type " + n.Type
	case ConfigUnread:
	}

	return "machine config not shown"
}
