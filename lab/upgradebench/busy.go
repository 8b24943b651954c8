package upgradebench

import (
	"sync"
	"time"

	"github.com/talos-operator/talos-operator/lab"
	"github.com/talos-operator/talos-operator/lab/node"
)

// sampleInterval is how often it is noted what each node does. What a node does takes seconds.
const sampleInterval = 40 * time.Millisecond

// installs are the calls during which a node works, by the ends of their names.
var installs = []string{"Pull", "ImagePull", "Upgrade"}

// isBusy says that a node does something by itself: it pulls or installs an image, is off, boots, reboots or upgrades,
// or waits for a service, a static pod or its Node object to become ready.
func isBusy(n *node.Node) bool {
	if s := n.Status(); !s.Powered || s.Stage != "running" || !s.Ready {
		return true
	}

	for _, method := range installs {
		if n.Faults().Open(method) > 0 {
			return true
		}
	}

	return false
}

// span is a time in which a machine was busy.
type span struct{ from, to time.Time }

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
	since   time.Time // zero while it is not busy
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
		now := time.Now()

		switch busy := isBusy(m.node); {
		case busy && m.since.IsZero():
			m.since = now
		case !busy && !m.since.IsZero():
			m.busy = append(m.busy, span{m.since, now})
			m.since = time.Time{}
		}
	}
}

// busyNow is how many machines are busy.
func (w *busyWatch) busyNow() int {
	w.mu.Lock()
	defer w.mu.Unlock()

	n := 0

	for _, m := range w.machines {
		if !m.since.IsZero() {
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
		if !m.since.IsZero() {
			m.busy = append(m.busy, span{m.since, time.Now()})
		}

		out[m.cluster] = append(out[m.cluster], m.machine)
	}

	return out
}
