package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/talos-operator/talos-operator/lab"
)

// pollInterval is the pause between two checks of a lab that starts.
const pollInterval = 100 * time.Millisecond

// ErrNoLab says that no lab runs in a directory.
var ErrNoLab = errors.New("no lab is running there")

// Client talks to a running lab.
type Client struct {
	dir  string
	http *http.Client
}

// NewClient returns a client for the lab in a directory.
func NewClient(dir string) (*Client, error) {
	path, err := Socket(dir)
	if err != nil {
		return nil, err
	}

	var dialer net.Dialer

	return &Client{dir: dir, http: &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", path)
		},
	}}}, nil
}

// Info returns what the lab says of itself.
func (c *Client) Info(ctx context.Context) (Info, error) {
	return call[Info](ctx, c, http.MethodGet, "info", nil)
}

// Await waits until everything in the lab has started.
func (c *Client) Await(ctx context.Context) (Info, error) {
	var (
		info Info
		last error
	)

	err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		info, last = c.Info(ctx)

		return last == nil && info.Ready, nil
	})
	if err != nil {
		return info, errors.Join(fmt.Errorf("waiting for the lab: %w", err), last)
	}

	return info, nil
}

// Nodes returns the machines.
func (c *Client) Nodes(ctx context.Context) ([]Node, error) {
	return call[[]Node](ctx, c, http.MethodGet, "nodes", nil)
}

// Boot boots a machine.
func (c *Client) Boot(ctx context.Context, b Boot) (Node, error) {
	return call[Node](ctx, c, http.MethodPost, "boot", b)
}

// Act does something to machines and returns how they are then.
func (c *Client) Act(ctx context.Context, a Action) ([]Node, error) {
	return call[[]Node](ctx, c, http.MethodPost, "action", a)
}

// Down asks the lab to stop, and waits until it has.
func (c *Client) Down(ctx context.Context) error {
	if _, err := call[struct{}](ctx, c, http.MethodPost, "down", struct{}{}); err != nil {
		return err
	}

	err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(context.Context) (bool, error) {
		return Running(c.dir) == nil, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for the lab to stop: %w", err)
	}

	return nil
}

// remoteError is what a lab refused.
type remoteError struct {
	message string
	status  int
}

// Error is what the lab said.
func (e *remoteError) Error() string { return e.message }

// Is lets the caller tell a machine that is not there from other refusals.
func (e *remoteError) Is(target error) bool {
	return target == lab.ErrNotFound && e.status == http.StatusNotFound // this is Is itself
}

func call[Out any](ctx context.Context, c *Client, method, path string, in any) (Out, error) {
	var out Out

	body, err := json.Marshal(in)
	if err != nil {
		return out, fmt.Errorf("encoding a request to the lab: %w", err)
	}

	req, err := http.NewRequestWithContext(ctx, method, "http://lab/v1/"+path, bytes.NewReader(body))
	if err != nil {
		return out, fmt.Errorf("making a request to the lab: %w", err)
	}

	res, err := c.http.Do(req)

	switch {
	case errors.Is(err, os.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return out, fmt.Errorf("%w: %s (talos-lab up --dir %s starts one)", ErrNoLab, c.dir, c.dir)
	case err != nil:
		return out, fmt.Errorf("asking the lab in %s: %w", c.dir, err)
	}

	defer res.Body.Close()

	content, err := io.ReadAll(res.Body)
	if err != nil {
		return out, fmt.Errorf("reading the lab's answer: %w", err)
	}

	if res.StatusCode != http.StatusOK {
		var f failure
		if err := json.Unmarshal(content, &f); err != nil || f.Error == "" {
			f.Error = res.Status
		}

		return out, &remoteError{message: f.Error, status: res.StatusCode}
	}

	if err := json.Unmarshal(content, &out); err != nil {
		return out, fmt.Errorf("reading the lab's answer: %w", err)
	}

	return out, nil
}
