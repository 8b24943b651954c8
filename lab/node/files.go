package node

import (
	"bytes"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/talos-operator/talos-operator/lab/node/api"
	"github.com/talos-operator/talos-operator/lab/node/filetree"
)

// tree is the machine's file tree: a small, plausible one, with the real content of /var/lib/etcd.
func (s *session) tree() *filetree.Tree {
	t := filetree.New(s.booted)

	t.Add("/proc/sys/kernel/random/boot_id", s.bootID+"\n")
	t.Add("/proc/uptime", fmt.Sprintf("%d.00 %d.00\n", s.uptime(), s.uptime()))
	t.Add("/proc/cmdline", "talos.platform=metal console=tty0 init_on_alloc=1 slab_nomerge pti=on\n")
	t.Add("/proc/version", "Linux version 6.18.24-talos\n")
	t.Add("/sys/class/dmi/id/product_uuid", s.n.hw.UUID+"\n")
	t.Add("/etc/os-release", s.osRelease())
	t.Add("/etc/hostname", s.hostname()+"\n")
	t.Add("/etc/resolv.conf", "nameserver "+s.n.opts.Gateway+"\n")
	t.Add("/etc/hosts", "127.0.0.1 localhost\n"+s.n.Address()+" "+s.hostname()+"\n")
	t.Add("/usr/bin/init", "")

	if data, err := s.n.system.Config(); err == nil && data != nil {
		t.Add("/system/state/config.yaml", string(data))
	}

	if !s.inMaintenance() {
		t.Add("/var/lib/kubelet/config.yaml", "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n")
		t.Mount("/var/lib/etcd", s.etcdDir())
	}

	return t
}

// List implements the MachineService.
func (s machineServer) List(req *machine.ListRequest, srv grpc.ServerStreamingServer[machine.FileInfo]) error {
	root, depth := path.Clean("/"+req.GetRoot()), 1

	if req.GetRecurse() {
		depth = -1
		if req.GetRecursionDepth() > 0 {
			depth = int(req.GetRecursionDepth()) + 1
		}
	}

	list, err := s.tree().Walk(root, depth)
	if err != nil {
		return err
	}

	for _, f := range list {
		kind := machine.ListRequest_REGULAR
		if f.Mode.IsDir() {
			kind = machine.ListRequest_DIRECTORY
		}

		if len(req.GetTypes()) > 0 && !slices.Contains(req.GetTypes(), kind) {
			continue
		}

		rel := strings.TrimPrefix(strings.TrimPrefix(f.Path, root), "/")
		if rel == "" {
			rel = "."
		}

		if err := srv.Send(&machine.FileInfo{
			Name: f.Path, RelativeName: rel, Size: f.Size, Mode: uint32(f.Mode), Modified: f.At.Unix(), IsDir: f.Mode.IsDir(),
		}); err != nil {
			return err
		}
	}

	return nil
}

// Read implements the MachineService.
func (s machineServer) Read(req *machine.ReadRequest, srv grpc.ServerStreamingServer[common.Data]) error {
	f, ok := s.tree().Get(req.GetPath())

	switch {
	case !ok:
		return status.Errorf(codes.NotFound, "stat %s: no such file or directory", req.GetPath())
	case !f.Mode.IsRegular():
		return errors.New("path must be a regular file")
	}

	data, err := f.Content()
	if err != nil {
		return err
	}

	return api.Send(srv, bytes.NewReader(data))
}

// Copy implements the MachineService.
func (s machineServer) Copy(req *machine.CopyRequest, srv grpc.ServerStreamingServer[common.Data]) error {
	root := path.Clean(req.GetRootPath())
	if !path.IsAbs(root) {
		return fmt.Errorf("path is not absolute %v", root)
	}

	list, err := s.tree().Walk(root, -1)
	if err != nil {
		return srv.Send(&common.Data{Metadata: &common.Metadata{Error: err.Error()}})
	}

	var packed []filetree.Packed

	for _, f := range list {
		if !f.Mode.IsRegular() {
			continue
		}

		data, err := f.Content()
		if err != nil {
			continue // gone meanwhile
		}

		name := strings.TrimPrefix(strings.TrimPrefix(f.Path, root), "/")
		if name == "" {
			name = path.Base(root)
		}

		packed = append(packed, filetree.Packed{Name: name, Data: data})
	}

	archive, err := filetree.Pack(packed...)
	if err != nil {
		return err
	}

	return api.Send(srv, bytes.NewReader(archive))
}

// DiskUsage implements the MachineService.
func (s machineServer) DiskUsage(
	req *machine.DiskUsageRequest, srv grpc.ServerStreamingServer[machine.DiskUsageInfo],
) error {
	files := s.tree()

	for _, p := range req.GetPaths() {
		root := path.Clean("/" + p)

		list, err := files.Walk(root, -1)
		if err != nil {
			if err := srv.Send(&machine.DiskUsageInfo{Name: root, RelativeName: root, Error: err.Error()}); err != nil {
				return err
			}

			continue
		}

		size := int64(0)
		for _, f := range list {
			size += f.Size
		}

		if err := srv.Send(&machine.DiskUsageInfo{Name: root, RelativeName: root, Size: size}); err != nil {
			return err
		}
	}

	return nil
}
