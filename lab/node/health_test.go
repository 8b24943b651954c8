package node_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"
	"github.com/siderolabs/talos/pkg/machinery/resources/hardware"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"

	"github.com/talos-operator/talos-operator/lab/node"
	"github.com/talos-operator/talos-operator/test/wait"
)

// What the official client's health check asks for: 1698 MiB of memory on a control-plane node, and 6 GiB of disk less
// what the system partitions take.
const (
	enoughMemory = 1698 << 20
	enoughDisk   = 6<<30 - 1400<<20
)

// TestHealthOfModelledMachines: the checks of the official client pass on modelled machines, too.
func TestHealthOfModelledMachines(t *testing.T) {
	t.Parallel()

	f := newFleet(t, true)
	f.checkHealth(f.found(f.boot(1)))
}

// checkHealth makes the checks that `talosctl health` makes of nodes.
func (f *fleet) checkHealth(clients []*client.Client) {
	for name, check := range map[string]func(context.Context, *client.Client) error{
		"services": f.healthyServices, "memory": enoughMemoryFor, "disk": enoughDiskFor, "diagnostics": noDiagnostics,
		"stage": runs, "static pods": podsRun,
	} {
		for i, c := range clients {
			wait.For(f.t, fmt.Sprintf("%s of node %d are healthy", name, i+1), func(ctx context.Context) error {
				return check(ctx, c)
			})
		}
	}
}

func (f *fleet) healthyServices(ctx context.Context, c *client.Client) error {
	for _, id := range []string{"apid", "etcd", "kubelet"} {
		s, err := f.service(ctx, c, id)
		if err != nil {
			return err
		}

		if s.state != "Running" || !s.healthy {
			return fmt.Errorf("%s: %+v", id, s)
		}
	}

	return nil
}

func enoughMemoryFor(ctx context.Context, c *client.Client) error {
	resp, err := c.Memory(ctx)
	if err == nil && resp.GetMessages()[0].GetMeminfo().GetMemtotal()<<10 < enoughMemory {
		err = fmt.Errorf("too little: %v", resp)
	}

	return err
}

func enoughDiskFor(ctx context.Context, c *client.Client) error {
	v, err := safe.StateGetByID[*block.VolumeStatus](ctx, c.COSI, "EPHEMERAL")
	if err != nil {
		return err
	}

	spec := v.TypedSpec()
	if spec.Size < enoughDisk || spec.Phase != block.VolumePhaseReady || spec.Location != "/dev/sda6" ||
		spec.MountSpec.TargetPath != "/var" {
		return fmt.Errorf("%+v", spec)
	}

	return nil
}

func noDiagnostics(ctx context.Context, c *client.Client) error {
	list, err := safe.StateListAll[*runtime.Diagnostic](ctx, c.COSI)
	if err == nil && list.Len() > 0 {
		err = fmt.Errorf("%d diagnostics", list.Len())
	}

	return err
}

func runs(ctx context.Context, c *client.Client) error {
	s, err := safe.StateGetByID[*runtime.MachineStatus](ctx, c.COSI, runtime.MachineStatusID)
	if err == nil && s.TypedSpec().Stage != runtime.MachineStageRunning {
		err = fmt.Errorf("it is in stage %s", s.TypedSpec().Stage)
	}

	return err
}

func podsRun(ctx context.Context, c *client.Client) error {
	list, err := safe.StateListAll[*k8s.StaticPodStatus](ctx, c.COSI)
	if err != nil {
		return err
	}

	ready := 0

	for pod := range list.All() {
		data, err := json.Marshal(pod.TypedSpec().PodStatus)
		if err != nil {
			return err
		}

		if strings.Contains(string(data), `"status":"True","type":"Ready"`) {
			ready++
		}
	}

	if ready != 3 {
		return fmt.Errorf("%d static pods are ready", ready)
	}

	return nil
}

