package upgrade

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/blang/semver/v4"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/compatibility"

	"github.com/talos-operator/talos-operator/internal/validation"
)

// hop is one version on the way of a component.
type hop struct {
	to     semver.Version
	reason string
}

// Plan returns the steps from what runs to a target: minor by minor, through the releases that have to run in between,
// and with the two components interleaved so that each Talos supports the Kubernetes on it. via names releases that are
// passed through; otherwise the newest known ones are taken. A target that runs already has no steps.
func Plan(c Cluster, t Target, via ...string) ([]Step, error) {
	p := planner{cluster: c, via: map[Component]map[uint64]semver.Version{Talos: {}, Kubernetes: {}}}

	if err := p.read(t, via); err != nil {
		return nil, err
	}

	steps, err := p.plan()
	if refusal := (*Refusal)(nil); errors.As(err, &refusal) {
		refusal.Nearest = p.nearest()
	}

	return steps, err
}

// plan returns the steps to the target.
func (p *planner) plan() ([]Step, error) {
	talos, err := p.hops(Talos, p.runs[Talos], p.target[Talos])
	if err != nil {
		return nil, err
	}

	kubernetes, err := p.hops(Kubernetes, p.runs[Kubernetes], p.target[Kubernetes])
	if err != nil {
		return nil, err
	}

	return p.interleave(talos, append(p.catchUp(), kubernetes...))
}

// nearest returns the closest target that can be reached, by the number of steps; empty if there is none.
func (p *planner) nearest() Target {
	var (
		best  Target
		taken int
	)

	stops := map[Component][]semver.Version{}

	for _, component := range []Component{Talos, Kubernetes} {
		// What is found before a minor without a known release is not in vain.
		hops, _ := p.hops(component, p.runs[component], p.target[component])
		stops[component] = append(stops[component], p.newest(component))

		for _, h := range hops {
			if h.to.GT(p.newest(component)) {
				stops[component] = append(stops[component], h.to)
			}
		}
	}

	for i, talos := range stops[Talos] {
		for j, kubernetes := range stops[Kubernetes] {
			closer := *p
			closer.target = map[Component]semver.Version{Talos: talos, Kubernetes: kubernetes}

			if _, err := closer.plan(); err == nil && i+j > taken {
				best, taken = Target{Talos: "v" + talos.String(), Kubernetes: "v" + kubernetes.String()}, i+j
			}
		}
	}

	return best
}

// Oldest returns the oldest versions that run. Those that are not known are left out.
func Oldest(c Cluster) Target {
	var out Target

	oldest := map[Component]semver.Version{}
	note := func(component Component, text string, into *string) {
		v, err := parse(component, text)
		if had, ok := oldest[component]; err == nil && (!ok || v.LT(had)) {
			oldest[component], *into = v, text
		}
	}

	note(Kubernetes, c.Kubernetes, &out.Kubernetes)

	for _, n := range c.Nodes {
		note(Talos, n.Talos, &out.Talos)
		note(Kubernetes, n.Kubelet, &out.Kubernetes)
	}

	return out
}

type planner struct {
	cluster      Cluster
	runs, target map[Component]semver.Version
	via          map[Component]map[uint64]semver.Version
}

// read parses the versions, and refuses a way back.
func (p *planner) read(t Target, via []string) error {
	p.runs, p.target = map[Component]semver.Version{}, map[Component]semver.Version{}

	if len(p.cluster.Nodes) == 0 {
		return &Refusal{Problem: "no machine is known"}
	}

	for i, n := range p.cluster.Nodes {
		v, err := parse(Talos, n.Talos)
		if err != nil {
			return &Refusal{Problem: fmt.Sprintf("machine %s: %s", n.Name, err)}
		}

		if i == 0 || v.LT(p.runs[Talos]) {
			p.runs[Talos] = v
		}

		if _, err := parse(Kubernetes, n.Kubelet); err != nil {
			return &Refusal{Problem: fmt.Sprintf("machine %s: %s", n.Name, err)}
		}
	}

	v, err := parse(Kubernetes, p.cluster.oldestComponent())
	if err != nil {
		return &Refusal{Problem: "the API servers: " + err.Error()}
	}

	p.runs[Kubernetes] = v

	for component, text := range map[Component]string{Talos: t.Talos, Kubernetes: t.Kubernetes} {
		p.target[component] = p.newest(component)
		if text == "" {
			continue
		}

		if p.target[component], err = parse(component, text); err != nil {
			return &Refusal{Problem: "the target: " + err.Error()}
		}
	}

	return cmp.Or(p.refuseOlder(), p.readVia(via))
}

