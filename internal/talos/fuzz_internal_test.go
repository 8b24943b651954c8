package talos

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	cosiv1alpha1 "github.com/cosi-project/runtime/api/v1alpha1"
	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/resource/protobuf"
	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"
	"github.com/siderolabs/talos/pkg/machinery/resources/cluster"
	"github.com/siderolabs/talos/pkg/machinery/resources/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	kuberuntime "k8s.io/apimachinery/pkg/runtime"

	"github.com/talos-operator/talos-operator/test/wait"
)

// specOf returns the spec of a resource as a node sends it.
func specOf(f *testing.F, r resource.Resource) []byte {
	f.Helper()

	made, err := protobuf.FromResource(r, protobuf.WithoutYAML())
	if err != nil {
		f.Fatal(err)
	}

	sent, err := made.Marshal()
	if err != nil {
		f.Fatal(err)
	}

	return sent.GetSpec().GetProtoSpec()
}

// filled returns the spec of a resource whose fields were set.
func filled[R resource.Resource](f *testing.F, r R, fill func(R)) []byte {
	f.Helper()
	fill(r)

	return specOf(f, r)
}

// FuzzResources: whatever the resources of a node hold, and claim to be, each call of it ends with a result that can be
// shown, or an error.
func FuzzResources(f *testing.F) {
	// Each is sent as what was requested, and as something else.
	add := func(spec []byte) {
		f.Add(spec, "", "")
		f.Add(spec, "", config.MachineConfigType)
		f.Add(spec, config.NamespaceName, "")
	}

	add([]byte{})
	add(filled(f, runtime.NewMachineStatus(), func(r *runtime.MachineStatus) {
		r.TypedSpec().Status.UnmetConditions = []runtime.UnmetCondition{{Name: "time", Reason: "not in sync\x1b[2J"}}
	}))
	add(filled(f, cluster.NewMember(cluster.NamespaceName, "a"), func(r *cluster.Member) {
		r.TypedSpec().Hostname = "cp-1"
		r.TypedSpec().Addresses = []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fe80::1%eth0")}
	}))
	add(filled(f, network.NewResolverStatus(network.NamespaceName, network.ResolverID), func(r *network.ResolverStatus) {
		r.TypedSpec().DNSServers = []netip.Addr{netip.MustParseAddr("fe80::1%\x1b[2J")}
	}))
	add(filled(f, network.NewRouteStatus(network.NamespaceName, "a"), func(r *network.RouteStatus) {
		r.TypedSpec().Destination = netip.MustParsePrefix("10.0.0.0/8")
		r.TypedSpec().Gateway = netip.MustParseAddr("fe80::1%\x1b[2J")
	}))
	add(filled(f, k8s.NewKubeletSpec(k8s.NamespaceName, k8s.KubeletID), func(r *k8s.KubeletSpec) {
		r.TypedSpec().Image = "ghcr.io/siderolabs/kubelet:v1.36.2"
		r.TypedSpec().Config = map[string]any{"featureGates": map[string]any{"A": true}}
	}))
	add(filled(f, k8s.NewStaticPodStatus(k8s.NamespaceName, "a"), func(r *k8s.StaticPodStatus) {
		r.TypedSpec().PodStatus = map[string]any{"phase": "Failed", "reason": "Evicted", "message": "a\x1b[2J"}
	}))
	add(filled(f, k8s.NewStaticPod(k8s.NamespaceName, "a"), func(r *k8s.StaticPod) {
		r.TypedSpec().Pod = map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"args": []any{"--a"}}}}}
	}))
	add(filled(f, k8s.NewStaticPod(k8s.NamespaceName, "b"), func(r *k8s.StaticPod) {
		r.TypedSpec().Pod = map[string]any{"metadata": map[string]any{"name": "a\x1b[2J", "namespace": []any{"b"}}}
	}))
	add(filled(f, block.NewVolumeStatus(block.NamespaceName, "EPHEMERAL"), func(r *block.VolumeStatus) {
		r.TypedSpec().Phase, r.TypedSpec().ErrorMessage = block.VolumePhaseFailed, "no key"
		r.TypedSpec().ConfiguredEncryptionKeys = []string{"tpm"}
	}))

	for _, text := range []string{
		"version: v1alpha1\nmachine:\n  type: worker\n  network:\n    interfaces: [~]\ncluster: {etcd: ~}\n",
		"apiVersion: v1alpha1\nkind: HostnameConfig\nhostname: a\n", "version: v1alpha1\nmachine: ~\n", "&a [*a]", "<<: 1\n",
	} {
		add(wrapped(text))
	}

	add(wrapped("version: v1alpha1\nmachine:\n  type: worker\ncluster:\n  controlPlane:\n    endpoint: https://a:6443\n"))
	add([]byte("healthy: \"false\"\naddr: \"10.0.0.1:53\x1b[2J\"\n"))

	s := &speaker{}
	n := talkTo(f, s)

	f.Fuzz(func(t *testing.T, spec []byte, namespace, typ string) {
		s.spec = spec
		s.lie = func(md *cosiv1alpha1.Metadata) {
			md.Namespace, md.Type = cmp.Or(namespace, md.GetNamespace()), cmp.Or(typ, md.GetType())
		}

		read(t, n)
	})
}

