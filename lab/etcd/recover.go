package etcd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/talos-operator/talos-operator/lab/process"
)

// Recover founds a new cluster of one member from the snapshot file. The restore runs in a child process, because a
// truncated database kills the process that maps it. A snapshot whose sha256 is wrong leaves debris in the data
// directory, as on a real node: from then on every bootstrap is refused until it is wiped.
func Recover(ctx context.Context, o Options, snapshot string, skipHash bool) (*Member, error) {
	if HasData(o.Dir) {
		return nil, ErrNotEmpty
	}

	if err := o.restore(ctx, snapshot, skipHash); err != nil {
		return nil, fmt.Errorf("error recovering from the snapshot: %w", err)
	}

	return o.start(nil, "--initial-cluster-state=new", "--initial-cluster="+o.Name+"="+o.peerURL())
}

// restore runs etcdutl and turns its last words into an error.
func (o Options) restore(ctx context.Context, snapshot string, skipHash bool) error {
	var out bytes.Buffer

	return o.utl(ctx, &out,
		"snapshot", "restore", snapshot,
		"--name="+o.Name,
		"--data-dir="+o.Dir,
		"--initial-cluster="+o.Name+"="+o.peerURL(),
		"--initial-advertise-peer-urls="+o.peerURL(),
		fmt.Sprintf("--skip-hash-check=%t", skipHash),
	)
}

// utl runs etcdutl to its end.
func (o Options) utl(ctx context.Context, out *bytes.Buffer, args ...string) error {
	proc, err := process.Start("etcdutl "+o.Name, o.Utl, args, process.BaseEnv(), out)
	if err != nil {
		return err
	}

	select {
	case <-proc.Done():
	case <-ctx.Done():
		proc.Kill()

		return ctx.Err()
	}

	if o.Log != nil {
		// The log is for people; a node goes on without it.
		_, _ = o.Log.Write(out.Bytes())
	}

	if err := proc.Err(); err != nil {
		return lastWords(out.String(), err)
	}

	return nil
}

// lastWords finds the error in the output of etcdutl.
func lastWords(out string, err error) error {
	for line := range strings.Lines(out) {
		if msg, ok := strings.CutPrefix(strings.TrimSpace(line), "Error: "); ok {
			return errors.New(msg)
		}

		if strings.HasPrefix(line, "fatal error:") || strings.HasPrefix(line, "unexpected fault address") {
			return fmt.Errorf("%s: %w", strings.TrimSpace(line), err)
		}
	}

	return err
}
