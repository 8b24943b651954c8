package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/talos-operator/talos-operator/lab"
	"github.com/talos-operator/talos-operator/lab/cosi"
	"github.com/talos-operator/talos-operator/lab/node"
	"github.com/talos-operator/talos-operator/lab/node/api"
)

// stopTimeout is how long a machine may take to shut down before its power is cut.
const stopTimeout = 30 * time.Second

// Server serves the control socket of one lab.
type Server struct {
	lab  *lab.Lab
	info func() Info
	down func()
	http *http.Server
	path string
}

// errBadRequest marks what the caller did wrong.
var errBadRequest = errors.New("bad request")

// Serve opens the socket. Info is asked for the lab's description, down is called when the lab is asked to stop.
func Serve(dir string, l *lab.Lab, info func() Info, down func()) (*Server, error) {
	path, err := Socket(dir)
	if err != nil {
		return nil, err
	}

	// The lab holds a lock on its directory: a socket that is there already is left over from one that died.
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("removing an old control socket: %w", err)
	}

	var lc net.ListenConfig

	listener, err := lc.Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, fmt.Errorf("opening the control socket: %w", err)
	}

	if err := os.Chmod(path, 0o600); err != nil {
		return nil, fmt.Errorf("opening the control socket: %w", err)
	}

	s := &Server{lab: l, info: info, down: down, path: path}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/info", answer(func(context.Context, struct{}) (Info, error) { return info(), nil }))
	mux.HandleFunc("GET /v1/nodes", answer(s.nodes))
	mux.HandleFunc("POST /v1/boot", answer(s.boot))
	mux.HandleFunc("POST /v1/action", answer(s.act))
	mux.HandleFunc("POST /v1/down", answer(func(context.Context, struct{}) (struct{}, error) {
		down()

		return struct{}{}, nil
	}))

	s.http = &http.Server{Handler: mux, ReadHeaderTimeout: stopTimeout}

	go func() { _ = s.http.Serve(listener) }()

	return s, nil
}

// Close ends requests under way after a moment, and removes the socket.
func (s *Server) Close(ctx context.Context) error {
	err := s.http.Shutdown(ctx)
	_ = os.Remove(s.path)

	if err != nil {
		return fmt.Errorf("closing the control socket: %w", err)
	}

	return nil
}

// answer makes a handler of a function from request to answer.
func answer[In, Out any](fn func(context.Context, In) (Out, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var in In

		err := error(nil)
		if r.Method == http.MethodPost {
			if err = json.NewDecoder(r.Body).Decode(&in); err != nil {
				err = fmt.Errorf("%w: %w", errBadRequest, err)
			}
		}

		var out Out
		if err == nil {
			out, err = fn(r.Context(), in)
		}

		w.Header().Set("Content-Type", "application/json")

		if err != nil {
			w.WriteHeader(statusOf(err))

			_ = json.NewEncoder(w).Encode(failure{Error: err.Error()})

			return
		}

		_ = json.NewEncoder(w).Encode(out)
	}
}

// failure is the response to a refused request.
type failure struct {
	Error string `json:"error"`
}

func statusOf(err error) int {
	switch {
	case errors.Is(err, lab.ErrNotFound):
		return http.StatusNotFound
	case errors.Is(err, errBadRequest):
		return http.StatusBadRequest
	default:
		return http.StatusInternalServerError
	}
}

func (s *Server) nodes(context.Context, struct{}) ([]Node, error) {
	return s.describe(s.lab.Names()), nil
}

func (s *Server) describe(names []string) []Node {
	nodes := make([]Node, 0, len(names))

	for _, name := range names {
		if n := s.lab.Node(name); n != nil {
			nodes = append(nodes, Describe(name, n))
		}
	}

	return nodes
}

