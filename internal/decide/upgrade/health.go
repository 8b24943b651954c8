package upgrade

import "fmt"

// Sick is a machine that responds and is not ready.
type Sick struct {
	Machine string
	// Group of a worker; empty for a control-plane machine.
	Group string
	// Why it is not ready.
	Why string
}

// JudgeHealth decides whether an upgrade may begin although machines are not ready: not if more workers of a group are
// than may fail there (mayFail). What holds it is in wait, what does not in obstacles; both are empty if each machine
// is ready. Control-plane machines hold nothing here: which of them may go on is decided machine by machine, because
// the upgrade may be what repairs one.
func JudgeHealth(version string, all []Sick, mayFail func(group string) int) (wait, obstacles string) {
	var held, told []string

	sick := map[string]int{}
	for _, s := range all {
		sick[s.Group]++
	}

	for _, s := range all {
		text := s.Machine + ": " + s.Why
		if s.Group != "" && sick[s.Group] > mayFail(s.Group) {
			held = append(held, text)
		} else {
			told = append(told, text)
		}
	}

	if len(held) > 0 {
		wait = fmt.Sprintf("%s does not begin while machines are not ready: %s; repair them, leave them out with "+
			"upgrade.machineSelector, or have rollout.maxFailed of their group tolerate them", version, explain(held))
	}

	if len(told) > 0 {
		obstacles = "machines that are not ready: " + explain(told)
	}

	return wait, obstacles
}
