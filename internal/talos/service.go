package talos

import (
	"context"
	"time"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	timeresource "github.com/siderolabs/talos/pkg/machinery/resources/time"
	"github.com/siderolabs/talos/pkg/machinery/resources/v1alpha1"

	"github.com/talos-operator/talos-operator/internal/text"
)

// States of the etcd service that affect decisions.
const (
	// EtcdPreparing: etcd waits for a bootstrap or for a cluster to join.
	EtcdPreparing = "Preparing"
	// EtcdRunning: etcd runs. In every other state, its calls never return.
	EtcdRunning = "Running"
	// EtcdFailed: etcd could not start; the message of the service says why.
	EtcdFailed = "Failed"
)

// Service is a service of a node.
type Service struct {
	// State as Talos reports it; empty if the node has no such service.
	State string
	// Healthy is the result of the last check; false if there are no checks.
	Healthy bool
	// Message describes the last event, and Since is its time.
	Message string
	Since   time.Time
}

// Service returns a service by its name, such as "etcd" or "kubelet".
func (n *Node) Service(ctx context.Context, name string) (Service, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()

	found, err := n.c.ServiceInfo(ctx, name)
	if err != nil {
		return Service{}, classify("the service list", n.name(), err)
	}

	if len(found) == 0 {
		return Service{}, nil
	}

	return serviceOf(found[0].Service), nil
}

// Services returns the services of a node by their names.
func (n *Node) Services(ctx context.Context) (map[string]Service, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()

	resp, err := n.c.ServiceList(ctx)
	if err != nil {
		return nil, classify("the service list", n.name(), err)
	}

	out := map[string]Service{}

	for _, m := range resp.GetMessages() {
		for _, s := range m.GetServices() {
			out[s.GetId()] = serviceOf(s)
		}
	}

	return out, nil
}

func serviceOf(s *machineapi.ServiceInfo) Service {
	out := Service{State: s.GetState(), Healthy: s.GetHealth().GetHealthy()}

	if events := s.GetEvents().GetEvents(); len(events) > 0 {
		last := events[len(events)-1]
		out.Message = clip(text.Line(redactText(last.GetMsg())), maxSummary)

		if at := last.GetTs(); at != nil {
			out.Since = at.AsTime()
		}
	}

	return out
}

// EtcdService returns the state of the etcd service as Talos reports it; empty if there is none.
func (n *Node) EtcdService(ctx context.Context) (string, error) {
	s, err := n.Service(ctx, "etcd")

	return s.State, err
}

// TimeStatus is what a node reports about its clock.
type TimeStatus struct {
	// Synced: the clock is in sync according to the node. Without that, it accepts no bootstrap.
	Synced bool
	// Disabled: time synchronization is disabled in the configuration.
	Disabled bool
}

// TimeStatus queries whether the clock of the node is in sync.
func (n *Node) TimeStatus(ctx context.Context) (TimeStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()

	res, err := safe.ReaderGet[*timeresource.Status](ctx, n.c.COSI, resource.NewMetadata(v1alpha1.NamespaceName,
		timeresource.StatusType, timeresource.StatusID, resource.VersionUndefined))
	if err != nil {
		if isAbsent(err) {
			return TimeStatus{}, nil
		}

		return TimeStatus{}, classify("the state of its clock", n.name(), err)
	}

	return TimeStatus{Synced: res.TypedSpec().Synced, Disabled: res.TypedSpec().SyncDisabled}, nil
}

// Container is a container of a node.
type Container struct {
	// Pod is the namespace and name of its pod, or the name of its Talos service.
	Pod string
	// Name of the container in its pod.
	Name string
	// Image that it runs.
	Image string
	// Status as the runtime reports it.
	Status string
}

// Containers returns the containers of Kubernetes and of Talos' own services that a node runs: their images show the
// running versions, whatever the configuration demands.
func (n *Node) Containers(ctx context.Context) ([]Container, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()

	var out []Container

	for _, from := range []struct {
		namespace string
		driver    common.ContainerDriver
	}{
		{constants.SystemContainerdNamespace, common.ContainerDriver_CONTAINERD},
		{constants.K8sContainerdNamespace, common.ContainerDriver_CRI},
	} {
		resp, err := n.c.Containers(ctx, from.namespace, from.driver)
		if err != nil {
			return nil, classify("its containers", n.name(), err)
		}

		for _, m := range resp.GetMessages() {
			for _, c := range m.GetContainers() {
				// The sandbox container of a pod has the pod's own ID.
				if from.driver == common.ContainerDriver_CRI && c.GetId() == c.GetPodId() {
					continue
				}

				out = append(out, Container{
					Pod: c.GetPodId(), Name: c.GetName(), Image: c.GetImage(), Status: c.GetStatus(),
				})
			}
		}
	}

	return out, nil
}
