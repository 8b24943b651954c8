package conformance

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/cosi-project/runtime/api/v1alpha1"
	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/resource/meta"
	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/cosi-project/runtime/pkg/state/protobuf/client"
	"google.golang.org/grpc"

	"github.com/talos-operator/talos-operator/lab/cosi"
)

// resources holds a node's resources against a recording: types, namespaces, sensitivity and identifiers.
func (c *comparison) resources(ctx context.Context, conn *grpc.ClientConn, who place) error {
	recording, err := cosi.Recorded(c.state)
	if err != nil {
		return err
	}

	st := state.WrapCore(client.NewAdapter(v1alpha1.NewStateClient(conn)))

	definitions, err := safe.StateListAll[*meta.ResourceDefinition](ctx, st)
	if err != nil {
		return fmt.Errorf("listing the resource types of the node in state %s: %w", c.state, err)
	}

	here := map[resource.Type]meta.ResourceDefinitionSpec{}
	for definition := range definitions.All() {
		here[definition.TypedSpec().Type] = *definition.TypedSpec()
	}

	for _, typ := range slices.Sorted(maps.Keys(here)) {
		if _, ok := recording[typ]; !ok {
			c.fail("%s: type %s exists here and on no real node", c.state, typ)
		}
	}

	for _, typ := range slices.Sorted(maps.Keys(recording)) {
		c.check(compareDefinition(c.state, typ, recording[typ], here))

		if _, ok := here[typ]; ok {
			c.items(ctx, items{typ: typ, recorded: recording[typ], who: who}, st)
		}
	}

	return nil
}

func compareDefinition(
	name string, typ resource.Type, want cosi.RecordedType, here map[resource.Type]meta.ResourceDefinitionSpec,
) string {
	got, ok := here[typ]

	switch {
	case !ok:
		return fmt.Sprintf("%s: type %s does not exist here", name, typ)
	case got.DefaultNamespace != want.DefaultNamespace:
		return fmt.Sprintf("%s: type %s: recorded in namespace %s, here in %s",
			name, typ, want.DefaultNamespace, got.DefaultNamespace)
	case string(got.Sensitivity) != want.Sensitivity:
		return fmt.Sprintf("%s: type %s: recorded sensitivity %q, here %q", name, typ, want.Sensitivity, got.Sensitivity)
	}

	return ""
}

// items are the resources of one type.
type items struct {
	typ      resource.Type
	recorded cosi.RecordedType
	who      place
}

// items compares the identifiers of one type. Of types with many resources, the recordings show six and say how
// many there were.
func (c *comparison) items(ctx context.Context, of items, st state.State) {
	list, err := st.List(ctx, resource.NewMetadata(of.recorded.DefaultNamespace, of.typ, "", resource.VersionUndefined))

	if of.recorded.Error != "" {
		if err == nil || !strings.Contains(of.recorded.Error, lastLine(err.Error())) {
			c.fail("%s: listing %s: recorded %q, here %v", c.state, of.typ, of.recorded.Error, err)
		} else {
			c.pass()
		}

		return
	}

	if err != nil {
		c.fail("%s: listing %s: %v", c.state, of.typ, err)

		return
	}

	var want, got []string

	for _, item := range of.recorded.Items {
		want = append(want, item.ID)
	}

	for _, item := range list.Items {
		got = append(got, item.Metadata().ID())
	}

	c.sets(of, recordedPlace(c.state).normalize(want), of.who.normalize(got))
}

func (c *comparison) sets(of items, want, got map[string]bool) {
	complete := of.recorded.Count == len(of.recorded.Items)
	extra, allowed := 0, false

	var complaints []string

	for _, id := range slices.Sorted(maps.Keys(want)) {
		if !got[id] && !c.known.allowsID(c.state, of.typ, id, false) {
			complaints = append(complaints, "missing "+id)
		} else if !got[id] {
			allowed = true
			extra--
		}
	}

	for _, id := range slices.Sorted(maps.Keys(got)) {
		if want[id] {
			continue
		}

		switch {
		case c.known.allowsID(c.state, of.typ, id, true):
			allowed = true
			extra++
		case complete:
			complaints = append(complaints, "unexpected "+id)
		}
	}

	if !complete && len(got) != of.recorded.Count+extra {
		complaints = append(complaints, fmt.Sprintf("%d recorded, %d here: %s",
			of.recorded.Count, len(got), strings.Join(slices.Sorted(maps.Keys(got)), ", ")))
	}

	switch {
	case len(complaints) > 0:
		c.fail("%s: %s: %s", c.state, of.typ, strings.Join(complaints, "; "))
	case allowed:
		c.allow()
	default:
		c.pass()
	}
}

// place is where a node is on the network, so that identifiers of different nodes can be compared.
type place struct {
	address, prefix, subnet, broadcast, gateway string
}

func recordedPlace(state string) place {
	p := place{
		address: "10.231.0.11", prefix: "/24", subnet: "10.231.0.0/24", broadcast: "10.231.0.255", gateway: "10.231.0.1",
	}

	if state == stateWorker || state == stateRebootedWorker {
		p.address = "10.231.0.14"
	}

	return p
}

var (
	linkLocalPattern = regexp.MustCompile(`fe80::[0-9a-f]+[0-9a-f:]*`)
	nodeIDPattern    = regexp.MustCompile(`^[0-9A-Za-z]{40,44}$`)
)

// normalize replaces what is a node's own in identifiers by what it means. Nodes make their identities up: what counts
// is how many there are.
func (p place) normalize(ids []string) map[string]bool {
	own := strings.NewReplacer(
		p.address+p.prefix, "<address>/<bits>",
		p.subnet, "<subnet>",
		p.broadcast, "<broadcast>",
		p.address, "<address>",
		p.gateway, "<gateway>",
	)
	set := make(map[string]bool, len(ids))
	nodes := 0

	for _, id := range ids {
		if nodeIDPattern.MatchString(id) {
			nodes++
			id = fmt.Sprintf("<node %d>", nodes)
		}

		set[own.Replace(linkLocalPattern.ReplaceAllString(id, "<link-local>"))] = true
	}

	return set
}

func lastLine(s string) string {
	return s[strings.LastIndexByte(s, '\n')+1:]
}
