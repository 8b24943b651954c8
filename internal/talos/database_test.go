package talos_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/netip"
	"slices"
	"testing"
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

// copier is a node that sends an archive and then ends the call in some way.
type copier struct {
	machine.UnimplementedMachineServiceServer

	data []byte
	end  func(grpc.ServerStream) error
}

// Copy implements the MachineService.
func (c copier) Copy(req *machine.CopyRequest, srv grpc.ServerStreamingServer[common.Data]) error {
	if req.GetRootPath() != "/var/lib/etcd/member/snap/db" {
		return status.Error(codes.NotFound, req.GetRootPath())
	}

	for part := range slices.Chunk(c.data, 300) {
		if err := srv.Send(&common.Data{Bytes: part}); err != nil {
			return err
		}
	}

	return c.end(srv)
}

// archive is what Talos sends of one file.
func archive(t *testing.T, content []byte) []byte {
	t.Helper()

	var b bytes.Buffer

	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)

	if content != nil {
		if err := w.WriteHeader(&tar.Header{Name: "db", Typeflag: tar.TypeReg, Mode: 0o600, Size: int64(len(content))}); err != nil {
			t.Fatal(err)
		}

		if _, err := w.Write(content); err != nil {
			t.Fatal(err)
		}
	}

	if err := errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}

	return b.Bytes()
}

// TestEtcdDatabase: only the whole file ends well, however the stream ends.
func TestEtcdDatabase(t *testing.T) {
	t.Parallel()

	c := newCluster(t, loopback.Address(t))

	file := make([]byte, 40*512)
	for i := range file {
		file[i] = byte(i * i >> 3) // it must not vanish in the compression
	}

	whole := archive(t, file)
	clean := func(grpc.ServerStream) error { return nil }
	told := func(s grpc.ServerStream) error {
		return s.SendMsg(&common.Data{Metadata: &common.Metadata{Error: "lstat /var/lib/etcd: no such file or directory"}})
	}

	tests := []struct {
		name    string
		c       copier
		damaged bool
		ok      bool
	}{
		{name: "whole", c: copier{data: whole, end: clean}, ok: true},
		{name: "half", c: copier{data: whole[:len(whole)/2], end: clean}, damaged: true},
		{name: "without its end", c: copier{data: whole[:len(whole)-1], end: clean}, damaged: true},
		{name: "without its checksum", c: copier{data: whole[:len(whole)-8], end: clean}, damaged: true},
		{name: "nothing", c: copier{end: clean}, damaged: true},
		{name: "no file", c: copier{data: archive(t, nil), end: clean}, damaged: true},
		{name: "no archive", c: copier{data: []byte("hello, world"), end: clean}, damaged: true},
		{name: "a flipped bit", c: copier{data: flip(whole), end: clean}, damaged: true},
		{name: "no database", c: copier{end: told}},
		{name: "an error in the stream", c: copier{data: whole[:len(whole)/2], end: told}},
		{name: "an end by the node", c: copier{data: whole[:len(whole)/2], end: func(grpc.ServerStream) error {
			return status.Error(codes.Unavailable, "shutting down")
		}}},
	}

	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			data, err := tc.c.read(t.Context(), t, c)
			if (err == nil) != tc.ok || errors.Is(err, talos.ErrSnapshotDamaged) != tc.damaged {
				t.Fatalf("%d bytes, %v", len(data), err)
			}

			if tc.ok && !bytes.Equal(data, file) {
				t.Errorf("%d bytes of %d", len(data), len(file))
			}

			if !tc.ok && failure.ClassOf(err) != failure.ClassTransient {
				t.Errorf("it is not tried again: %v", err)
			}
		})
	}

	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()

	stuck := copier{data: whole[:len(whole)/2], end: func(s grpc.ServerStream) error {
		<-s.Context().Done()

		return s.Context().Err()
	}}
	if _, err := stuck.read(ctx, t, c); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a caller without time: %v", err)
	}
}

func flip(b []byte) []byte {
	b = bytes.Clone(b)
	b[len(b)/2] ^= 1

	return b
}

// read serves the node and copies its database.
func (c copier) read(ctx context.Context, t *testing.T, of *cluster) ([]byte, error) {
	t.Helper()

	address := loopback.Address(t)
	serve(t, of, served{address, netip.MustParseAddr(address), wait.Now()}, func(s grpc.ServiceRegistrar) {
		machine.RegisterMachineServiceServer(s, c)
	})

	pool := talos.NewPool()
	t.Cleanup(pool.Close)

	n, err := pool.Node(t.Context(), talos.NodeRef{Key: "ns/n", Address: address, Credentials: of.creds()})
	if err != nil {
		t.Fatal(err)
	}

	r, err := n.EtcdDatabase(ctx)
	if err != nil {
		return nil, err
	}
	defer r.Close()

	return io.ReadAll(r)
}
