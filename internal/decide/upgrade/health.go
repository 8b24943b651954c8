package upgrade

import "github.com/talos-operator/talos-operator/internal/decide/change"

// Unfit is a machine that does not respond, or is not ready.
type Unfit struct {
	Machine string
	// Why it is not ready; empty if it does not respond.
	Why string
}

// ExplainHealth names the machines of an upgrade that do not respond or are not ready; it is empty if there are none.
// They hold nothing: one that does not respond cannot begin anyway, one that is not ready may be repaired by the
// upgrade, and each machine is judged again when it is next in the rollout order.
func ExplainHealth(all []Unfit) string {
	var silent, sick []string

	for _, u := range all {
		if u.Why == "" {
			silent = append(silent, u.Machine)
		} else {
			sick = append(sick, u.Machine+": "+u.Why)
		}
	}

	var texts []string

	if len(silent) > 0 {
		texts = append(texts, "machines that do not respond: "+change.List(silent))
	}

	if len(sick) > 0 {
		texts = append(texts, "machines that are not ready: "+explain(sick))
	}

	return JoinObstacles(texts...)
}
