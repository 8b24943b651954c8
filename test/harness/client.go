package harness

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ErrDead is what a dead operator sees of everything.
var ErrDead = errors.New("the operator is dead")

// Client is what one replica of the operator reads and writes with. It counts writes and other effects, and can be cut
// off at one of them, as by a crash: from then on nothing is read or written any more.
type Client struct {
	client.WithWatch

	mu     sync.Mutex
	count  int
	dead   bool
	last   int
	before bool
	hook   func(verb string, o client.Object)
}

// NewClient makes the client of a replica that runs.
func NewClient(c client.WithWatch) *Client { return &Client{WithWatch: c} }

// Writes are the effects so far.
func (c *Client) Writes() int {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.count
}

// Die cuts the operator off.
func (c *Client) Die() {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.dead = true
}

// DieAfter has the operator die after the nth effect from now on. It does not hear the answer.
func (c *Client) DieAfter(n int) { c.dieAt(n, false) }

// DieBefore has the operator die before the nth effect from now on.
func (c *Client) DieBefore(n int) { c.dieAt(n, true) }

func (c *Client) dieAt(n int, before bool) {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.last, c.before = c.count+n, before
}

// Dead tells whether the operator is cut off.
func (c *Client) Dead() bool {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.dead
}

// BeforeWrites has a test do something before each write: be another client that writes first, for example.
func (c *Client) BeforeWrites(hook func(verb string, o client.Object)) {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.hook = hook
}

// Effect counts what the operator has done elsewhere than in the API server, such as at a node.
func (c *Client) Effect() { _, _ = c.effect() }

// effect tells whether the operator still causes it, and whether it survives to observe it.
func (c *Client) effect() (causes, sees bool) {
	c.mu.Lock()
	defer c.mu.Unlock()

	if c.dead {
		return false, false
	}

	c.count++
	c.dead = c.last > 0 && c.count >= c.last

	return !c.dead || !c.before, !c.dead
}

func (c *Client) write(verb string, o client.Object, do func() error) error {
	c.mu.Lock()
	hook := c.hook
	c.mu.Unlock()

	if hook != nil {
		hook(verb, o)
	}

	causes, sees := c.effect()
	if !causes {
		return fmt.Errorf("%s: %w", verb, ErrDead)
	}

	// A write that failed is told all the same: a conflict is no effect that would have to be noticed.
	if err := do(); err != nil || sees {
		return err
	}

	return fmt.Errorf("the answer to %s: %w", verb, ErrDead)
}

// Get implements client.Reader.
func (c *Client) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if c.Dead() {
		return ErrDead
	}

	return c.WithWatch.Get(ctx, key, o, opts...)
}

// List implements client.Reader.
func (c *Client) List(ctx context.Context, l client.ObjectList, opts ...client.ListOption) error {
	if c.Dead() {
		return ErrDead
	}

	return c.WithWatch.List(ctx, l, opts...)
}

// Create implements client.Writer.
func (c *Client) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	return c.write("create", o, func() error { return c.WithWatch.Create(ctx, o, opts...) })
}

// Update implements client.Writer.
func (c *Client) Update(ctx context.Context, o client.Object, opts ...client.UpdateOption) error {
	return c.write("update", o, func() error { return c.WithWatch.Update(ctx, o, opts...) })
}

// Patch implements client.Writer.
func (c *Client) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.PatchOption) error {
	return c.write("patch", o, func() error { return c.WithWatch.Patch(ctx, o, p, opts...) })
}

// Delete implements client.Writer.
func (c *Client) Delete(ctx context.Context, o client.Object, opts ...client.DeleteOption) error {
	return c.write("delete", o, func() error { return c.WithWatch.Delete(ctx, o, opts...) })
}

// Status implements client.StatusClient.
func (c *Client) Status() client.SubResourceWriter { return statusWriter{c.WithWatch.Status(), c} }

type statusWriter struct {
	client.SubResourceWriter

	c *Client
}

// Update implements client.SubResourceWriter.
func (w statusWriter) Update(ctx context.Context, o client.Object, opts ...client.SubResourceUpdateOption) error {
	return w.c.write("update status", o, func() error { return w.SubResourceWriter.Update(ctx, o, opts...) })
}

// Patch implements client.SubResourceWriter.
func (w statusWriter) Patch(
	ctx context.Context, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption,
) error {
	return w.c.write("patch status", o, func() error { return w.SubResourceWriter.Patch(ctx, o, p, opts...) })
}