// FuzzMessages: the same for the responses of the machine API.
func FuzzMessages(f *testing.F) {
	for _, m := range []proto.Message{
		&machineapi.EtcdMemberListResponse{Messages: []*machineapi.EtcdMembers{{Members: []*machineapi.EtcdMember{
			{Id: 1, Hostname: "cp-1", PeerUrls: []string{"https://10.0.0.1:2380", "https://[fe80::1%25\x1b]:1", ":"}},
		}}}},
		&machineapi.EtcdStatusResponse{Messages: []*machineapi.EtcdStatus{
			{MemberStatus: &machineapi.EtcdMemberStatus{MemberId: 1, Leader: 2, Errors: []string{"NOSPACE"}}},
		}},
		&machineapi.ServiceListResponse{Messages: []*machineapi.ServiceList{{Services: []*machineapi.ServiceInfo{
			{Id: serviceEtcd, State: "Failed", Events: &machineapi.ServiceEvents{Events: []*machineapi.ServiceEvent{{Msg: "a\nb"}}}},
		}}}},
		&machineapi.ContainersResponse{Messages: []*machineapi.Container{{Containers: []*machineapi.ContainerInfo{
			{Id: "a", PodId: "kube-system/x", Image: "a:b", Name: "x\u202e"},
		}}}},
		&machineapi.MountsResponse{Messages: []*machineapi.Mounts{{Stats: []*machineapi.MountStat{{MountedOn: "/var", Available: 1}}}}},
		&machineapi.ApplyConfigurationResponse{Messages: []*machineapi.ApplyConfiguration{
			{Warnings: []string{"w"}, ModeDetails: diffTitle + "\n-a: |\n-  b\n+token: c"},
		}},
		&machineapi.FileInfo{Name: "member", RelativeName: "member", Error: "no such file or directory"},
		&machineapi.LifecycleServiceUpgradeResponse{Progress: &machineapi.LifecycleServiceInstallProgress{
			Response: &machineapi.LifecycleServiceInstallProgress_ExitCode{ExitCode: 1},
		}},
		&machineapi.ImageServicePullResponse{Response: &machineapi.ImageServicePullResponse_Name{Name: "a/b@sha256:c"}},
	} {
		sent, err := proto.MarshalOptions{AllowPartial: true}.Marshal(m)
		if err == nil {
			f.Add(sent)
		}
	}

	s := &speaker{}
	n := talkTo(f, s)

	f.Fuzz(func(t *testing.T, message []byte) {
		s.message = message
		read(t, n)
	})
}

// FuzzErrors: what a node fails a call with is shown without control characters, in a length that is bounded, and without
// what it quotes of a configuration.
func FuzzErrors(f *testing.F) {
	f.Add(uint8(codes.Unknown), "etcdserver: no leader", "")
	f.Add(uint8(codes.InvalidArgument), "unknown keys found during decoding:\n", ": x")
	f.Add(uint8(codes.Internal), "no space left on device \x1b[2J", "\xff")
	f.Add(uint8(codes.NotFound), "resource MachineConfigs.config.talos.dev(config/v1alpha1@undefined) doesn't exist", "")
	f.Add(uint8(codes.Unavailable), "remote error: tls: bad certificate", "x509:")

	s := &speaker{}
	n := talkTo(f, s)

	const secret = "qh3kzt.0123456789abcdef" // the form of a bootstrap token

	f.Fuzz(func(t *testing.T, code uint8, before, after string) {
		s.err = status.Error(codes.Code(max(1, code%17)), before+" "+secret+" "+after)

		for name, call := range readings(t.Context(), n) {
			got := call()

			switch {
			case got.err == nil:
			case strings.Contains(got.err.Error(), secret):
				t.Errorf("the error of %s quotes a secret: %q", name, got.err)
			case unplain(reflect.ValueOf(got.err.Error())) != "":
				t.Errorf("the error of %s is not plain: %q", name, got.err)
			case len(got.err.Error()) > 4*maxErrorText:
				t.Errorf("the error of %s has %d bytes", name, len(got.err.Error()))
			}
		}
	})
}

