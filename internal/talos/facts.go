package talos

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
	talosclient "github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"
	"github.com/siderolabs/talos/pkg/machinery/resources/etcd"
	"github.com/siderolabs/talos/pkg/machinery/resources/hardware"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/talos-operator/talos-operator/internal/text"
)

// Facts are what a node reports about itself.
type Facts struct {
	// Stage as Talos reports it.
	Stage string
	// Ready according to the node itself.
	Ready bool
	// Unmet conditions, as "name: reason".
	Unmet []string
	// Hostname and Addresses of the node.
	Hostname  string
	Addresses []string
	// NodeName is the name that its kubelet registers with; empty if there is none yet, as in maintenance mode.
	NodeName string
	// TalosVersion that the node runs.
	TalosVersion string
	// KubeletVersion is the tag of the configured kubelet image.
	KubeletVersion string
	// BootID changes with every boot; empty in maintenance mode.
	BootID string
	// UUID from the firmware; empty if it does not identify the machine.
	UUID string
	// EtcdMemberID, in hexadecimal; empty if there is no member.
	EtcdMemberID string
	// SystemDisk that Talos runs from.
	SystemDisk string
	// CPUs is the number of processor threads.
	CPUs int32
	// MemoryMiB is the memory in MiB.
	MemoryMiB int64
}

// reader collects facts. It stops at the first error; a missing resource is no error.
type reader struct {
	c   *talosclient.Client
	err error
}

// get reads one typed resource; nil if it does not exist, or if access is denied.
func get[T resource.Resource](
	ctx context.Context,
	r *reader,
	ns resource.Namespace,
	typ resource.Type,
	id resource.ID,
) (out T) {
	if r.err != nil {
		return out
	}

	res, err := safe.ReaderGet[T](ctx, r.c.COSI, resource.NewMetadata(ns, typ, id, resource.VersionUndefined))
	if err != nil {
		if !isAbsent(err) {
			r.err = err
		}

		return out
	}

	return res
}

func isAbsent(err error) bool {
	return state.IsNotFoundError(err) || status.Code(err) == codes.NotFound || status.Code(err) == codes.PermissionDenied
}

// Facts reads everything that a status reports.
func (n *Node) Facts(ctx context.Context) (Facts, error) {
	ctx, cancel := context.WithTimeout(ctx, factsTimeout)
	defer cancel()

	f, err := readFacts(ctx, n.c)
	if err != nil {
		return f, classify("its state", n.name(), err)
	}

	if f.BootID, err = n.bootID(ctx); err != nil {
		return f, err
	}

	return f, nil
}

// readFacts reads everything concurrently, so it takes only as long as the slowest response.
func readFacts(ctx context.Context, c *talosclient.Client) (Facts, error) {
	var f Facts

	g, ctx := errgroup.WithContext(ctx)

	for _, read := range []func(context.Context, *reader, *Facts){
		readStage, readNames, readAddresses, readIdentity, readProcessors, readMemory, readKubernetes,
	} {
		g.Go(func() error {
			r := &reader{c: c}
			read(ctx, r, &f)

			return r.err
		})
	}

	if err := g.Wait(); err != nil {
		return f, err
	}

	return f, f.fit()
}

func readStage(ctx context.Context, r *reader, f *Facts) {
	m := get[*runtime.MachineStatus](
		ctx, r, runtime.NamespaceName, runtime.MachineStatusType, runtime.MachineStatusID)
	if m == nil {
		return
	}

	spec := m.TypedSpec()
	f.Stage, f.Ready = spec.Stage.String(), spec.Status.Ready

	for _, u := range spec.Status.UnmetConditions {
		f.Unmet = append(f.Unmet, u.Name+": "+u.Reason)
	}

	slices.Sort(f.Unmet)
}

func readNames(ctx context.Context, r *reader, f *Facts) {
	if v := get[*runtime.Version](ctx, r, runtime.NamespaceName, runtime.VersionType, "version"); v != nil {
		f.TalosVersion = v.TypedSpec().Version
	}

	if h := get[*network.HostnameStatus](
		ctx, r, network.NamespaceName, network.HostnameStatusType, network.HostnameID,
	); h != nil {
		f.Hostname = h.TypedSpec().Hostname
	}
}

func readAddresses(ctx context.Context, r *reader, f *Facts) {
	a := get[*network.NodeAddress](
		ctx, r, network.NamespaceName, network.NodeAddressType, network.NodeAddressCurrentID)
	if a == nil {
		return
	}

	for _, p := range a.TypedSpec().Addresses {
		if !p.Addr().IsLinkLocalUnicast() {
			f.Addresses = append(f.Addresses, p.Addr().String())
		}
	}
}