// Describe tells everything about a machine.
func Describe(name string, n *node.Node) Node {
	st := n.Status()
	d := Node{
		Name: name, Address: st.Address, Powered: st.Powered, Frozen: st.Frozen, Partitioned: st.Partitioned,
		DiskFull: st.DiskFull, SecureBoot: st.SecureBoot,
		Stage: st.Stage, Ready: st.Ready, Unmet: st.Unmet, BootID: st.BootID, Installed: st.Installed,
		TalosVersion: st.TalosVersion, Hostname: st.Hostname, MachineType: st.MachineType, ClusterID: st.ClusterID,
		ClusterName: st.ClusterName, KubernetesVersion: st.KubernetesVersion, EtcdMember: st.EtcdMember,
		MaintenanceFingerprint: st.MaintenanceFingerprint,
		Calls:                  n.Faults().Calls(""), MutatingCalls: n.Faults().MutatingCalls(),
	}

	for _, t := range n.Timings() {
		d.Timings = append(d.Timings, Timing{
			Phase: t.Phase, Start: t.Start.Format(time.RFC3339Nano), Seconds: t.Duration.Seconds(),
		})
	}

	return d
}

func (s *Server) boot(ctx context.Context, b Boot) (Node, error) {
	name := b.Name
	if name == "" {
		name = NextName(s.lab.Names())
	}

	opts := []lab.NodeOption{
		lab.WithSize(b.CPUs, b.MemoryMiB), lab.WithTalosVersion(b.TalosVersion), lab.WithSecureBoot(b.SecureBoot),
	}

	if b.Address != "" {
		opts = append(opts, lab.WithAddress(b.Address))
	}

	var disks []node.Disk

	for i, size := range b.DiskGiB {
		if size <= 0 {
			return Node{}, fmt.Errorf("%w: a disk of %d GiB", errBadRequest, size)
		}

		disks = append(disks, node.Disk{
			Name: "sd" + string(rune('a'+i%26)), Size: uint64(size) * node.GiB, Model: "LAB DISK", Transport: "sata",
		})
	}

	if len(disks) > 0 {
		opts = append(opts, lab.WithDisks(disks...))
	}

	n, err := s.lab.Boot(ctx, name, opts...)
	if err != nil {
		return Node{}, err
	}

	return Describe(name, n), nil
}

// NextName returns the first name for a machine without a Machine that is free: node-1, node-2 and so on.
func NextName(taken []string) string {
	for i := 1; ; i++ {
		if name := fmt.Sprintf("node-%d", i); !slices.Contains(taken, name) {
			return name
		}
	}
}

func (s *Server) act(ctx context.Context, a Action) ([]Node, error) {
	if len(a.Names) == 0 {
		return nil, fmt.Errorf("%w: no machine is named", errBadRequest)
	}

	var names []string

	for _, given := range a.Names {
		name, err := s.resolve(given)
		if err != nil {
			return nil, err
		}

		names = append(names, name)
	}

	for _, name := range names {
		if err := s.actOn(ctx, name, a); err != nil {
			return nil, err
		}
	}

	return s.describe(names), nil
}

// resolve finds the machine that a person means.
func (s *Server) resolve(given string) (string, error) {
	var matches []string

	for _, name := range s.lab.Names() {
		n := s.lab.Node(name)
		if name == given || n != nil && n.Address() == given {
			return name, nil
		}

		if strings.HasSuffix(name, "/"+given) {
			matches = append(matches, name)
		}
	}

	switch len(matches) {
	case 0:
		return "", fmt.Errorf("%w: %s", lab.ErrNotFound, given)
	case 1:
		return matches[0], nil
	default:
		return "", fmt.Errorf("%w: %s could be %s", errBadRequest, given, strings.Join(matches, " or "))
	}
}

