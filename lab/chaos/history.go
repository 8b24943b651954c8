package chaos

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/lab"
	"github.com/talos-operator/talos-operator/lab/apid"
	"github.com/talos-operator/talos-operator/lab/node"
	"github.com/talos-operator/talos-operator/lab/node/quorum"
	"github.com/talos-operator/talos-operator/lab/stack"
)

// clusterName is what the cluster of every history is called; each has a namespace of its own.
const clusterName = "chaos"

// lists are what a person wants of the cluster.
type lists struct {
	Members, Spares, Workers []string
}

func (l lists) clone() lists {
	return lists{slices.Clone(l.Members), slices.Clone(l.Spares), slices.Clone(l.Workers)}
}

// names of all machines that are listed to run.
func (l lists) names() []string { return slices.Concat(l.Members, l.Workers) }

// history is the life of one cluster.
type history struct {
	ctx    context.Context //nolint:containedctx // it lasts as long as the history
	script Script
	stack  *stack.Stack
	client client.Client
	oracle *Oracle
	opts   *Options
	ns     string
	slot   int

	operators []*operator
	machines  []string // all of the history
	want      lists
	addresses map[string]string // where machines belong while they are elsewhere; nil while they are not
	// surrendered may be taken out of the cluster by the operator itself: they were to be replaced.
	surrendered map[string]bool
	absent      bool // the objects are deleted at the moment
	copies      []*copied
	patches     int
	label       int
	approval    v1alpha1.Approval
	release     int  // which of the releases the spec names
	closed      bool // the maintenance window
	remedy      bool
	heals       map[int][]heal
	began       time.Time

	mu     sync.Mutex
	log    io.Writer
	told   []string
	faults map[string]int
}

type heal struct {
	what string
	undo func()
}

// result is what came of a history.
type result struct {
	Faults     map[string]int
	Violations []Violation
	Told       []string
	Held       string
	Took       time.Duration
}

func (h *history) name(i int) string { return fmt.Sprintf("%s/m%d", h.ns, i) }

// short is the name of a machine's TalosMachine.
func short(name string) string { return filepath.Base(name) }

func (h *history) node(name string) *node.Node { return h.stack.Lab.Node(name) }

// tell notes what happened.
func (h *history) tell(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()

	line := fmt.Sprintf("%6.1fs ", time.Since(h.began).Seconds()) + fmt.Sprintf(format, args...)
	h.told = append(h.told, line)

	// With a directory that is kept, every history can be read, also while it lasts.
	_, _ = fmt.Fprintln(h.log, line)
}

// run runs the history.
func (h *history) run() (result, error) {
	h.began, h.release = time.Now(), h.script.Release

	defer h.end()

	if err := h.create(); err != nil {
		return h.result(""), err
	}

	writing, stop := context.WithCancel(h.ctx)
	written := make(chan struct{})

	go func() {
		defer close(written)

		h.write(writing)
	}()

	if !h.script.Early {
		h.await(h.opts.Bound, func() string { return h.unsettled() })
	}

	for i, step := range h.script.Steps {
		if h.ctx.Err() != nil {
			break
		}

		h.step(i, step)
		h.heal(i)
		h.pause(step.Pause)
	}

	for i := range len(h.script.Steps) + longestFault + 1 {
		h.heal(i)
	}

	held := h.settle()

	stop()
	<-written

	if h.ctx.Err() == nil {
		h.oracle.Settled()
		h.delete()
	}

	return h.result(held), h.ctx.Err()
}

func (h *history) result(held string) result {
	h.mu.Lock()
	defer h.mu.Unlock()

	return result{
		Faults: h.faults, Violations: h.oracle.Violations(), Told: slices.Clone(h.told), Held: held,
		Took: time.Since(h.began),
	}
}