// TestLogs: a node has the logs of its services, of its controllers and of its name server.
func TestLogs(t *testing.T) {
	t.Parallel()

	f := newFleet(t, true)
	c := f.found(f.boot(1))[0]

	for id, text := range map[string]string{
		"apid": "Starting apid", "containerd": "containerd successfully booted", "cri": "containerd successfully booted",
		"trustd": "Starting trustd", "controller-runtime": "controller starting", "dns-resolve-cache": "dns server starting",
		"machined": "boot sequence", "kernel": "Linux version", "etcd": "", "kubelet": "",
	} {
		lines, err := read(t.Context(), c, id)
		if err != nil || !strings.Contains(lines, text) {
			t.Errorf("the log of %s: %q, %v", id, lines, err)
		}
	}

	if _, err := read(t.Context(), c, "nothing"); err == nil {
		t.Error("there is a log of nothing")
	}
}

// read reads a log of the system to its end.
func read(ctx context.Context, c *client.Client, id string) (string, error) {
	stream, err := c.Logs(ctx, "system", common.ContainerDriver_CONTAINERD, id, false, -1)
	if err != nil {
		return "", err
	}

	var lines strings.Builder

	for {
		data, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return lines.String(), nil
		}

		if err != nil {
			return lines.String(), err
		}

		lines.Write(data.GetBytes())
	}
}

// TestHardware: a machine shows its PCI devices from the start, and its system volumes once it is installed.
func TestHardware(t *testing.T) {
	t.Parallel()

	f := newFleet(t, true)
	n := f.boot(1, func(o *node.Options) {
		o.Disks = []node.Disk{{Name: "sda", Size: 20 * node.GiB, Transport: "sata"}}
	})
	c := f.found(n)[0]

	devices, err := safe.StateListAll[*hardware.PCIDevice](t.Context(), c.COSI)
	if err != nil {
		t.Fatal(err)
	}

	drivers := map[string]bool{}
	for d := range devices.All() {
		drivers[d.TypedSpec().Driver] = true
	}

	if !drivers["ahci"] || !drivers["virtio-pci"] {
		t.Errorf("drivers of PCI devices: %v", drivers)
	}

	for id, size := range map[string]uint64{"META": 1 << 20, "STATE": 100 << 20} {
		v, err := safe.StateGetByID[*block.VolumeStatus](t.Context(), c.COSI, id)
		if err != nil || v.TypedSpec().Size != size || v.TypedSpec().ParentLocation != "/dev/sda" {
			t.Errorf("the volume %s: %+v, %v", id, v, err)
		}
	}
}

// checkManifests applies the bootstrap manifests of a node as an upgrade of Kubernetes does, in a dry run.
func (f *fleet) checkManifests(c *client.Client) {
	ctx := f.t.Context()

	manifests, err := safe.StateListAll[*k8s.Manifest](ctx, c.COSI)
	if err != nil || manifests.Len() != 10 {
		f.t.Fatalf("%d manifests, %v", manifests.Len(), err)
	}

	raw, err := c.Kubeconfig(ctx)
	if err != nil {
		f.t.Fatal(err)
	}

	config, err := clientcmd.RESTConfigFromKubeConfig(raw)
	if err != nil {
		f.t.Fatal(err)
	}

	api, err := dynamic.NewForConfig(config)
	if err != nil {
		f.t.Fatal(err)
	}

	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(f.kubernetes(c).Discovery()))

	for m := range manifests.All() {
		for _, item := range m.TypedSpec().Items {
			if err := apply(ctx, api, mapper, &unstructured.Unstructured{Object: item.Object}); err != nil {
				f.t.Errorf("%s: %v", m.Metadata().ID(), err)
			}
		}
	}
}

func apply(ctx context.Context, api dynamic.Interface, mapper apimeta.RESTMapper, o *unstructured.Unstructured) error {
	gvk := o.GroupVersionKind()

	mapping, err := mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return err
	}

	data, err := o.MarshalJSON()
	if err != nil {
		return err
	}

	_, err = api.Resource(mapping.Resource).Namespace(o.GetNamespace()).Patch(ctx, o.GetName(), types.ApplyPatchType, data,
		metav1.PatchOptions{FieldManager: "talos", Force: ptr.To(true), DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		return fmt.Errorf("applying %s %s: %w", o.GetKind(), o.GetName(), err)
	}

	return nil
}