// actOn carries out a request on one machine.
func (s *Server) actOn(ctx context.Context, name string, a Action) error {
	n := s.lab.Node(name)
	if n == nil {
		return fmt.Errorf("%w: %s", lab.ErrNotFound, name)
	}

	switch a.Action {
	case ActionFreeze, ActionThaw:
		n.Freeze(a.Action == ActionFreeze)
	case ActionPartition, ActionHeal:
		n.Partition(a.Action == ActionPartition)
	case ActionClear:
		n.Freeze(false)
		n.Partition(false)
		n.StallPulls(false)
		n.FillDisk(false)
		n.BreakNetwork(node.NetworkFaults{})
		n.Faults().Clear()
	case ActionStall:
		n.StallPulls(true)
	case ActionFill:
		n.FillDisk(true)
	case ActionSecure, ActionInsecure:
		return s.lab.SetSecureBoot(name, a.Action == ActionSecure)
	case ActionLinkDown, ActionLinkGone, ActionNoDNS, ActionSilentDNS, ActionNoTunnels, ActionNoMembers:
		return breakNetwork(n, a)
	case ActionSlow:
		return slow(n, a)
	case ActionFail:
		return fail(n, a)
	default:
		return s.power(ctx, name, a.Action)
	}

	return nil
}

// power does what has to do with the power of a machine.
func (s *Server) power(ctx context.Context, name, action string) error {
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()

	switch action {
	case ActionKill:
		return s.lab.Kill(name)
	case ActionStart:
		return s.lab.PowerOn(ctx, name)
	case ActionStop:
		return s.lab.PowerOff(ctx, name)
	case ActionRestart:
		if err := s.lab.Kill(name); err != nil {
			return err
		}

		return s.lab.PowerOn(ctx, name)
	case ActionWipe:
		if err := s.lab.Wipe(name); err != nil {
			return err
		}

		return s.lab.PowerOn(ctx, name)
	case ActionRemove:
		return s.lab.Remove(ctx, name)
	default:
		return fmt.Errorf("%w: unknown action %q", errBadRequest, action)
	}
}

// breakNetwork has a machine report a fault of its network.
func breakNetwork(n *node.Node, a Action) error {
	var faults node.NetworkFaults

	switch a.Action {
	case ActionLinkDown, ActionLinkGone:
		if a.Link == "" {
			return fmt.Errorf("%w: no link is named", errBadRequest)
		}

		fault := cosi.LinkDown
		if a.Action == ActionLinkGone {
			fault = cosi.LinkMissing
		}

		faults.Links = map[string]cosi.LinkFault{a.Link: fault}
	case ActionNoDNS:
		faults.NoResolvers = true
	case ActionSilentDNS:
		faults.SilentResolvers = true
	case ActionNoTunnels:
		faults.NoTunnels = true
	case ActionNoMembers:
		faults.NoMembers = true
	}

	n.BreakNetwork(faults)

	return nil
}

func slow(n *node.Node, a Action) error {
	delay, err := time.ParseDuration(a.Delay)
	if err != nil || delay <= 0 {
		return fmt.Errorf("%w: the delay %q is no duration such as 3s", errBadRequest, a.Delay)
	}

	if err := checkMethod(a.Method); err != nil {
		return err
	}

	n.Faults().Slow(a.Method, delay)

	return nil
}

func fail(n *node.Node, a Action) error {
	code, ok := Code(a.Code)
	if !ok {
		return fmt.Errorf("%w: %q is no error code of gRPC, such as Unavailable", errBadRequest, a.Code)
	}

	if err := checkMethod(a.Method); err != nil {
		return err
	}

	n.Faults().Fail(a.Method, code, a.Nth, a.Count)

	return nil
}

// checkMethod refuses a method that no call has: the fault would never happen.
func checkMethod(method string) error {
	if method == "" || api.HasMethod(method) {
		return nil
	}

	return fmt.Errorf("%w: the machine API has no method %q; one is EtcdMemberList, and the completion of --method lists "+
		"all", errBadRequest, method)
}

// Codes are the error codes of gRPC.
func Codes() []codes.Code {
	var all []codes.Code
	for c := codes.Canceled; c <= codes.Unauthenticated; c++ {
		all = append(all, c)
	}

	return all
}

// Code finds an error code by its name.
func Code(name string) (codes.Code, bool) {
	for _, c := range Codes() {
		if strings.EqualFold(c.String(), strings.ReplaceAll(name, "_", "")) {
			return c, true
		}
	}

	return codes.OK, false
}
