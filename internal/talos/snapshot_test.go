package talos_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/talos"
	"github.com/talos-operator/talos-operator/test/loopback"
	"github.com/talos-operator/talos-operator/test/wait"
)

// whole is a snapshot in shape: sectors, and the checksum of them.
func whole(sectors int) []byte {
	data := bytes.Repeat([]byte("talos---"), sectors*64)
	sum := sha256.Sum256(data)

	return append(data, sum[:]...)
}

// TestVerifySnapshot: however the parts fall, only the whole of a snapshot ends well.
func TestVerifySnapshot(t *testing.T) {
	good := whole(3)

	readers := map[string]func(io.Reader) io.Reader{
		"at once": func(r io.Reader) io.Reader { return r }, "byte by byte": iotest.OneByteReader,
		"halves": iotest.HalfReader, "with the end": iotest.DataErrReader,
	}

	for name, wrap := range readers {
		got, err := io.ReadAll(talos.VerifySnapshot(wrap(bytes.NewReader(good))))
		if err != nil || !bytes.Equal(got, good) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}

		for cut := range len(good) {
			if cut%97 != 0 && cut%512 > 33 {
				continue
			}

			if _, err := io.ReadAll(talos.VerifySnapshot(wrap(bytes.NewReader(good[:cut])))); !errors.Is(err,
				talos.ErrSnapshotDamaged) {
				t.Errorf("%s: the first %d bytes: %v", name, cut, err)
			}
		}

		bad := bytes.Clone(good)
		bad[700] ^= 1

		if _, err := io.ReadAll(talos.VerifySnapshot(wrap(bytes.NewReader(bad)))); !errors.Is(err, talos.ErrSnapshotDamaged) {
			t.Errorf("%s: a changed bit: %v", name, err)
		}
	}

	broken := errors.New("the disk is gone")
	if _, err := io.ReadAll(talos.VerifySnapshot(iotest.ErrReader(broken))); !errors.Is(err, broken) {
		t.Errorf("the error of the reader is lost: %v", err)
	}
}

// halfway is a node whose etcd sends something and then ends the call in some way.
type halfway struct {
	machine.UnimplementedMachineServiceServer

	data []byte
	end  func(grpc.ServerStream) error
}

// EtcdSnapshot implements the MachineService.
func (h halfway) EtcdSnapshot(_ *machine.EtcdSnapshotRequest, srv grpc.ServerStreamingServer[common.Data]) error {
	for part := range slices.Chunk(h.data, 700) {
		if err := srv.Send(&common.Data{Bytes: part}); err != nil {
			return err
		}
	}

	return h.end(srv)
}

// TestSnapshotThatEndsEarly: real nodes end the stream as if it were complete when they cannot read on.
func TestSnapshotThatEndsEarly(t *testing.T) {
	t.Parallel()

	c := newCluster(t, loopback.Address(t))
	good := whole(4)
	clean := func(grpc.ServerStream) error { return nil }

	tests := []struct {
		name    string
		h       halfway
		damaged bool
		ok      bool
	}{
		{name: "whole", h: halfway{data: good, end: clean}, ok: true},
		{name: "half", h: halfway{data: good[:1500], end: clean}, damaged: true},
		{name: "without the checksum", h: halfway{data: good[:2048], end: clean}, damaged: true},
		{name: "nothing", h: halfway{end: clean}, damaged: true},
		{name: "an error", h: halfway{data: good[:1500], end: func(grpc.ServerStream) error {
			return status.Error(codes.Unknown, "read error")
		}}},
		{name: "an error in the stream", h: halfway{data: good[:1500], end: func(s grpc.ServerStream) error {
			return s.SendMsg(&common.Data{Metadata: &common.Metadata{Error: "read error"}})
		}}},
		{name: "an end by the node", h: halfway{data: good[:1500], end: func(grpc.ServerStream) error {
			return status.Error(codes.Canceled, "context canceled")
		}}},
	}

	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			data, err := tc.h.read(t, c)
			if (err == nil) != tc.ok || errors.Is(err, talos.ErrSnapshotDamaged) != tc.damaged {
				t.Fatalf("%d bytes, %v", len(data), err)
			}

			if tc.ok && !bytes.Equal(data, good) {
				t.Errorf("%d bytes of %d", len(data), len(good))
			}
		})
	}
}

// read serves the node and reads its snapshot.
func (h halfway) read(t *testing.T, c *cluster) ([]byte, error) {
	t.Helper()

	address := loopback.Address(t)
	serve(t, c, served{address, netip.MustParseAddr(address), wait.Now()}, func(s grpc.ServiceRegistrar) {
		machine.RegisterMachineServiceServer(s, h)
	})

	pool := talos.NewPool()
	t.Cleanup(pool.Close)

	n, err := pool.Node(t.Context(), talos.NodeRef{Key: "ns/n", Address: address, Credentials: c.creds()})
	if err != nil {
		t.Fatal(err)
	}

	r, err := n.EtcdSnapshot(t.Context(), nil)
	if err != nil {
		return nil, err
	}

	defer r.Close()

	return io.ReadAll(r)
}

