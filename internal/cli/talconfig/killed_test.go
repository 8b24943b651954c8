package talconfig_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/talos-operator/talos-operator/lab/apid"
	"github.com/talos-operator/talos-operator/lab/node"
	"github.com/talos-operator/talos-operator/test/operator"
	"github.com/talos-operator/talos-operator/test/wait"
)

// kills is how often TestKilled kills the command.
const kills = 6

// killer kills a process at a call that a node receives.
type killer struct {
	mu sync.Mutex
	// left is how many calls go by before that. Of those that change nothing none counts if onlyMutating.
	left         int
	onlyMutating bool
	kill         func() error
	done         bool
}

// newKiller kills at the first change, or at a random call. Half of these are between a node that gets a config, or the
// call to bootstrap etcd, and its answer.
func newKiller(isFirst bool, random *rand.Rand) *killer {
	switch {
	case isFirst:
		return &killer{onlyMutating: true}
	case random.IntN(2) == 0:
		return &killer{onlyMutating: true, left: random.IntN(2)}
	}

	return &killer{left: random.IntN(300)}
}

func (k *killer) see(c apid.Call) {
	k.mu.Lock()
	defer k.mu.Unlock()

	if k.onlyMutating && !c.Mutating {
		return
	}

	if k.left--; k.left < 0 && !k.done {
		k.done = k.kill() == nil
	}
}

// attempt runs the program, which a killer may kill. It returns whether that was so, and the error of a program that has
// ended by itself.
func (f *fresh) attempt(program string, words []string, k *killer) (bool, error) {
	f.t.Helper()

	var out bytes.Buffer

	cmd := exec.CommandContext(f.t.Context(), program, append([]string{"talconfig"}, words...)...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = f.dir, &out, &out

	if err := cmd.Start(); err != nil {
		f.t.Fatal(err)
	}

	k.kill = cmd.Process.Kill

	for _, n := range f.nodes {
		defer n.Faults().Subscribe(k.see)()
	}

	err := cmd.Wait()

	k.mu.Lock()
	defer k.mu.Unlock()

	switch {
	case err == nil:
		return false, nil
	case k.done:
		return true, nil
	}

	return false, fmt.Errorf("%w: %s", err, out.String())
}

// TestKilled: a fleet of three control planes and two workers gets from maintenance mode to a healthy cluster, with a
// command that is killed at random moments and run again. etcd is bootstrapped once, on one node.
func TestKilled(t *testing.T) {
	t.Parallel()

	program, remove, err := operator.Binary()
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(remove)
	t.Logf("lab seed %d", node.Seed())

	f := newFresh(t, "w-1", "w-2")
	random := rand.New(rand.NewPCG(node.Seed(), 0))
	words := []string{
		"apply", "--yes", "--first-config", "--bootstrap", "--new-cluster", "--wipe", "w-1,w-2", "--timeout", "2m",
	}
	left := kills

	// A node that installs itself or reboots does not respond: the command says so, and is run again.
	wait.For(t, "the fleet runs", func(context.Context) error {
		k := newKiller(left == kills, random)
		if left == 0 {
			k.left = math.MaxInt
		}

		killed, err := f.attempt(program, words, k)
		if killed {
			left--

			return errors.New("the command was killed")
		}

		return err
	})

	if left == kills {
		t.Error("the command was never killed")
	}

	t.Logf("killed %d times", kills-left)
	f.oneCluster()

	if out, _, err := f.run(with(applyFirst, "--bootstrap", "--dry-run")...); err != nil ||
		!strings.Contains(out, "etcd is already bootstrapped: nothing to do.") || !strings.Contains(out, "0 nodes would change") {
		t.Errorf("in the end: %v, %s", err, out)
	}
}

// oneCluster checks that all machines have their config, and that one of them was bootstrapped, once.
func (f *fresh) oneCluster() {
	f.t.Helper()

	if got := f.holds("one"); got != len(f.nodes) {
		f.t.Errorf("%d machines have their config", got)
	}

	asked, accepted := f.called(), 0
	for _, n := range f.nodes {
		accepted += n.Faults().Answers("Bootstrap", codes.OK)
	}

	// No answer came through if the command was killed between the call and its answer.
	others := slices.DeleteFunc(slices.Clone(asked), func(n int) bool { return n == 0 })
	if len(others) != 1 || accepted > 1 {
		f.t.Errorf("the control planes were asked %v times for a bootstrap, and %d calls were accepted", asked, accepted)
	}

	if !strings.Contains(f.record(), "establishedAt") {
		f.t.Errorf("the record: %s", f.record())
	}
}
