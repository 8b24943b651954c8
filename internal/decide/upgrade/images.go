package upgrade

import (
	"cmp"
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
	// Problem is the error of its last pull; empty while it pulls.
	Problem string
	// Refused says why it must not be given the version; empty if it may.
	Refused string
	// Skipped: it is not waited for, because it does not respond, is not ready, or does not say anything about its images.
	Skipped bool
	// Why it is skipped; empty if that is said elsewhere.
	Why string
}

// Pulls is what the pulls of all machines amount to.
type Pulls struct {
	// Wait says what the upgrade waits for; empty if it may begin.
	Wait string
	// Failed: it waits for a machine that cannot have its images, and not only for time. Refused: for one that must not be
	// given the version.
	Failed, Refused bool
	// Tolerated names the machines without images that the upgrade does not wait for; empty if there are none.
	Tolerated string
}

const (
	// maxPulls is how many machines that cannot pull a message explains.
	maxPulls = 3
	// longestPull is the maximum length of what is said about one of them.
	longestPull = 200
)

// JudgePulls decides whether an upgrade may begin: a machine that still pulls is waited for, and an error of a pull
// holds it, but for as many machines of a worker group as may fail there (mayFail). Machines that are skipped hold
// nothing: they would do so for ever.
func JudgePulls(version string, all []Pull, mayFail func(group string) int) Pulls {
	j := judge(all, mayFail)
	out := Pulls{Failed: len(j.failed) > 0, Refused: len(j.refused) > 0}

	switch {
	case out.Refused:
		out.Wait = fmt.Sprintf("machines must not be given %s, so the upgrade does not begin: %s; correct the spec, or "+
			"exclude such machines with upgrade.machineSelector", version, explain(j.refused))
	case out.Failed:
		out.Wait = fmt.Sprintf("machines cannot pull the images of %s, so the upgrade does not begin: %s; the pull is "+
			"retried automatically; to continue without them, exclude such machines with upgrade.machineSelector, or set "+
			"upgrade.prePull to Never", version, explain(j.failed))
	case len(j.pulling) > 0:
		out.Wait = fmt.Sprintf("the images of %s are pulled before the first machine begins: waiting for %s (%d of %d "+
			"machines have them); to begin without them, exclude such machines with upgrade.machineSelector, or set "+
			"upgrade.prePull to Never", version, change.List(j.pulling), j.done, len(all))
	}

	if len(j.tolerated) > 0 {
		j.tolerated[0] = fmt.Sprintf("the images of %s are missing on machines that rollout.maxFailed tolerates: %s", version,
			j.tolerated[0])
	}

	if len(j.skipped) > 0 {
		j.skipped[0] = fmt.Sprintf("whether machines have the images of %s is unknown: %s", version, j.skipped[0])
	}

	out.Tolerated = JoinObstacles(explain(j.tolerated), explain(j.skipped))

	return out
}

// judged is what is said about machines, each in one of these.
type judged struct {
	failed, refused, pulling, tolerated, skipped []string
	// done is how many have their images.
	done int
}

func judge(all []Pull, mayFail func(group string) int) judged {
	var out judged

	problems := map[string]int{}

	for _, p := range all {
		if p.problem() != "" {
			problems[p.Group]++
		}
	}

	for _, p := range all {
		switch {
		case p.Done:
			out.done++
		case p.problem() != "" && p.Group != "" && problems[p.Group] <= mayFail(p.Group):
			out.tolerated = append(out.tolerated, p.say(p.problem()))
		case p.Refused != "":
			out.refused = append(out.refused, p.say(p.Refused))
		case p.Problem != "":
			out.failed = append(out.failed, p.say(p.Problem))
		case !p.Skipped:
			out.pulling = append(out.pulling, p.Machine)
		case p.Why != "":
			out.skipped = append(out.skipped, p.say(p.Why))
		}
	}

	return out
}

// problem is why a machine must not have its images, or cannot; empty if nothing is in the way.
func (p Pull) problem() string { return cmp.Or(p.Refused, p.Problem) }

// say puts the name of the machine in front of a text about it.
func (p Pull) say(text string) string {
	text = kube.Shorten(text, longestPull)
	if strings.HasPrefix(text, p.Machine+" ") {
		return text
	}

	return p.Machine + ": " + text
}

// explain joins what is said about machines.
func explain(texts []string) string {
	if left := len(texts) - maxPulls; left > 0 {
		texts = append(texts[:maxPulls:maxPulls], fmt.Sprintf("and %d more", left))
	}

	return strings.Join(texts, "; ")
}