// framed cuts a content into frames, the last of which may have an error beside it.
func framed(content []byte, size uint16, said string) []*common.Data {
	var out []*common.Data

	step := int(size) + 1
	for at := 0; at < len(content); at += step {
		out = append(out, &common.Data{Bytes: content[at:min(at+step, len(content))]})
	}

	if said != "" {
		out = append(out, &common.Data{Metadata: &common.Metadata{Error: said}})
	}

	return out
}

// drain reads a stream to its end. It is cut off by the context unless the stream ends by itself.
func drain(from io.ReadCloser, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	defer from.Close()

	var out bytes.Buffer

	_, err = io.Copy(&out, from)

	return out.Bytes(), err
}

// FuzzSnapshot: a snapshot is passed on whole, whatever the size of its parts, or ends with an error.
func FuzzSnapshot(f *testing.F) {
	whole := make([]byte, sectorSize)
	sum := sha256.Sum256(whole)
	whole = append(whole, sum[:]...)

	f.Add(whole, uint16(99), "", false)
	f.Add(whole, uint16(0), "rpc error", false)
	f.Add(whole, uint16(600), "", true)
	f.Add(whole[:len(whole)-1], uint16(31), "", false)
	f.Add([]byte{}, uint16(0), "", false)

	s := &speaker{}
	n := talkTo(f, s)

	f.Fuzz(func(t *testing.T, content []byte, size uint16, said string, cut bool) {
		said = strings.ToValidUTF8(said, "")
		s.frames, s.end = framed(content, size, said), nil

		if cut {
			s.end = status.Error(codes.Unavailable, "the connection is closed")
		}

		got, err := drain(n.EtcdSnapshot(t.Context(), nil))
		end := len(content) - sumSize
		good := end > 0 && end%sectorSize == 0 && !cut && len(said) == 0

		if good {
			sum := sha256.Sum256(content[:end])
			good = bytes.Equal(sum[:], content[end:])
		}

		switch {
		case err == nil && (!good || !bytes.Equal(got, content)):
			t.Errorf("passed on as whole: %d bytes of %d", len(got), len(content))
		case err != nil && good:
			t.Errorf("a whole snapshot is refused: %v", err)
		}
	})
}

// FuzzDatabase: a copy of a database is passed on as it is in its archive, or ends with an error.
func FuzzDatabase(f *testing.F) {
	archive := func(entries ...*tar.Header) []byte {
		var out bytes.Buffer

		packed := gzip.NewWriter(&out)
		w := tar.NewWriter(packed)

		for _, h := range entries {
			h.Mode, h.Size = 0o600, 600
			if h.Typeflag == tar.TypeDir {
				h.Size = 0
			}

			err := w.WriteHeader(h)

			if h.Size > 0 {
				_, werr := w.Write(make([]byte, h.Size))
				err = errors.Join(err, werr)
			}

			if err != nil {
				f.Fatal(err)
			}
		}

		if err := errors.Join(w.Close(), packed.Close()); err != nil {
			f.Fatal(err)
		}

		return out.Bytes()
	}

	one := archive(&tar.Header{Name: "db", Typeflag: tar.TypeReg})

	f.Add(one, uint16(10), "")
	f.Add(one[:len(one)-4], uint16(10), "")
	f.Add(one, uint16(1000), "read error")
	f.Add(archive(&tar.Header{Name: "snap/", Typeflag: tar.TypeDir}, &tar.Header{Name: "db", Typeflag: tar.TypeReg}), uint16(0), "")
	f.Add(append(one, one...), uint16(0), "")

	s := &speaker{}
	n := talkTo(f, s)

	f.Fuzz(func(t *testing.T, content []byte, size uint16, said string) {
		s.frames = framed(content, size, strings.ToValidUTF8(said, ""))

		got, err := drain(n.EtcdDatabase(t.Context()))
		if err != nil {
			return
		}

		if want, err := firstFile(content); err != nil || !bytes.Equal(got, want) {
			t.Errorf("passed on: %d bytes, the archive has %d: %v", len(got), len(want), err)
		}
	})
}

