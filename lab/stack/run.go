package stack

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/talos-operator/talos-operator/lab/node/disk"
)

var errPlaneEnded = errors.New("the API server of the management plane ended")

// Place fills in where a lab is to be, as far as the options leave that open: in a new temporary directory, and in a
// subnet that no other lab uses. It reports whether the directory is temporary; the caller removes it then.
func (o *Options) Place(ctx context.Context) (temporary bool, err error) {
	kept := settings{}

	if o.Dir != "" {
		if _, err = disk.ReadJSON(settingsFile(o.Dir), &kept); err != nil {
			return false, err
		}
	}

	// A lab that was here before keeps its subnet.
	if o.Subnet == "" && kept.Subnet == "" {
		if o.Subnet, err = FreeSubnet(ctx); err != nil {
			return false, err
		}
	}

	if o.Dir != "" {
		return false, nil
	}

	if o.Dir, err = os.MkdirTemp("", "talos-lab-"); err != nil {
		return false, fmt.Errorf("making a directory for the lab: %w", err)
	}

	return true, nil
}

// Run starts a lab, runs a story in it, and stops the lab. What the options leave open is filled in by Place, and a
// temporary directory is removed. The context of the story ends with the management plane, too.
func Run(ctx context.Context, o Options, story func(context.Context, *Stack) error) (err error) {
	temporary, err := o.Place(ctx)
	if err != nil {
		return err
	}

	if temporary {
		defer func() { err = errors.Join(err, os.RemoveAll(o.Dir)) }()
	}

	s, err := Start(ctx, o)
	if err != nil {
		return err
	}

	defer func() {
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), StopTimeout)
		defer cancel()

		err = errors.Join(err, s.Stop(stopping))
	}()

	running, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	go func() {
		select {
		case <-s.Plane.Done():
			cancel(errPlaneEnded)
		case <-running.Done():
		}
	}()

	if err := story(running, s); err != nil {
		if ended := context.Cause(running); errors.Is(ended, errPlaneEnded) {
			return errors.Join(ended, err)
		}

		return err
	}

	return nil
}
