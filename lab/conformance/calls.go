package conformance

import (
	"context"
	"regexp"
	"strings"

	"google.golang.org/grpc/codes"
)

// calls asks a node everything that was asked in a recording, except the calls that take the node down.
func (c *comparison) calls(ctx context.Context, t target) error {
	recorded, err := recordedCalls(c.state)
	if err != nil {
		return err
	}

	var asked []question

	for _, q := range questions(recorded) {
		if entry := c.known.call(c.state, q.method, recorded[q.method][q.role].Code); entry == nil || entry.Power == "" {
			asked = append(asked, q)
		}
	}

	answers, err := ask(ctx, t, asked)
	if err != nil {
		return err
	}

	for _, q := range asked {
		c.call(q, recorded[q.method][q.role], answers[q])
	}

	return nil
}

func (c *comparison) call(q question, want, got answer) {
	switch {
	case got.Code == want.Code && sameMessage(want, got):
		c.pass()
	case c.known.allowsCall(c.state, q.method, want.Code, got.Code):
		c.allow()
	default:
		c.fail("%s: %s as %s: recorded %s (%s), here %s (%s)",
			c.state, q.method, q.role, want.Code, want.Message, got.Code, got.Message)
	}
}

var (
	addressPattern = regexp.MustCompile(`\d+\.\d+\.\d+\.\d+(:\d+)?|\[[0-9a-f:]+\](:\d+)?`)
	numberPattern  = regexp.MustCompile(`\b\d{3,}\b|0x[0-9a-f]+`)
)

// recordedLength is where the recordings cut messages off.
const recordedLength = 200

// sameMessage compares what the handlers said. Successes say nothing, and how a broken connection or a deadline shows
// depends on which side noticed first.
func sameMessage(want, got answer) bool {
	switch want.Code {
	case codes.OK.String(), codes.Unavailable.String(), codes.DeadlineExceeded.String():
		return true
	}

	message := numberPattern.ReplaceAllString(addressPattern.ReplaceAllString(got.Message, "ADDR"), "N")
	if len(message) > recordedLength {
		message = message[:recordedLength]
	}

	return strings.TrimSpace(message) == strings.TrimSpace(want.Message)
}

// powerCalls lists the calls of a recording that take the node down, in the order of the list of differences.
func (c *comparison) powerCalls() ([]powerCall, error) {
	recorded, err := recordedCalls(c.state)
	if err != nil {
		return nil, err
	}

	var all []powerCall

	for _, entry := range c.known.Calls {
		if entry.Power == "" || !applies(entry.States, c.state) {
			continue
		}

		for role, want := range recorded[entry.Method] {
			if c.known.call(c.state, entry.Method, want.Code) == entry {
				q := question{method: entry.Method, role: role}
				all = append(all, powerCall{question: q, want: want, power: entry.Power})
			}
		}
	}

	return all, nil
}

// powerCall is a call that takes the node down.
type powerCall struct {
	question

	want  answer
	power string // reboot or off
}
