package node_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	_ "github.com/siderolabs/talos/pkg/machinery/api/security" // registers the service
	"github.com/siderolabs/talos/pkg/machinery/client"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/talos-operator/talos-operator/lab/node"
	"github.com/talos-operator/talos-operator/test/wait"
)

// asked is how one call of the API is asked on a running control-plane node as an administrator, and what is right about
// an answer that says nothing.
type asked struct {
	request string
	// code is what is answered; OK when empty.
	code codes.Code
	// silent says why the answer holds nothing, why it is an error, or why the call is not made.
	silent string
}

const (
	away    = "takes the node or its etcd away; has tests of its own"
	trustd  = "is a call of trustd, which nodes make to each other"
	acts    = "answers that it was done"
	noNTP   = "no time server is within reach, as in the recordings"
	nothing = "there is nothing of it"
)

// walked are the calls that need something in their request, that say nothing, or that are not made here.
var walked = map[string]asked{
	"machine.MachineService/ApplyConfiguration": {code: codes.InvalidArgument, silent: "without a config"},
	"machine.MachineService/Bootstrap":          {code: codes.AlreadyExists, silent: "etcd runs"},
	"machine.MachineService/EtcdLeaveCluster":   {silent: away},
	"machine.MachineService/EtcdRecover":        {silent: away},
	"machine.MachineService/Reboot":             {silent: away},
	"machine.MachineService/Reset":              {silent: away},
	"machine.MachineService/Rollback":           {silent: away},
	"machine.MachineService/Shutdown":           {silent: away},
	"machine.MachineService/Upgrade":            {silent: away},
	"machine.LifecycleService/Install":          {code: codes.AlreadyExists, silent: "it is installed"},
	"machine.LifecycleService/Upgrade":          {silent: away},
	"storage.StorageService/BlockDeviceWipe":    {silent: acts},

	"machine.MachineService/Containers":     {request: `{"namespace": "system"}`},
	"machine.MachineService/Stats":          {request: `{"namespace": "system"}`},
	"machine.MachineService/Restart":        {request: `{"namespace": "system", "id": "kubelet"}`, silent: acts},
	"machine.MachineService/ServiceStart":   {request: `{"id": "kubelet"}`},
	"machine.MachineService/ServiceRestart": {request: `{"id": "kubelet"}`},
	"machine.MachineService/ServiceStop":    {code: codes.Unknown, silent: "no service may be stopped"},
	"machine.MachineService/Logs":           {request: `{"namespace": "system", "id": "machined", "tail_lines": -1}`},
	"machine.MachineService/Copy":           {request: `{"root_path": "/etc"}`},
	"machine.MachineService/Read":           {request: `{"path": "/proc/version"}`},
	"machine.MachineService/DiskUsage":      {request: `{"paths": ["/var"]}`},
	"machine.MachineService/Events":         {request: `{"tail_events": -1}`},
	"machine.MachineService/MetaWrite":      {request: `{"key": 12, "value": "eA=="}`, silent: acts},
	"machine.MachineService/MetaDelete":     {request: `{"key": 12}`, silent: acts},
	"machine.MachineService/ImageList":      {request: `{"namespace": "NS_SYSTEM"}`},
	"machine.MachineService/ImagePull":      {request: `{"namespace": "NS_SYSTEM", "reference": "` + image + `"}`, silent: acts},
	"machine.MachineService/PacketCapture":  {request: `{"interface": "eth0"}`, code: codes.DeadlineExceeded, silent: nothing},
	"machine.ImageService/List":             {request: `{"containerd": {"driver": "CRI", "namespace": "NS_SYSTEM"}}`},
	"machine.ImageService/Pull":             {request: `{"containerd": {"namespace": "NS_SYSTEM"}, "image_ref": "` + image + `"}`},
	"machine.ImageService/Import":           {code: codes.InvalidArgument, silent: "needs the image"},
	"machine.ImageService/Remove": {
		request: `{"containerd": {"namespace": "NS_SYSTEM"}, "image_ref": "example.com/nowhere:v1"}`, code: codes.NotFound,
		silent: "nobody waits here for the end of a pull, so that there is no image to be removed",
	},
	"machine.ImageService/Verify":             {request: `{"image_ref": "` + image + `"}`, silent: "no image is signed here"},
	"machine.DebugService/ContainerRun":       {code: codes.InvalidArgument, silent: "the lab runs no containers"},
	"cluster.ClusterService/HealthCheck":      {request: `{"wait_timeout": "60s"}`},
	"time.TimeService/Time":                   {code: codes.Unknown, silent: noNTP},
	"time.TimeService/TimeCheck":              {request: `{"server": "pool.ntp.org"}`, code: codes.Unknown, silent: noNTP},
	"cosi.resource.State/Get":                 {request: machineStatus},
	"cosi.resource.State/List":                {request: `{"namespace": "runtime", "type": "MachineStatuses.runtime.talos.dev"}`},
	"cosi.resource.State/Watch":               {request: machineStatus},
	"cosi.resource.State/Create":              {code: codes.Unknown, silent: "without a resource"},
	"cosi.resource.State/Update":              {code: codes.Unknown, silent: "without a resource"},
	"cosi.resource.State/Destroy":             {code: codes.PermissionDenied, silent: "resources are read only"},
	"securityapi.SecurityService/Certificate": {silent: trustd},

	"machine.MachineService/EtcdAlarmList":               {silent: nothing},
	"machine.MachineService/EtcdAlarmDisarm":             {silent: nothing},
	"machine.MachineService/EtcdDefragment":              {silent: acts},
	"machine.MachineService/EtcdForfeitLeadership":       {code: codes.Unknown, silent: "it is the only member"},
	"machine.MachineService/EtcdRemoveMemberByID":        {code: codes.NotFound, silent: "without a member"},
	"machine.MachineService/EtcdDowngradeValidate":       {request: `{"version": "3.5"}`},
	"machine.MachineService/EtcdDowngradeEnable":         {request: `{"version": "3.5"}`},
	"machine.MachineService/GenerateClientConfiguration": {request: `{"roles": ["os:reader"], "crt_ttl": "3600s"}`},
}