// newest returns the newest version of a component that runs.
func (p *planner) newest(component Component) semver.Version {
	out := p.runs[component]

	for _, n := range p.cluster.Nodes {
		if v, _ := parse(component, n.version(component)); v.GT(out) { // read has refused what is no version
			out = v
		}
	}

	return out
}

func (n Node) version(component Component) string {
	if component == Talos {
		return n.Talos
	}

	return n.Kubelet
}

// refuseOlder refuses a target that is older than what runs on any machine.
func (p *planner) refuseOlder() error {
	for _, component := range []Component{Talos, Kubernetes} {
		if newest := p.newest(component); p.target[component].LT(newest) {
			return &Refusal{Problem: fmt.Sprintf("%s v%s is older than v%s, which runs already: there is no way back by an "+
				"upgrade", component, p.target[component], newest)}
		}
	}

	return nil
}

// readVia sorts the releases on the way by their component: the minors of Talos and of Kubernetes do not overlap.
func (p *planner) readVia(via []string) error {
	for _, text := range via {
		v, err := parse("", text)
		if err != nil {
			return &Refusal{Problem: "a release on the way: " + err.Error()}
		}

		component := Kubernetes
		if v.Minor <= p.target[Talos].Minor {
			component = Talos
		}

		if from, to := p.runs[component], p.target[component]; v.LTE(from) || v.GTE(to) {
			return &Refusal{Problem: fmt.Sprintf("v%s is not on the way from %s v%s to v%s", v, component, from, to)}
		}

		if other, twice := p.via[component][v.Minor]; twice {
			return &Refusal{Problem: fmt.Sprintf("v%s and v%s are of the same minor: name one of them", other, v)}
		}

		p.via[component][v.Minor] = v
	}

	return nil
}

// parse reads a version such as v1.13.9.
func parse(component Component, text string) (semver.Version, error) {
	v, err := semver.Parse(strings.TrimPrefix(text, "v"))
	if err == nil && strings.HasPrefix(text, "v") && v.Major == 1 {
		return v, nil
	}

	if text == "" {
		return v, fmt.Errorf("its version of %s is not known yet", component)
	}

	return v, fmt.Errorf("%q is not a version: write it like v1.13.9", text)
}

// hops returns the versions that one component goes through.
func (p *planner) hops(component Component, from, to semver.Version) ([]hop, error) {
	var out []hop

	for minor := from.Minor; minor < to.Minor; minor++ {
		next, reason, err := p.inMinor(component, minor, from)
		if err != nil {
			return out, err
		}

		if next != nil {
			out = append(out, hop{*next, reason})
		}
	}

	// One of the minor of the target is passed through only if it is named.
	if named, ok := p.via[component][to.Minor]; ok {
		out = append(out, hop{named, "named"})
	}

	if to.GT(from) {
		out = append(out, hop{to, "the target"})
	}

	return out, nil
}

// catchUp returns the hop that brings kubelets to the version of the API servers, which are upgraded before them: an
// upgrade that was interrupted has left them behind.
func (p *planner) catchUp() []hop {
	api, oldest := p.runs[Kubernetes], p.oldestKubelet()
	if oldest.LT(api) && (oldest.Minor < api.Minor || p.target[Kubernetes].EQ(api)) {
		return []hop{{api, "kubelets are older than the API servers"}}
	}

	return nil
}

func (p *planner) oldestKubelet() semver.Version {
	oldest := p.newest(Kubernetes)

	for _, n := range p.cluster.Nodes {
		if v, _ := parse(Kubernetes, n.Kubelet); v.LT(oldest) {
			oldest = v
		}
	}

	return oldest
}

// inMinor returns the release of a minor that runs before the minor is left; nil if what runs will do.
func (p *planner) inMinor(component Component, minor uint64, from semver.Version) (*semver.Version, string, error) {
	least, reason := semver.Version{Major: 1, Minor: minor}, "minor by minor"
	if w, ok := waypoints[component][minor]; ok {
		least, reason = w.least, w.reason
	}

	named, isNamed := p.via[component][minor]

	switch {
	case isNamed && named.LT(least):
		return nil, "", &Refusal{Problem: fmt.Sprintf("v%s cannot be the release on the way: %s", named, reason)}
	case isNamed:
		return &named, reason, nil
	case from.GTE(least):
		return nil, "", nil
	}

	text, known := latest[component][minor]
	if !known {
		return nil, "", &Refusal{Problem: fmt.Sprintf("no release of %s v1.%d is known to this operator: name the one to "+
			"go through", component, minor)}
	}

	v, err := parse(component, text)

	return &v, reason, err
}

