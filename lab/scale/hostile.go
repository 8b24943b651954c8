package scale

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/talos-operator/talos-operator/lab/bench"
)

const (
	// hang is longer than any call waits for its answer.
	hang = time.Hour
	// flap is how long what a flapping machine tells of is gone, or there.
	flap = 250 * time.Millisecond
	// listed is how many nodes a line for a person names.
	listed = 5
)

// besieged measures how the other machines are served while many are gone without a word and some are hostile: of
// these a third each hangs at each call, answers without an end, and changes without an end. The operator begins anew
// among them, when it knows nothing of any machine.
func (r *run) besieged(ctx context.Context) error {
	gone, hostile := r.besiegers()
	if len(gone)+len(hostile) == 0 {
		return nil
	}

	r.Logf("taking %d nodes off the network, turning %d hostile, and restarting the operator", len(gone), len(hostile))

	// The operator that ends now may still notice some of them; they do not change again for the one that begins.
	began, restarts := time.Now(), r.Stack.Manager.Restarts()

	r.besiege(gone, hostile)

	if err := r.Stack.Manager.Restart(ctx); err != nil {
		return err
	}

	unnoticed := func() []string {
		return slices.DeleteFunc(slices.Clone(gone), func(name string) bool {
			_, lost := r.Watch.LostAt(bench.Key(name), began)

			return lost
		})
	}

	err := r.Await(ctx, "the nodes that are gone are noticed", func() (bool, error) {
		return r.Stack.Manager.Restarts() > restarts && len(unnoticed()) == 0, nil
	}, func() string {
		left := unnoticed()

		return fmt.Sprintf("%d of %d are not noticed yet: %s", len(left), len(gone),
			strings.Join(left[:min(len(left), listed)], ", "))
	})
	if err != nil {
		return err
	}

	noticed := time.Since(began)

	r.Logf("they are noticed after %.1f s", noticed.Seconds())

	spared := map[string]bool{}
	for _, name := range slices.Concat(gone, hostile) {
		spared[name] = true
	}

	victims := r.victims(spared)

	r.Logf("cutting the power of %d of the other nodes at once", len(victims))

	took, err := r.cut(ctx, victims)
	if err != nil {
		return err
	}

	recovered, err := r.relieve(ctx, gone, hostile, victims)
	if err != nil {
		return err
	}

	return r.Emit(
		bench.Metric{Name: "hostile_gone_noticed_s", Value: noticed.Seconds(), Unit: "s"},
		bench.Metric{Name: "hostile_node_down_detect_p50_s", Value: bench.Percentile(took, 50), Unit: "s"},
		bench.Metric{Name: "hostile_node_down_detect_p99_s", Value: bench.Percentile(took, 99), Unit: "s"},
		bench.Metric{Name: "hostile_recovered_s", Value: recovered.Seconds(), Unit: "s"},
	)
}

// besiegers are the nodes that go away, whole clusters of them, and those of the clusters after them that turn hostile.
func (r *run) besiegers() (gone, hostile []string) {
	all := slices.Concat(r.byCluster()...)
	first := int(r.opts.Gone * float64(len(all)))
	last := min(first+int(r.opts.Hostile*float64(len(all))), len(all))

	return all[:first], all[first:last]
}

func (r *run) besiege(gone, hostile []string) {
	for _, name := range gone {
		r.Stack.Lab.Node(name).Partition(true)
	}

	for i, name := range hostile {
		faults := r.Stack.Lab.Node(name).Faults()

		switch i % 3 {
		case 0:
			faults.Slow("", hang)
		case 1:
			faults.Flood("")
		case 2:
			faults.Flap(flap)
		}
	}
}

// relieve ends all that, and returns how long it takes until everything is ready again.
func (r *run) relieve(ctx context.Context, gone, hostile, victims []string) (time.Duration, error) {
	r.Logf("ending all that")

	began := time.Now()

	for _, name := range gone {
		r.Stack.Lab.Node(name).Partition(false)
	}

	for _, name := range hostile {
		r.Stack.Lab.Node(name).Faults().Clear()
	}

	for _, name := range victims {
		if err := r.Stack.Lab.PowerOn(ctx, name); err != nil {
			return 0, err
		}
	}

	if err := r.allReady(ctx); err != nil {
		return 0, err
	}

	took := time.Since(began)

	r.Logf("all clusters are ready again after %.1f s", took.Seconds())

	return took, r.Settle(ctx)
}