// TestSnapshotWithoutTime: a caller that stops half way does not take that for the end.
func TestSnapshotWithoutTime(t *testing.T) {
	t.Parallel()

	address := loopback.Address(t)
	c := newCluster(t, address)
	stuck := halfway{data: whole(4)[:1500], end: func(s grpc.ServerStream) error {
		<-s.Context().Done()

		return s.Context().Err()
	}}

	serve(t, c, served{address, netip.MustParseAddr(address), wait.Now()}, func(s grpc.ServiceRegistrar) {
		machine.RegisterMachineServiceServer(s, stuck)
	})

	pool := talos.NewPool()
	defer pool.Close()

	n, err := pool.Node(t.Context(), talos.NodeRef{Key: "ns/n", Address: address, Credentials: c.creds()})
	if err != nil {
		t.Fatal(err)
	}

	// A caller who gets no further than to ask gets more time.
	for limit := 300 * time.Millisecond; ; limit *= 4 {
		asked, err := readFor(t, n, limit)
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, talos.ErrNotServing) || limit > time.Hour {
			t.Fatalf("a caller without time: %v", err)
		}

		if asked {
			return
		}
	}
}

// readFor reads a snapshot for a while, and says whether it came.
func readFor(t *testing.T, n *talos.Node, limit time.Duration) (asked bool, err error) {
	t.Helper()

	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()

	r, err := n.EtcdSnapshot(ctx, nil)
	if err != nil {
		return false, err
	}
	defer r.Close()

	_, err = io.ReadAll(r)

	return true, err
}

// TestDayTwo: what a node tells of itself, and what it does when it is asked in vain.
func TestDayTwo(t *testing.T) {
	t.Parallel()

	address := loopback.Address(t)
	c := newCluster(t, address)
	n := boot(t, address)
	c.configure(n)

	conn := c.open(n, c.creds())

	wait.For(t, "etcd waits for a bootstrap", func(ctx context.Context) error {
		if s, err := conn.Service(ctx, "etcd"); err != nil || s.State != talos.EtcdPreparing || s.Message == "" {
			return fmt.Errorf("it is %+v: %w", s, err)
		}

		return nil
	})

	if s, err := conn.Service(t.Context(), "nonsense"); err != nil || s != (talos.Service{}) {
		t.Errorf("an unknown service: %+v, %v", s, err)
	}

	if s, err := conn.TimeStatus(t.Context()); err != nil || !s.Synced {
		t.Errorf("the clock: %+v, %v", s, err)
	}

	// There is no system before the first one.
	if err := conn.Rollback(t.Context()); err == nil {
		t.Error("a rollback to nothing")
	}

	n.Faults().Fail("Bootstrap", codes.FailedPrecondition, 1, 1)

	if err := conn.Bootstrap(t.Context()); failure.ClassOf(err) != failure.ClassWaiting {
		t.Errorf("a bootstrap too early: %v", err)
	}

	n.Faults().Fail("EtcdRecover", codes.FailedPrecondition, 1, 1)

	if err := conn.EtcdRecover(t.Context(), bytes.NewReader(whole(9))); failure.ClassOf(err) != failure.ClassWaiting {
		t.Errorf("an upload too early: %v", err)
	}

	recoverDamaged(t, conn)

	list, err := conn.Containers(t.Context())
	if err != nil || !slices.ContainsFunc(list, func(c talos.Container) bool {
		return c.Name == "kubelet" && strings.HasSuffix(c.Image, ":v1.36.2") && c.Status != ""
	}) {
		t.Errorf("containers: %+v, %v", list, err)
	}
}

// recoverDamaged: the node takes a damaged snapshot, fails, and refuses every later try.
func recoverDamaged(t *testing.T, conn *talos.Node) {
	t.Helper()

	bad := whole(9)
	bad[100] ^= 1

	if err := conn.EtcdRecover(t.Context(), bytes.NewReader(bad)); err != nil {
		t.Fatal(err)
	}

	if err := conn.BootstrapRecover(t.Context(), false); err != nil {
		t.Fatal(err)
	}

	wait.For(t, "the damage shows", func(ctx context.Context) error {
		s, err := conn.Service(ctx, "etcd")
		if err != nil || s.State != talos.EtcdFailed || !strings.Contains(s.Message, "sha256") {
			return fmt.Errorf("it is %+v: %w", s, err)
		}

		return nil
	})

	if err := conn.BootstrapRecover(t.Context(), true); !errors.Is(err, talos.ErrAlreadyExists) {
		t.Errorf("the debris of a failed recovery: %v", err)
	}
}
