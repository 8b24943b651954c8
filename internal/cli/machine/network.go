package machine

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/cli/access"
	"github.com/talos-operator/talos-operator/internal/cli/output"
	"github.com/talos-operator/talos-operator/internal/cli/session"
	"github.com/talos-operator/talos-operator/internal/talos"
)

// NewNetworkCommand shows what a node reports about its network.
func NewNetworkCommand(streams genericiooptions.IOStreams) *cobra.Command {
	s := &networkShower{Session: session.New(streams)}
	cmd := &cobra.Command{
		Use:   "network MACHINE",
		Short: "Show what a node reports about its network",
		Long: `Show what a node reports about its network: its name, links, addresses, routes, resolvers, the peers of
KubeSpan, and the machines of its cluster that it knows from discovery. The command connects to the node, reads the PKI
of the cluster for it, and changes nothing. MACHINE is the name of a TalosMachine.

A layer is where Talos has something from: the defaults, the kernel command line (cmdline), the platform, the operators
of Talos for DHCP and virtual IPs (operator), or the machine config (configuration). Without a layer, Talos has not set
it: it is of the kernel, or of the CNI.`,
		Example: `  talos-operator network prod-cp-0 -n clusters
  talos-operator network prod-cp-0 -o json | jq '.links[] | select(.carrier | not)'`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: s.CompleteObjects(&v1alpha1.TalosMachineList{}),
		RunE:              func(cmd *cobra.Command, args []string) error { return s.show(cmd.Context(), args[0]) },
	}
	output.AddFlag(cmd, &s.output)

	return s.Attach(cmd)
}

type networkShower struct {
	*session.Session

	output output.Format
}

// networkReport is the output of the command.
type networkReport struct {
	Machine string `json:"machine"`
	talos.Network
	// Members are the machines that the node knows from discovery, and Missing those of the cluster that it does not know.
	Members []string `json:"members"`
	Missing []string `json:"missingMembers,omitempty"`
}

func (s *networkShower) show(ctx context.Context, name string) error {
	if err := s.output.Validate(); err != nil {
		return err
	}

	p, m, err := s.FindMachine(ctx, name)
	if err != nil {
		return err
	}

	c, err := session.FindCluster(ctx, p, m.Spec.ControlPlaneRef.Name)
	if err != nil {
		return err
	}

	report, err := readNetwork(ctx, p, c, m)
	if err != nil {
		return err
	}

	now := clock.RealClock{}.Now()

	return s.output.Print(s.Out, report, func(w io.Writer) { report.write(w, now) })
}

func readNetwork(
	ctx context.Context, p *session.Plane, c *session.Cluster, m *v1alpha1.TalosMachine,
) (*networkReport, error) {
	state, err := access.LoadState(ctx, p, c)
	if err != nil {
		return nil, err
	}

	x, err := access.NewNodes(p, c, state)
	if err != nil {
		return nil, err
	}
	defer x.Close()

	fail := func(err error) error { return fmt.Errorf("reading the network of %s: %w", m.Name, err) }

	node, err := x.Connect(ctx, m)
	if err != nil {
		return nil, fail(err)
	}

	out := &networkReport{Machine: m.Name, Members: []string{}}
	if out.Network, err = node.Network(ctx); err != nil {
		return nil, fail(err)
	}

	members, err := node.ClusterMembers(ctx)
	if err != nil {
		return nil, fail(err)
	}

	for _, member := range members {
		out.Members = append(out.Members, member.Name)
	}

	if out.Discovers && members != nil {
		out.Missing = talos.UnknownMachines(c.Nodes, members)
	}

	return out, nil
}

// write prints the report as text.
func (r *networkReport) write(w io.Writer, now time.Time) {
	tw := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)

	fmt.Fprintf(tw, "HOSTNAME\t%s\t%s\n", output.OrDash(r.Hostname), output.OrDash(r.HostnameLayer))
	fmt.Fprintf(tw, "RESOLVERS\t%s\t%s\n", output.OrDash(strings.Join(r.Resolvers, ", ")), output.OrDash(r.ResolversLayer))

	if len(r.SearchDomains) > 0 {
		fmt.Fprintf(tw, "SEARCH DOMAINS\t%s\t\n", strings.Join(r.SearchDomains, ", "))
	}

	if len(r.FailingResolvers) > 0 {
		fmt.Fprintf(tw, "FAILING RESOLVERS\t%s\t\n", strings.Join(r.FailingResolvers, ", "))
	}

	fmt.Fprintf(tw, "READY\t%s\t\n", r.ready())
	fmt.Fprintf(tw, "MEMBERS\t%s\t\n", r.members())
	_ = tw.Flush() // the underlying writer reports its own errors

	r.writeLinks(w)
	r.writePeers(w, now)
}

func (r *networkReport) ready() string {
	if r.Ready == nil {
		return "unknown"
	}

	lacks := r.Ready.Lacks()
	if len(lacks) == 0 {
		return "yes"
	}

	return "no: " + strings.Join(lacks, ", ")
}

func (r *networkReport) members() string {
	if !r.Discovers {
		return "discovery is off"
	}

	out := strconv.Itoa(len(r.Members))
	if len(r.Missing) > 0 {
		out += ", without " + strings.Join(r.Missing, ", ")
	}

	return out
}

func (r *networkReport) writeLinks(w io.Writer) {
	tw := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(tw, "\nLINK\tALIAS\tKIND\tSTATE\tCARRIER\tSPEED\tMTU\tMAC")

	for _, l := range r.Links {
		carrier, speed := "no", "-"
		if l.Carrier {
			carrier = "yes"
		}

		if l.SpeedMbit > 0 {
			speed = fmt.Sprintf("%d Mbit/s", l.SpeedMbit)
		}

		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%s\t%d\t%s\n", l.Name, output.OrDash(l.Alias), l.Kind, l.State, carrier, speed,
			l.MTU, output.OrDash(l.MAC))
	}

	for _, name := range r.ConfiguredLinks {
		if _, ok := r.FindLink(name); !ok {
			fmt.Fprintf(tw, "%s\t-\t-\tmissing\t-\t-\t-\t-\n", name)
		}
	}

	fmt.Fprintln(tw, "\nADDRESS\tLINK\tLAYER")

	for _, a := range r.Addresses {
		fmt.Fprintf(tw, "%s\t%s\t%s\n", a.Address, a.Link, output.OrDash(a.Layer))
	}

	fmt.Fprintln(tw, "\nROUTE\tGATEWAY\tLINK\tTABLE\tMETRIC\tPROTOCOL\tLAYER")

	for _, route := range r.Routes {
		destination := route.Destination
		if destination == "" {
			destination = "default"
		}

		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%d\t%s\t%s\n", destination, output.OrDash(route.Gateway),
			output.OrDash(route.Link), route.Table, route.Metric, output.OrDash(route.Protocol), output.OrDash(route.Layer))
	}

	_ = tw.Flush() // the underlying writer reports its own errors
}

func (r *networkReport) writePeers(w io.Writer, now time.Time) {
	if len(r.Peers) == 0 {
		return
	}

	tw := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(tw, "\nKUBESPAN PEER\tSTATE\tENDPOINT\tLAST HANDSHAKE")

	for _, p := range r.Peers {
		last := "never"
		if p.LastHandshake != nil {
			last = duration.HumanDuration(max(now.Sub(*p.LastHandshake), 0)) + " ago"
		}

		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\n", output.OrDash(p.Name), p.State, output.OrDash(p.Endpoint), last)
	}

	_ = tw.Flush() // the underlying writer reports its own errors
}
