package chaos

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/talos-operator/talos-operator/lab/management"
	"github.com/talos-operator/talos-operator/lab/stack"
)

// operator is one process of the operator that works in the namespace of a history.
type operator struct {
	opts    stack.ManagerOptions
	manager *stack.Manager // nil while it is stopped
}

const (
	// operatorNumber is the last number of the address of the first operator; each history has room for two.
	operatorNumber = 10
	perHistory     = 2
)

// clockFile is the variable with the file that says how wrong the clock of the operator is, where it is the one of
// hack/skewed.
const clockFile = "LAB_CLOCK_FILE"

func (h *history) clockPath() string { return filepath.Join(h.stack.Dir(), "operators", h.ns+".clock") }

// setClock makes the clocks of the operators wrong.
func (h *history) setClock(skew time.Duration) {
	if err := os.WriteFile(h.clockPath(), []byte(skew.String()), 0o600); err != nil {
		h.tell("%v", err)
	}
}

// startOperator starts the first or the second operator of the history, or starts it again.
func (h *history) startOperator(which int) error {
	for len(h.operators) <= which {
		cfg, err := h.stack.Plane.ConfigIn(h.ns)
		if err != nil {
			return err
		}

		number := len(h.operators)
		dir := filepath.Join(h.stack.Dir(), "operators")
		kubeconfig := filepath.Join(dir, fmt.Sprintf("%s-%d.kubeconfig", h.ns, number))

		if err := management.WriteKubeconfig(kubeconfig, cfg, h.ns); err != nil {
			return err
		}

		h.operators = append(h.operators, &operator{opts: stack.ManagerOptions{
			Binary: h.opts.Operator, Kubeconfig: kubeconfig,
			Address: h.stack.Lab.Reserved(byte(operatorNumber + h.slot*perHistory + number)).String(),
			Results: filepath.Join(dir, h.ns+"-results"),
			Log:     filepath.Join(dir, fmt.Sprintf("%s-%d.log", h.ns, number)),
			Args:    []string{"--namespaces=" + h.ns, "--leader-elect=false"},
			Env:     []string{clockFile + "=" + h.clockPath()},
		}})
	}

	return h.operators[which].start()
}

func (o *operator) start() error {
	if o.manager != nil {
		return nil
	}

	m, err := stack.StartManager(o.opts)
	if err != nil {
		return err
	}

	o.manager = m

	return nil
}

// stop ends the process as a crash does.
func (o *operator) stop() {
	if o.manager == nil {
		return
	}

	ctx, cancel := context.WithCancel(context.Background())
	cancel()

	_ = o.manager.Stop(ctx) // it is killed, and says so
	o.manager = nil
}