const (
	image         = "ghcr.io/siderolabs/kubelet:v1.36.2"
	machineStatus = `{"namespace": "runtime", "type": "MachineStatuses.runtime.talos.dev", "id": "machine"}`
)

// services are those of the machine API.
func services() []protoreflect.ServiceDescriptor {
	var all []protoreflect.ServiceDescriptor

	protoregistry.GlobalFiles.RangeFiles(func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			s := f.Services().Get(i)
			if ours(f) {
				all = append(all, s)
			}
		}

		return true
	})

	return all
}

// ours reports whether a file is of Talos, not of etcd or Kubernetes.
func ours(f protoreflect.FileDescriptor) bool {
	options, ok := f.Options().(*descriptorpb.FileOptions)

	return ok && (strings.Contains(options.GetGoPackage(), "siderolabs/talos") || f.Package() == "cosi.resource")
}

// TestEveryCallSaysSomething goes over all calls of the API as the machinery library describes them: what a running
// node answers has contents, or the table says why not. A new version of the library shows here what is new.
func TestEveryCallSaysSomething(t *testing.T) {
	t.Parallel()

	f := newFleet(t, true)
	n := f.boot(1)
	c := f.found(n)[0]
	known := map[string]bool{}

	wait.For(t, "the node has all that it runs", shows(n, func(s node.Status) bool { return s.Ready }))

	for _, s := range services() {
		for i := range s.Methods().Len() {
			m := s.Methods().Get(i)
			name := string(s.FullName()) + "/" + string(m.Name())
			known[name] = true

			ask := walked[name]
			if ask.silent == away || ask.silent == trustd {
				continue
			}

			answer, err := f.ask(c, name, m, ask.request)

			switch {
			case status.Code(err) != ask.code:
				t.Errorf("%s: %v", name, err)
			case err == nil && says(answer) == (ask.silent != ""):
				t.Errorf("%s says %v; %q", name, answer, ask.silent)
			}
		}
	}

	for name := range walked {
		if !known[name] {
			t.Errorf("there is no call %s", name)
		}
	}
}

// ask makes one call and returns its first answer that says something.
func (f *fleet) ask(
	c *client.Client, name string, m protoreflect.MethodDescriptor, request string,
) (protoreflect.Message, error) {
	ctx, cancel := context.WithTimeout(f.t.Context(), attempt)
	defer cancel()

	in, out := dynamicpb.NewMessage(m.Input()), dynamicpb.NewMessage(m.Output())

	if request != "" {
		if err := protojson.Unmarshal([]byte(request), in); err != nil {
			return nil, fmt.Errorf("the request of %s: %w", name, err)
		}
	}

	stream, err := c.Conn().NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "/"+name)
	if err != nil {
		return nil, err
	}

	if err := stream.SendMsg(in); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}

	if err := stream.CloseSend(); err != nil {
		return nil, err
	}

	// A watch begins with an empty answer.
	for range 2 {
		if err := stream.RecvMsg(out); err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}

		if says(out) || !m.IsStreamingServer() {
			break
		}
	}

	return out, nil
}

// says reports whether an answer holds anything beside who has answered.
func says(m protoreflect.Message) bool {
	found := false

	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case fd.Name() == "metadata":
		case fd.IsList() && fd.Message() != nil:
			for i := range v.List().Len() {
				found = found || says(v.List().Get(i).Message())
			}
		case fd.Message() != nil && !fd.IsMap():
			found = found || says(v.Message())
		default:
			found = true
		}

		return !found
	})

	return found
}