func readKubernetes(ctx context.Context, r *reader, f *Facts) {
	if k := get[*k8s.KubeletSpec](ctx, r, k8s.NamespaceName, k8s.KubeletSpecType, k8s.KubeletID); k != nil {
		f.KubeletVersion = imageTag(k.TypedSpec().Image)
		f.NodeName = overriddenName(k.TypedSpec().Args)
	}

	if f.NodeName == "" {
		f.NodeName = derivedName(ctx, r)
	}

	if e := get[*etcd.Member](ctx, r, etcd.NamespaceName, etcd.MemberType, etcd.LocalMemberID); e != nil {
		f.EtcdMemberID = e.TypedSpec().MemberID
	}
}

// Limits of facts: those of the status fields for them. A status that violates one is rejected as a whole.
const (
	maxUnmet, maxUnmetText = 32, 300
	maxAddresses           = 64
)

// fit shortens texts for users, and rejects a node with an identifier that no genuine node has.
func (f *Facts) fit() error {
	f.Unmet = f.Unmet[:min(len(f.Unmet), maxUnmet)]
	for i, unmet := range f.Unmet {
		f.Unmet[i] = clip(text.Line(unmet), maxUnmetText)
	}

	f.Addresses = f.Addresses[:min(len(f.Addresses), maxAddresses)]

	for _, name := range []struct {
		of   *string
		most int
	}{
		{&f.Stage, 32},
		{&f.Hostname, 253},
		{&f.NodeName, 253},
		{&f.TalosVersion, 64},
		{&f.KubeletVersion, 64},
		{&f.UUID, 64},
		{&f.EtcdMemberID, 32},
		{&f.SystemDisk, 253},
	} {
		if *name.of = text.Name(*name.of); utf8.RuneCountInString(*name.of) > name.most {
			return fmt.Errorf("%w: a name of more than %d characters", ErrTooMuch, name.most)
		}
	}

	return nil
}

// clip returns the beginning of a text.
func clip(s string, most int) string {
	if r := []rune(s); len(r) > most {
		return string(r[:most-1]) + "…"
	}

	return s
}

// UUID queries the UUID of the machine's firmware, which identifies it; empty if the firmware has none that does.
func (n *Node) UUID(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()

	r := &reader{c: n.c}

	i := get[*hardware.SystemInformation](ctx, r, hardware.NamespaceName, hardware.SystemInformationType,
		hardware.SystemInformationID)
	if r.err != nil || i == nil {
		return "", classify("its UUID", n.name(), r.err)
	}

	return text.Name(TellingUUID(i.TypedSpec().UUID)), nil
}

// Connection returns the number of TCP connections to the node so far. While it stays the same, every response is from
// the same machine. A broken connection counts until another one is established, so the number proves nothing without a
// response.
func (n *Node) Connection() int64 { return n.line.dials.Load() }

// UUIDOver returns the UUID of the machine at the other end of a connection, by its number. It is queried once. The
// caller must have a response over that connection, and verify afterwards that it is still the same.
func (n *Node) UUIDOver(ctx context.Context, connection int64) (string, error) {
	n.mu.Lock()
	uuid, known := n.uuid, n.uuid != "" && n.uuidOf == connection
	n.mu.Unlock()

	if known {
		return uuid, nil
	}

	uuid, err := n.UUID(ctx)
	if err == nil && uuid != "" && n.Connection() == connection {
		n.mu.Lock()
		n.uuid, n.uuidOf = uuid, connection
		n.mu.Unlock()
	}

	return uuid, err
}

func readIdentity(ctx context.Context, r *reader, f *Facts) {
	if i := get[*hardware.SystemInformation](ctx, r, hardware.NamespaceName, hardware.SystemInformationType,
		hardware.SystemInformationID); i != nil {
		f.UUID = TellingUUID(i.TypedSpec().UUID)
	}

	if d := get[*block.SystemDisk](ctx, r, block.NamespaceName, block.SystemDiskType, block.SystemDiskID); d != nil {
		f.SystemDisk = d.TypedSpec().DevPath
	}
}

func readProcessors(ctx context.Context, r *reader, f *Facts) {
	list, err := safe.ReaderListAll[*hardware.Processor](ctx, r.c.COSI)

	switch {
	case err == nil:
		for p := range list.All() {
			f.CPUs += int32(cmp.Or(p.TypedSpec().ThreadCount, p.TypedSpec().CoreCount))
		}
	case isTooMuch(err), errors.Is(err, ErrInvalid):
		r.err = err
	}
}

func readMemory(ctx context.Context, r *reader, f *Facts) {
	mem, err := r.c.MachineClient.Memory(ctx, &emptypb.Empty{})

	switch {
	case err == nil:
		for _, m := range mem.GetMessages() {
			f.MemoryMiB = int64(m.GetMeminfo().GetMemtotal() / 1024) // KiB
		}
	case !isAbsent(err) && status.Code(err) != codes.Unimplemented:
		r.err = err
	}
}

// imageTag returns the tag of an image reference, empty if it has none.
func imageTag(ref string) string {
	ref, _, _ = strings.Cut(ref, "@")

	i := strings.LastIndex(ref, ":")
	if i < 0 || strings.Contains(ref[i:], "/") {
		return ""
	}

	return ref[i+1:]
}
