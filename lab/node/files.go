package node

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// file is one entry of the machine's file tree.
type file struct {
	path string
	mode fs.FileMode
	data []byte
	size int64
	at   time.Time
}

// tree is the machine's file tree by path: a small, plausible one, with the real content of /var/lib/etcd.
func (s *session) tree() map[string]file {
	files := map[string]file{}
	add := func(p, content string) {
		files[p] = file{path: p, mode: 0o644, data: []byte(content), size: int64(len(content)), at: s.booted}
	}

	add("/proc/sys/kernel/random/boot_id", s.bootID+"\n")
	add("/proc/uptime", fmt.Sprintf("%d.00 %d.00\n", s.uptime(), s.uptime()))
	add("/proc/cmdline", "talos.platform=metal console=tty0 init_on_alloc=1 slab_nomerge pti=on\n")
	add("/proc/version", "Linux version 6.18.24-talos\n")
	add("/sys/class/dmi/id/product_uuid", s.n.hw.UUID+"\n")
	add("/etc/os-release", s.osRelease())
	add("/etc/hostname", s.hostname()+"\n")
	add("/etc/resolv.conf", "nameserver "+s.n.opts.Gateway+"\n")
	add("/etc/hosts", "127.0.0.1 localhost\n"+s.n.Address()+" "+s.hostname()+"\n")
	add("/usr/bin/init", "")

	if data, err := s.n.system.Config(); err == nil && data != nil {
		add("/system/state/config.yaml", string(data))
	}

	if !s.inMaintenance() {
		add("/var/lib/kubelet/config.yaml", "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n")
		files["/var/lib/etcd"] = file{path: "/var/lib/etcd", mode: fs.ModeDir | 0o700, at: s.booted}
		s.addReal(files, "/var/lib/etcd", s.etcdDir())
	}

	for p := range maps.Clone(files) {
		for dir := path.Dir(p); ; dir = path.Dir(dir) {
			if _, ok := files[dir]; !ok {
				files[dir] = file{path: dir, mode: fs.ModeDir | 0o755, at: s.booted}
			}

			if dir == "/" {
				break
			}
		}
	}

	return files
}

// addReal adds the files of a real directory, without their content.
func (s *session) addReal(files map[string]file, root, dir string) {
	_ = filepath.WalkDir(
		dir,
		func(p string, entry fs.DirEntry, err error) error { // what is gone is gone
			if err != nil {
				return nil // etcd renames its files while we look
			}

			rel, _ := filepath.Rel(dir, p) // p is below dir

			info, err := entry.Info()
			if err != nil || rel == "." {
				return nil // see above
			}

			name := path.Join(root, filepath.ToSlash(rel))
			files[name] = file{path: name, mode: info.Mode(), size: info.Size(), at: info.ModTime()}

			return nil
		},
	)
}

// content returns the content of a file of the tree.
func (s *session) content(f file) ([]byte, error) {
	if rel, ok := strings.CutPrefix(f.path, "/var/lib/etcd/"); ok && f.mode.IsRegular() {
		return os.ReadFile(filepath.Join(s.etcdDir(), filepath.FromSlash(rel)))
	}

	return f.data, nil
}

// walk returns the files below a root, down to a depth; negative is without end.
func walk(files map[string]file, root string, depth int) ([]file, error) {
	top, ok := files[root]
	if !ok {
		return nil, fmt.Errorf("lstat %s: no such file or directory", root)
	}

	list := []file{top}

	for p, f := range files {
		rel, ok := strings.CutPrefix(p, strings.TrimSuffix(root, "/")+"/")
		if !ok || rel == "" {
			continue
		}

		if depth < 0 || strings.Count(rel, "/") < depth {
			list = append(list, f)
		}
	}

	slices.SortFunc(list, func(a, b file) int { return cmp.Compare(a.path, b.path) })

	return list, nil
}

func cleanRoot(root string) string { return path.Clean("/" + root) }

// List implements the MachineService.
func (s machineServer) List(req *machine.ListRequest, srv grpc.ServerStreamingServer[machine.FileInfo]) error {
	root, depth := cleanRoot(req.GetRoot()), 1

	if req.GetRecurse() {
		depth = -1
		if req.GetRecursionDepth() > 0 {
			depth = int(req.GetRecursionDepth()) + 1
		}
	}

	list, err := walk(s.tree(), root, depth)
	if err != nil {
		return err
	}

	for _, f := range list {
		if !wanted(f, req.GetTypes()) {
			continue
		}

		rel := strings.TrimPrefix(strings.TrimPrefix(f.path, root), "/")
		if rel == "" {
			rel = "."
		}

		if err := srv.Send(&machine.FileInfo{
			Name: f.path, RelativeName: rel, Size: f.size, Mode: uint32(f.mode), Modified: f.at.Unix(), IsDir: f.mode.IsDir(),
		}); err != nil {
			return err
		}
	}

	return nil
}

func wanted(f file, types []machine.ListRequest_Type) bool {
	if len(types) == 0 {
		return true
	}

	kind := machine.ListRequest_REGULAR
	if f.mode.IsDir() {
		kind = machine.ListRequest_DIRECTORY
	}

	return slices.Contains(types, kind)
}

// Read implements the MachineService.
func (s machineServer) Read(req *machine.ReadRequest, srv grpc.ServerStreamingServer[common.Data]) error {
	f, ok := s.tree()[req.GetPath()]

	switch {
	case !ok:
		return status.Errorf(codes.NotFound, "stat %s: no such file or directory", req.GetPath())
	case !f.mode.IsRegular():
		return errors.New("path must be a regular file")
	}

	data, err := s.content(f)
	if err != nil {
		return err
	}

	return sendAll(srv, bytes.NewReader(data))
}

// Copy implements the MachineService.
func (s machineServer) Copy(req *machine.CopyRequest, srv grpc.ServerStreamingServer[common.Data]) error {
	root := path.Clean(req.GetRootPath())
	if !path.IsAbs(root) {
		return fmt.Errorf("path is not absolute %v", root)
	}

	list, err := walk(s.tree(), root, -1)
	if err != nil {
		return srv.Send(&common.Data{Metadata: &common.Metadata{Error: err.Error()}})
	}

	var packed []tarFile

	for _, f := range list {
		if !f.mode.IsRegular() {
			continue
		}

		data, err := s.content(f)
		if err != nil {
			continue // gone meanwhile
		}

		name := strings.TrimPrefix(strings.TrimPrefix(f.path, root), "/")
		if name == "" {
			name = path.Base(root)
		}

		packed = append(packed, tarFile{name, data})
	}

	archive, err := tarball(packed...)
	if err != nil {
		return err
	}

	return sendAll(srv, bytes.NewReader(archive))
}

// DiskUsage implements the MachineService.
func (s machineServer) DiskUsage(
	req *machine.DiskUsageRequest, srv grpc.ServerStreamingServer[machine.DiskUsageInfo],
) error {
	files := s.tree()

	for _, p := range req.GetPaths() {
		root := cleanRoot(p)

		list, err := walk(files, root, -1)
		if err != nil {
			if err := srv.Send(&machine.DiskUsageInfo{Name: root, RelativeName: root, Error: err.Error()}); err != nil {
				return err
			}

			continue
		}

		size := int64(0)
		for _, f := range list {
			size += f.size
		}

		if err := srv.Send(&machine.DiskUsageInfo{Name: root, RelativeName: root, Size: size}); err != nil {
			return err
		}
	}

	return nil
}