// state are the versions that run at one point of a path.
type state struct {
	// talos and kubernetes are the oldest ones of machines and API servers, newest is the newest Talos, kubelet the oldest
	// kubelet.
	talos, kubernetes, newest, kubelet semver.Version
}

// mayTalos says what speaks against a Talos as the next step.
func (s state) mayTalos(to semver.Version) error {
	return cmp.Or(follows(s.talos, to), validation.Supports(to, s.kubernetes), validation.Supports(to, s.kubelet))
}

// mayKubernetes says what speaks against a Kubernetes as the next step.
func (s state) mayKubernetes(to semver.Version) error {
	return cmp.Or(validation.Supports(s.talos, to), validation.Supports(s.newest, to))
}

// interleave orders the hops of both components. Kubelets that lag behind come first. As long as Talos may move it does
// then, because a newer Talos supports newer versions of Kubernetes; it waits where it would no longer support the one
// that runs.
func (p *planner) interleave(talos, kubernetes []hop) ([]Step, error) {
	var steps []Step

	at := state{p.runs[Talos], p.runs[Kubernetes], p.newest(Talos), p.oldestKubelet()}

	for len(talos)+len(kubernetes) > 0 {
		lags := len(kubernetes) > 0 && kubernetes[0].to.EQ(p.runs[Kubernetes])
		mayKubernetes := len(kubernetes) > 0 && at.mayKubernetes(kubernetes[0].to) == nil
		kubeletsFirst := lags && mayKubernetes

		switch {
		case len(talos) > 0 && !kubeletsFirst && at.mayTalos(talos[0].to) == nil:
			to := talos[0].to
			steps = append(steps, p.step(Talos, at.talos, talos[0]))
			at.talos, talos = to, talos[1:]

			if to.GT(at.newest) {
				at.newest = to
			}
		case mayKubernetes:
			to := kubernetes[0].to

			from := at.kubernetes
			if lags {
				from = at.kubelet
			}

			steps = append(steps, p.step(Kubernetes, from, kubernetes[0]))
			at.kubernetes, at.kubelet, kubernetes = to, to, kubernetes[1:]
		default:
			return nil, stuck(at, talos, kubernetes)
		}
	}

	return steps, nil
}

// stuck says why no component can move any more.
func stuck(at state, talos, kubernetes []hop) error {
	var problems []string

	if len(talos) > 0 {
		problems = append(problems, fmt.Sprintf("Talos v%s cannot follow: %s", talos[0].to, at.mayTalos(talos[0].to)))
	}

	if len(kubernetes) > 0 {
		problems = append(problems, fmt.Sprintf("Kubernetes v%s cannot follow: %s", kubernetes[0].to,
			at.mayKubernetes(kubernetes[0].to)))
	}

	return &Refusal{Problem: strings.Join(problems, ", and ")}
}

// step describes one hop.
func (p *planner) step(component Component, from semver.Version, h hop) Step {
	out := Step{Component: component, From: "v" + from.String(), To: "v" + h.to.String(), Reason: h.reason}

	nodes := slices.Clone(p.cluster.Nodes)
	slices.SortFunc(nodes, func(a, b Node) int {
		if a.ControlPlane != b.ControlPlane {
			if a.ControlPlane {
				return -1
			}

			return 1
		}

		return strings.Compare(a.Name, b.Name)
	})

	for _, n := range nodes {
		if v, _ := parse(component, n.version(component)); v.LT(h.to) {
			out.Machines = append(out.Machines, n.Name)
		}
	}

	if component == Talos {
		out.Reboots = len(out.Machines)
	}

	return out
}

// follows reports whether a Talos may be installed over another one.
func follows(from, to semver.Version) error {
	f, err := compatibility.ParseTalosVersion(&machine.VersionInfo{Tag: from.String()})
	if err != nil {
		return err
	}

	t, err := compatibility.ParseTalosVersion(&machine.VersionInfo{Tag: to.String()})
	if err != nil {
		return err
	}

	return t.UpgradeableFrom(f)
}