// create makes the machines, the operator and the objects.
func (h *history) create() error {
	if err := h.stack.Plane.InstallIn(h.ctx, h.ns); err != nil {
		return err
	}

	for i := range pool {
		name := h.name(i)

		n, err := h.stack.Lab.Boot(h.ctx, name, lab.WithTalosVersion(releases[h.release].talos))
		if err != nil {
			return err
		}

		h.machines = append(h.machines, name)
		h.oracle.Watch(short(name), n.EtcdDir(), Machine{
			Ready: func() bool { return n.Status().Ready }, Talos: func() string { return n.Status().TalosVersion },
			Config: n.LiveConfig,
		})
		n.Faults().Subscribe(func(c apid.Call) {
			if c.Mutating {
				h.note(short(name), c)
			}

			h.oracle.Called(n.EtcdDir(), c)
		})
	}

	if err := h.startOperator(0); err != nil {
		return err
	}

	s := h.script
	h.want.Members = slices.Clone(h.machines[:s.Members])
	h.want.Workers = slices.Clone(h.machines[pool-s.Workers:])

	h.apply()

	return nil
}

// note tells of a call that asks a machine for a change.
func (h *history) note(name string, c apid.Call) {
	switch method := filepath.Base(c.Method); method {
	case "Bootstrap", "Reboot", "Reset", "EtcdLeaveCluster", "EtcdRemoveMemberByID", "ApplyConfiguration", "Upgrade":
		h.tell("operator: %s of %s", method, name)
	}
}

// write writes to etcd whenever there is one.
func (h *history) write(ctx context.Context) {
	const between = 250 * time.Millisecond

	tick := time.NewTicker(between)
	defer tick.Stop()

	for i := 0; ; i++ {
		for _, c := range h.etcds() {
			if value := fmt.Sprintf("%016x/%d", c.ID, i); h.stack.Lab.Registry().Etcd().Write(c.ID, value) {
				h.oracle.Acknowledged(c.ID, value)
			}
		}

		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// etcds are those with a member on a machine of this history.
func (h *history) etcds() []quorum.View {
	dirs := map[string]bool{}

	for _, name := range h.machines {
		if n := h.node(name); n != nil {
			dirs[n.EtcdDir()] = true
		}
	}

	return slices.DeleteFunc(h.stack.Lab.Registry().Etcd().Clusters(), func(c quorum.View) bool {
		return !slices.ContainsFunc(c.Members, func(m quorum.MemberView) bool { return dirs[m.Dir] })
	})
}

// step does one step, if it can be done now.
func (h *history) step(i int, step Step) {
	for _, k := range kinds {
		if k.name != step.Kind {
			continue
		}

		what, undo := k.do(h, step)
		if what == "" {
			return
		}

		h.mu.Lock()
		h.faults[k.name]++
		h.mu.Unlock()

		h.tell("%s: %s", k.name, what)

		if undo != nil {
			h.heals[i+step.Lasts] = append(h.heals[i+step.Lasts], heal{k.name + ": " + what, undo})
		}
	}
}

func (h *history) heal(i int) {
	for _, one := range h.heals[i] {
		h.tell("over: %s", one.what)
		one.undo()
	}

	delete(h.heals, i)
}

func (h *history) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()

	select {
	case <-h.ctx.Done():
	case <-timer.C:
	}
}

// pollInterval is the pause between two observations of the objects.
const pollInterval = 300 * time.Millisecond

// await waits until nothing is left that is wrong, and returns what is when the time is up.
func (h *history) await(bound time.Duration, wrong func() string) string {
	for limit := time.Now().Add(bound); ; h.pause(pollInterval) {
		what := wrong()
		if what == "" || h.ctx.Err() != nil || time.Now().After(limit) {
			return what
		}
	}
}

// end stops what the history started.
func (h *history) end() {
	for _, o := range h.operators {
		o.stop()
	}

	for _, name := range h.machines {
		if err := h.stack.Lab.Remove(context.WithoutCancel(h.ctx), name); err != nil {
			h.tell("%v", err)
		}
	}

	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: h.ns}}
	_ = h.client.Delete(context.WithoutCancel(h.ctx), ns) // nothing works in it any more
}
