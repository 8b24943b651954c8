package node

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/talos-operator/talos-operator/lab/node/configuration"
	"github.com/talos-operator/talos-operator/lab/node/image"
)

// Namespaces of containerd.
const (
	nsSystem = "system"
	nsK8s    = "k8s.io"
)

// Outlive has the machine run containers of some pods, as namespace/name, that Kubernetes does not have any more: their
// Node was deleted, and the kubelet was not told. They replace those of the call before.
func (n *Node) Outlive(pods ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()

	n.pods = pods
}

func (s *session) checkContainers(namespace string, driver common.ContainerDriver) error {
	switch {
	case namespace == "":
		return status.Error(codes.InvalidArgument, "namespace can't be empty")
	case driver == common.ContainerDriver_CRI && namespace != nsK8s:
		return fmt.Errorf("CRI inspector is supported only for K8s namespace")
	case driver != common.ContainerDriver_CRI && driver != common.ContainerDriver_CONTAINERD:
		return status.Errorf(codes.InvalidArgument, "unsupported driver %q", driver)
	}

	return nil
}

// Logs implements the MachineService.
func (s machineServer) Logs(req *machine.LogsRequest, srv grpc.ServerStreamingServer[common.Data]) error {
	ctx, cancel := s.callContext(srv.Context())
	defer cancel()

	id := req.GetId()

	if req.GetNamespace() != nsSystem && id != svcKubelet {
		if err := s.checkContainers(req.GetNamespace(), req.GetDriver()); err != nil {
			return err
		}

		c := s.container(req.GetNamespace(), id)
		if c == nil {
			return fmt.Errorf("container %q not found", id)
		}

		id = c.GetName()
		s.journal.Register(id)
	}

	found, err := s.journal.Read(ctx, id, int(req.GetTailLines()), req.GetFollow(), func(line []byte) error {
		return srv.Send(&common.Data{Bytes: line})
	})
	if !found {
		return fmt.Errorf("log %q was not registered", id)
	}

	return err
}

// LogsContainers implements the MachineService.
func (s machineServer) LogsContainers(context.Context, *emptypb.Empty) (*machine.LogsContainersResponse, error) {
	return &machine.LogsContainersResponse{Messages: []*machine.LogsContainer{{Ids: s.journal.IDs()}}}, nil
}

// containers are those that run in a namespace of containerd.
func (s *session) containers(namespace string) []*machine.ContainerInfo {
	var list []*machine.ContainerInfo

	cfg, configured := s.complete()
	add := func(id, pod, name, ref string) {
		list = append(list, &machine.ContainerInfo{
			Namespace: namespace, Id: id, PodId: pod, Name: name, Image: ref, Pid: uint32(s.pid(id)),
			Status: "RUNNING", InternalId: strings.TrimPrefix(image.Digest(s.bootID+id), "sha256:"),
		})
	}

	switch namespace {
	case nsSystem:
		for _, id := range []string{svcAPID, svcTrustd, svcEtcd, svcKubelet} {
			ref := id

			if configured && id == svcEtcd {
				ref = cfg.Cluster().Etcd().Image()
			}

			if configured && id == svcKubelet {
				ref = cfg.Machine().Kubelet().Image()
			}

			if s.serviceUp(id) {
				add(id, id, id, ref)
			}
		}
	case nsK8s:
		s.mu.Lock()
		rendered := s.kube.rendered
		s.mu.Unlock()

		if !rendered || !configured {
			break
		}

		images := []string{
			cfg.Cluster().APIServer().Image(), cfg.Cluster().ControllerManager().Image(), cfg.Cluster().Scheduler().Image(),
		}
		for i, name := range configuration.StaticPods {
			pod := "kube-system/" + name + "-" + s.kubeletName()
			add(pod+":"+name+":"+image.Digest(s.bootID + name)[7:19], pod, name, images[i])
		}
	}

	return append(list, s.outlived(namespace)...)
}

// outlived are the containers of the pods of Outlive.
func (s *session) outlived(namespace string) []*machine.ContainerInfo {
	if namespace != nsK8s {
		return nil
	}

	s.n.mu.Lock()
	defer s.n.mu.Unlock()

	var list []*machine.ContainerInfo
	for _, pod := range s.n.pods {
		list = append(list, &machine.ContainerInfo{
			Namespace: namespace, Id: pod + ":main:" + image.Digest(s.bootID + pod)[7:19], PodId: pod, Name: "main",
			Image: "example.org/outlived:1", Status: "RUNNING",
		})
	}

	return list
}

// container finds a container by its ID, with or without the last part that changes at every start.
func (s *session) container(namespace, id string) *machine.ContainerInfo {
	list := s.containers(namespace)

	i := slices.IndexFunc(list, func(c *machine.ContainerInfo) bool {
		return c.GetId() == id || strings.HasPrefix(c.GetId(), id+":")
	})
	if i < 0 {
		return nil
	}

	return list[i]
}

// Containers implements the MachineService.
func (s machineServer) Containers(
	_ context.Context, req *machine.ContainersRequest,
) (*machine.ContainersResponse, error) {
	if err := s.checkContainers(req.GetNamespace(), req.GetDriver()); err != nil {
		return nil, err
	}

	return &machine.ContainersResponse{Messages: []*machine.Container{{Containers: s.containers(req.GetNamespace())}}}, nil
}

// Stats implements the MachineService.
func (s machineServer) Stats(_ context.Context, req *machine.StatsRequest) (*machine.StatsResponse, error) {
	if err := s.checkContainers(req.GetNamespace(), req.GetDriver()); err != nil {
		return nil, err
	}

	var list []*machine.Stat

	for _, c := range s.containers(req.GetNamespace()) {
		list = append(list, &machine.Stat{
			Namespace: c.GetNamespace(), Id: c.GetId(), PodId: c.GetPodId(), Name: c.GetName(),
			MemoryUsage: 32 << 20, CpuUsage: s.uptime() * 1e7,
		})
	}

	return &machine.StatsResponse{Messages: []*machine.Stats{{Stats: list}}}, nil
}

// Restart implements the MachineService.
func (s machineServer) Restart(_ context.Context, req *machine.RestartRequest) (*machine.RestartResponse, error) {
	if err := s.checkContainers(req.GetNamespace(), req.GetDriver()); err != nil {
		return nil, err
	}

	c := s.container(req.GetNamespace(), req.GetId())
	if c == nil {
		return nil, fmt.Errorf("container %q not found", req.GetId())
	}

	s.mu.Lock()
	server := s.kube.server
	s.mu.Unlock()

	if c.GetName() == configuration.StaticPods[0] && server != nil {
		s.spawn(func() { s.dropAPIServer(server) })
	}

	return &machine.RestartResponse{Messages: []*machine.Restart{{}}}, nil
}
