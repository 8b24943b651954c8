package node

import (
	"context"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"time"
)

const (
	// DefaultScale makes a machine a hundred times as fast as a real one: fit for tests.
	DefaultScale = 0.01
	// WatchScale is fit for a lab that a person looks at.
	WatchScale = 0.2
)

// A duration is how long a real machine is in one state.
type duration int

const (
	kernelTime duration = iota
	networkTime
	apidTime
	reloadTime
	streamTime
	criTime
	trustdTime
	kubeletPullTime
	kubeletStartTime
	kubeletHealthTime
	etcdSpecTime
	etcdStartTime
	etcdHealthTime
	etcdCheckTime
	etcdLimitTime
	stopPodsTime
	stopServicesTime
	rebootTime
	fatalTime
	restartTime
	ntpTime
	pullTime
	installTime
	wipeTime
	drainTime
)

// durations are those of real machines, with the recording that they were taken from. "Not recorded" are those of
// machines with disks: the recorded ones were containers, which install, wipe and drain nothing. They are guessed.
var durations = [...]struct {
	real   time.Duration
	source string
}{
	kernelTime:        {1350 * time.Millisecond, "power on to the maintenance API 2.6 s, less what follows"},
	networkTime:       {time.Second, "apid waits for the network, asked once a second (maintenance)"},
	apidTime:          {250 * time.Millisecond, "apid Preparing to Running (maintenance)"},
	reloadTime:        {200 * time.Millisecond, "first config to the API with certificates (maintenance)"},
	streamTime:        {10 * time.Second, "the same while a client holds a stream (maintenance)"},
	criTime:           {950 * time.Millisecond, "cri Running to healthy (bootstrap)"},
	trustdTime:        {730 * time.Millisecond, "trustd Running to healthy (maintenance)"},
	kubeletPullTime:   {500 * time.Millisecond, "kubelet Running pre state, its image is pulled (bootstrap)"},
	kubeletStartTime:  {250 * time.Millisecond, "kubelet Creating service runner (bootstrap)"},
	kubeletHealthTime: {1830 * time.Millisecond, "kubelet Running to healthy (bootstrap)"},
	etcdSpecTime:      {time.Second, "etcd waits for its spec, asked once a second (bootstrap)"},
	etcdStartTime:     {170 * time.Millisecond, "etcd Preparing to Running, its image is there (bootstrap)"},
	etcdHealthTime:    {4850 * time.Millisecond, "etcd Running to its first health check (bootstrap)"},
	etcdCheckTime:     {20 * time.Second, "from one health check of etcd to the next (no quorum)"},
	etcdLimitTime:     {15 * time.Second, "the limit of a health check of etcd (no quorum)"},
	stopPodsTime:      {380 * time.Millisecond, "kubelet Stopping to Finished (second boot)"},
	stopServicesTime:  {70 * time.Millisecond, "the rest of a reboot, until the API closes (second boot)"},
	rebootTime:        {23500 * time.Millisecond, "API closed to services Starting, 24.8 s (second boot)"},
	fatalTime:         {10 * time.Second, "a fatal error to the reboot (reference/diagnosis.md)"},
	restartTime:       {5 * time.Second, "the pause before a process that died is started again (Talos)"},
	ntpTime:           {2 * time.Second, "a query of a time server fails after seconds (README)"},
	pullTime:          {2 * time.Second, "not recorded"},
	installTime:       {3 * time.Second, "not recorded; one of three parts of an installation"},
	wipeTime:          {2 * time.Second, "not recorded"},
	drainTime:         {time.Second, "not recorded"},
}

// Machines differ in speed: the slowest takes almost three times as long as the fastest.
const fastest, slowest = 0.6, 1.6

// SeedEnv replays the speeds of a run of the tests.
const SeedEnv = "TALOS_LAB_SEED"

// Seed is what machines without a seed of their own get their speed from: the same in a process, another one in the
// next, unless SeedEnv says which.
var Seed = sync.OnceValue(func() uint64 {
	if seed, err := strconv.ParseUint(os.Getenv(SeedEnv), 10, 64); err == nil {
		return seed
	}

	return rand.Uint64()
})

// speed is how a machine's times compare with those of others: always the same for a seed, a name and an address.
func (o Options) speed() float64 {
	seed := o.Seed
	if seed == 0 {
		seed = Seed()
	}

	h := fnv.New64a()
	_, _ = h.Write([]byte(o.Name + "/" + o.Address)) // a hash takes everything
	u := rand.New(rand.NewPCG(seed, h.Sum64())).Float64()

	return fastest * math.Pow(slowest/fastest, u)
}

// lasts is how long the machine is in a state.
func (n *Node) lasts(d duration) time.Duration {
	return time.Duration(float64(durations[d].real) * n.opts.Scale * n.speed)
}

// spend waits for as long as the machine is in a state, and while the machine is frozen.
func (s *session) spend(ctx context.Context, d duration) error {
	if err := s.n.pass(ctx); err != nil {
		return err
	}

	timer := time.NewTimer(s.n.lasts(d))
	defer timer.Stop()

	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return s.n.pass(ctx)
	}
}
