package upgradebench

import (
	"sync"
	"time"

	"github.com/talos-operator/talos-operator/lab"
	"github.com/talos-operator/talos-operator/lab/node"
)

// sampleInterval is how often it is noted what each node does. What a node does takes seconds.
const sampleInterval = 40 * time.Millisecond

// pulls are the calls during which a node pulls an image, by the ends of their names.
var pulls = []string{"Pull", "ImagePull"}

// work is what a node does by itself.
type work int

const (
	// idle is nothing.
	idle work = iota
	// pulling an image, beside which a node serves as ever.
	pulling
	// working is to install an image, to be off, to boot, reboot or upgrade, or to wait for a service, a static pod or
	// its Node object to become ready.
	working
)

// workOf returns what a node does.
func workOf(n *node.Node) work {
	if s := n.Status(); !s.Powered || s.Stage != "running" || !s.Ready || n.Faults().Open("Upgrade") > 0 {
		return working
	}

	for _, method := range pulls {
		if n.Faults().Open(method) > 0 {
			return pulling
		}
	}

	return idle
}

// span is a time in which a machine did one thing.
type span struct {
	from, to time.Time
	work     work
}

// machine is what a machine did.
type machine struct {
	controlPlane bool
	busy         []span
}

// busyWatch notes when machines are busy.
type busyWatch struct {
	done chan struct{}
	work sync.WaitGroup

	mu       sync.Mutex
	machines map[string]*watched
}

// watched is a machine of a cluster under way.
type watched struct {
	machine

	node    *node.Node
	cluster string
	work    work
	since   time.Time // of the work
}

// observeBusy begins to watch the machines of a lab, which are in clusters already.
func observeBusy(fleet *lab.Lab) *busyWatch {
	w := &busyWatch{done: make(chan struct{}), machines: map[string]*watched{}}

	for _, name := range fleet.Names() {
		n := fleet.Node(name)
		s := n.Status()
		w.machines[name] = &watched{
			machine: machine{controlPlane: s.MachineType == "controlplane"}, node: n, cluster: s.ClusterName,
		}
	}

	w.work.Go(w.run)

	return w
}

func (w *busyWatch) run() {
	tick := time.NewTicker(sampleInterval)
	defer tick.Stop()

	for {
		w.sample()

		select {
		case <-w.done:
			return
		case <-tick.C:
		}
	}
}

func (w *busyWatch) sample() {
	w.mu.Lock()
	defer w.mu.Unlock()

	for _, m := range w.machines {
		if now, does := time.Now(), workOf(m.node); does != m.work {
			m.end(now)
			m.work, m.since = does, now
		}
	}
}

// end adds what a machine has done since it began to do it.
func (m *watched) end(now time.Time) {
	if m.work != idle {
		m.busy = append(m.busy, span{m.since, now, m.work})
	}
}

// busyNow is how many machines are busy.
func (w *busyWatch) busyNow() int {
	w.mu.Lock()
	defer w.mu.Unlock()

	n := 0

	for _, m := range w.machines {
		if m.work != idle {
			n++
		}
	}

	return n
}

// stop ends the watch and returns the machines of each cluster.
func (w *busyWatch) stop() map[string][]machine {
	close(w.done)
	w.work.Wait()

	out := map[string][]machine{}

	for _, m := range w.machines {
		m.end(time.Now())
		out[m.cluster] = append(out[m.cluster], m.machine)
	}

	return out
}
