package talos

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/failure"
)

// line is the TCP connection of a client, which reconnects by itself if it breaks, possibly to another machine that has
// the address by then. While the line is held, no other connection is made, so that what is sent reaches only the
// machine that has responded.
type line struct {
	// dials counts the connections so far, holders the callers that prevent another one.
	dials, holders atomic.Int64
}

var errHeld = errors.New("the connection broke, and the request must not go to another machine")

func (l *line) hold()        { l.holders.Add(1) }
func (l *line) release()     { l.holders.Add(-1) }
func (l *line) isHeld() bool { return l.holders.Load() > 0 }

// connect establishes a connection unless the line is held, even if it is held only since the connection attempt began.
func (l *line) connect(dial func() (net.Conn, error)) (net.Conn, error) {
	l.dials.Add(1)

	if l.isHeld() {
		return nil, errHeld
	}

	c, err := dial()
	if err == nil && l.isHeld() {
		_ = c.Close()

		return nil, errHeld
	}

	return c, err
}

// Self identifies a machine, and one boot of it. Empty fields are unknown and not compared.
type Self struct{ UUID, BootID string }

// ToItself performs an action that is only for this machine in this boot: the identity of the machine is queried again,
// and act uses the connection over which it has responded. If it is another machine by now, act is not called and the
// error has the reason WrongMachine.
func (n *Node) ToItself(ctx context.Context, want Self, act func() error) error {
	// It belongs to the action: with what is left of a slow reconciliation, the action might never be reached.
	ctx = Acting(ctx)

	// This establishes a connection if there is none.
	if _, err := n.BootID(ctx); err != nil {
		return err
	}

	n.line.hold()
	defer n.line.release()

	boot, err := n.BootID(ctx)
	if err != nil {
		return err
	}

	uuid := ""
	if want.UUID != "" {
		if uuid, err = n.UUID(ctx); err != nil {
			return err
		}
	}

	if want.BootID != "" && boot != want.BootID || uuid != want.UUID {
		return failure.Transient(v1alpha1.ReasonWrongMachine, fmt.Sprintf("the machine at %s has rebooted, or another "+
			"machine has its address, since it was last observed; nothing was sent", n.name()), nil)
	}

	return act()
}
