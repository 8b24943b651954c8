package upgrade

import (
	"fmt"
	"strings"

	"github.com/talos-operator/talos-operator/internal/decide/change"
	"github.com/talos-operator/talos-operator/internal/kube"
)

// Pull is what is known about the images that one machine pulls before an upgrade begins.
type Pull struct {
	Machine string
	// Group of a worker; empty for a control-plane machine.
	Group string
	// Done: the node lists its images.
	Done bool
	// Problem says why it does not have them, or that it does not respond; empty while it pulls.
	Problem string
}

// Pulls is what the pulls of all machines amount to.
type Pulls struct {
	// Wait says what the upgrade waits for; empty if it may begin.
	Wait string
	// Failed: it waits for a machine that cannot have its images, and not only for time.
	Failed bool
	// Tolerated names the machines without images that the upgrade does not wait for; empty if there are none.
	Tolerated string
}

const (
	// maxPulls is how many machines that cannot pull a message explains.
	maxPulls = 3
	// longestPull is the maximum length of what is said about one of them.
	longestPull = 200
)

// JudgePulls decides whether an upgrade may begin: once each machine has its images, but for as many of a worker group
// as may fail there (mayFail). A machine that still pulls is waited for.
func JudgePulls(version string, all []Pull, mayFail func(group string) int) Pulls {
	var (
		failed, pulling, tolerated []string
		done                       int
	)

	problems := map[string]int{}

	for _, p := range all {
		if p.Problem != "" {
			problems[p.Group]++
		}
	}

	for _, p := range all {
		text := kube.Shorten(p.Problem, longestPull)
		if !strings.HasPrefix(text, p.Machine+" ") {
			text = p.Machine + ": " + text
		}

		switch {
		case p.Done:
			done++
		case p.Problem == "":
			pulling = append(pulling, p.Machine)
		case p.Group != "" && problems[p.Group] <= mayFail(p.Group):
			tolerated = append(tolerated, text)
		default:
			failed = append(failed, text)
		}
	}

	out := Pulls{Failed: len(failed) > 0, Tolerated: explain(tolerated)}

	switch {
	case len(failed) > 0:
		out.Wait = fmt.Sprintf("the images of %s are not on each machine, so none begins: %s; it is tried again every "+
			"minute; to go on without, leave such machines out with upgrade.machineSelector, or set upgrade.prePull to Never",
			version, explain(failed))
	case len(pulling) > 0:
		out.Wait = fmt.Sprintf("the images of %s are pulled before the first machine begins: waiting for %s (%d of %d "+
			"machines have them)", version, change.List(pulling), done, len(all))
	}

	if out.Tolerated != "" {
		out.Tolerated = fmt.Sprintf("the images of %s are missing on machines that rollout.maxFailed tolerates: %s", version,
			out.Tolerated)
	}

	return out
}

// explain joins what is said about machines.
func explain(texts []string) string {
	if left := len(texts) - maxPulls; left > 0 {
		texts = append(texts[:maxPulls:maxPulls], fmt.Sprintf("and %d more", left))
	}

	return strings.Join(texts, "; ")
}