// firstFile returns the first file of an archive.
func firstFile(content []byte) ([]byte, error) {
	plain, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		return nil, err
	}

	archive := tar.NewReader(plain)

	for {
		head, err := archive.Next()
		if err != nil {
			return nil, err
		}

		if head.Typeflag == tar.TypeReg {
			return io.ReadAll(archive)
		}
	}
}

// FuzzStaticPod: what a kubelet reports about a static pod is told in a bounded length, without a token.
func FuzzStaticPod(f *testing.F) {
	const secret = "qh3kzt.0123456789abcdef"

	f.Add(`{"phase":"Pending","containerStatuses":[{"name":"c","state":{"waiting":{"reason":"ErrImagePull","message":"x ` +
		secret + `"}}}]}`)
	f.Add(`{"phase":"Failed","reason":"Evicted","message":"` + secret + `","startTime":"2026-11-01T10:00:00Z"}`)
	f.Add(`{"conditions":[{"type":"Ready","status":"False","message":"containers with unready status: [c]"}]}`)
	f.Add(`{"containerStatuses":[{"lastState":{"terminated":{"exitCode":1e9}},"state":{"waiting":{"reason":"a"}}}]}`)

	f.Fuzz(func(t *testing.T, raw string) {
		var reported map[string]any
		if json.Unmarshal([]byte(raw), &reported) != nil {
			return
		}

		var st corev1.PodStatus
		if kuberuntime.DefaultUnstructuredConverter.FromUnstructured(reported, &st) != nil {
			return
		}

		got := judge(&st)
		if len([]rune(got.Problem)) > longestProblem {
			t.Errorf("%d characters", len([]rune(got.Problem)))
		}

		if strings.Contains(got.Problem, " "+secret+" ") {
			t.Errorf("the problem quotes a token: %s", got.Problem)
		}
	})
}

// FuzzConfig: a configuration that a node sends is read, or is an error that does not quote it. The library panics on some.
func FuzzConfig(f *testing.F) {
	const hidden = "hunter2hunter2"

	f.Add("version: v1alpha1\nmachine:\n  type: worker\n  token: ", "\n  network:\n    interfaces: [~]\n")
	f.Add("apiVersion: v1alpha1\nkind: HostnameConfig\nhostname: ", "\n---\n? [a]\n: b\n")
	f.Add("? {a: ", "}\n: c\n<<: [~]\n")
	f.Add("a: !!binary ", "\n!<tag:> b: &c [*c]\n")
	f.Add("machine: {kubelet: {extraConfig: {? {", ": b} : c}}}\n")

	f.Fuzz(func(t *testing.T, before, after string) {
		s := &speaker{spec: wrapped(before + hidden + after)}

		sent, err := protobuf.Unmarshal(s.resource(config.NamespaceName, config.MachineConfigType, config.ActiveID))
		if err != nil {
			t.Fatal(err)
		}

		got, err := decodeConfig(sent)

		switch {
		case err == nil && got.Provider() == nil:
			t.Error("neither a configuration nor an error")
		case err != nil && strings.Contains(err.Error(), hidden):
			t.Errorf("the error quotes the configuration: %v", err)
		case err == nil:
			_, _ = configState(got, got)
		}
	})
}

// TestUnreadableWatchedConfig: a configuration that cannot be read is one more version for a watch, which decodes none: it would be in a
// goroutine of the library, where a panic ends the operator.
func TestUnreadableWatchedConfig(t *testing.T) {
	n := talkTo(t, &speaker{spec: wrapped("a: &a [*a]\n? {b: c}\n: d\n")})

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()

	w := newWatches(n.c, cancel)
	if err := w.openConfig(ctx); err != nil {
		t.Fatal(err)
	}

	e := wait.Done(t, "the first event of the watch", w.events)
	if got := merge(Watched{}, e); e.Error != nil || got.Config == "" {
		t.Errorf("event %+v with the error %v, seen %+v", e, e.Error, got)
	}
}

// wrapped is the message of a machine config.
func wrapped(text string) []byte {
	sent := []byte{1<<3 | 2}
	for size := uint64(len(text)); ; size >>= 7 {
		if size < 0x80 {
			return append(append(sent, byte(size)), text...)
		}

		sent = append(sent, byte(size)|0x80)
	}
}
