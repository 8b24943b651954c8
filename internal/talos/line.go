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

// line is the TCP connection of a client, which makes another one by itself when it breaks: perhaps to another machine
// that has the address by then. While it is held there is no other one, so that what is sent reaches the machine that
// has answered, or nobody.
type line struct {
	// dials counts the connections so far, holders those who want no other one.
	dials, holders atomic.Int64
}

var errHeld = errors.New("the connection broke, and the request must not go to another machine")

func (l *line) hold()        { l.holders.Add(1) }
func (l *line) release()     { l.holders.Add(-1) }
func (l *line) isHeld() bool { return l.holders.Load() > 0 }

// connect makes a connection unless the line is held, also where somebody began to hold it meanwhile.
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

// Self tells one machine from others, and one boot of it from others. What is empty is not known, and not compared.
type Self struct{ UUID, BootID string }

// ToItself does something to a node that only this machine in this boot is meant for: it is asked again who it is, and
// act goes over the connection on which it has answered. Where it is another one by now, act is not called and the
// error has the reason WrongMachine.
func (n *Node) ToItself(ctx context.Context, want Self, act func() error) error {
	// This makes a connection where there is none.
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
