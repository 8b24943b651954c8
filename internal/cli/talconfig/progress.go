package talconfig

import (
	"context"
	"fmt"
)

// progress is what a run does with a node, and how it leaves the node if it ends there: after an interruption, nothing
// else tells a user what has happened already.
type progress struct{ doing, state string }

// begin notes what is done next, and the state of the node until the next step.
func (t *target) begin(doing, state string) { t.progress = progress{doing: doing, state: state} }

// States of nodes, as an interrupted run leaves them.
const (
	nothingSent = "nothing was sent to it"
	maybeSent   = "it may have got the config: if so, it goes on by itself"
)

// ended describes why a run ends at a node, with what was done before and how to go on.
func (t *target) ended(ctx context.Context, err error, before, left string) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%s: interrupted while %s; %s; %s: run the command again to go on%s", t.Hostname, t.doing, t.state,
			before, left)
	}

	return fmt.Errorf("%s: %w; %s: repair the node, or correct the talconfig.yaml, and run the command again to go on%s",
		t.Hostname, err, before, left)
}

// interrupted is the error of a run that has changed nothing yet.
func interrupted(doing string) error {
	return fmt.Errorf("interrupted while %s; nothing was changed", doing)
}
