// Package pace is how long the states of an emulated machine last.
package pace

import (
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
	// WatchScale is fit for a lab that a person watches.
	WatchScale = 0.2
)

// A State is what a machine does that takes its time.
type State int

// The states of a machine.
const (
	Kernel State = iota
	Network
	APID
	Reload
	Stream
	CRI
	Trustd
	KubeletPull
	KubeletStart
	KubeletHealth
	EtcdSpec
	EtcdStart
	EtcdHealth
	EtcdCheck
	EtcdLimit
	StopPods
	StopServices
	Reboot
	Fatal
	Restart
	NTP
	Pull
	Install
	Wipe
	Drain
	APIServer
)

// durations are those of real machines, with the recording that they were taken from. "Not recorded" are those of
// machines with disks: the recorded ones were containers, which install, wipe and drain nothing. They are guessed.
var durations = [...]struct {
	real   time.Duration
	source string
}{
	Kernel:        {1350 * time.Millisecond, "power on to the maintenance API 2.6 s, less what follows"},
	Network:       {time.Second, "apid waits for the network, asked once a second (maintenance)"},
	APID:          {250 * time.Millisecond, "apid Preparing to Running (maintenance)"},
	Reload:        {200 * time.Millisecond, "first config to the API with certificates (maintenance)"},
	Stream:        {10 * time.Second, "the same while a client holds a stream (maintenance)"},
	CRI:           {950 * time.Millisecond, "cri Running to healthy (bootstrap)"},
	Trustd:        {730 * time.Millisecond, "trustd Running to healthy (maintenance)"},
	KubeletPull:   {500 * time.Millisecond, "kubelet Running pre state, its image is pulled (bootstrap)"},
	KubeletStart:  {250 * time.Millisecond, "kubelet Creating service runner (bootstrap)"},
	KubeletHealth: {1830 * time.Millisecond, "kubelet Running to healthy (bootstrap)"},
	EtcdSpec:      {time.Second, "etcd waits for its spec, asked once a second (bootstrap)"},
	EtcdStart:     {170 * time.Millisecond, "etcd Preparing to Running, its image is there (bootstrap)"},
	EtcdHealth:    {4850 * time.Millisecond, "etcd Running to its first health check (bootstrap)"},
	EtcdCheck:     {20 * time.Second, "from one health check of etcd to the next (no quorum)"},
	EtcdLimit:     {15 * time.Second, "the limit of a health check of etcd (no quorum)"},
	StopPods:      {380 * time.Millisecond, "kubelet Stopping to Finished (second boot)"},
	StopServices:  {70 * time.Millisecond, "the rest of a reboot, until the API closes (second boot)"},
	Reboot:        {23500 * time.Millisecond, "API closed to services Starting, 24.8 s (second boot)"},
	Fatal:         {10 * time.Second, "a fatal error to the reboot (reference/diagnosis.md)"},
	Restart:       {5 * time.Second, "the pause before a process that died is started again (Talos)"},
	NTP:           {2 * time.Second, "a query of a time server fails after seconds (README)"},
	Pull:          {2 * time.Second, "not recorded"},
	Install:       {3 * time.Second, "not recorded; one of three parts of an installation"},
	Wipe:          {2 * time.Second, "not recorded"},
	Drain:         {time.Second, "not recorded"},
	APIServer:     {time.Millisecond, "not recorded; modelled API servers start at once"},
}

// Times replace times that were not recorded; what is zero stays as it is.
type Times struct {
	// Pull is how long an image takes, Install an installer, and APIServer a modelled API server until it is ready.
	Pull, Install, APIServer time.Duration
}

// A pull and an installation are spent in so many parts.
const pullParts, installParts = 2, 3

// real is how long a machine of usual speed is in a state at the scale 1.
func (t Times) real(s State) time.Duration {
	switch {
	case s == Pull && t.Pull > 0:
		return t.Pull / pullParts
	case s == Install && t.Install > 0:
		return t.Install / installParts
	case s == APIServer && t.APIServer > 0:
		return t.APIServer
	default:
		return durations[s].real
	}
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

// Pace is how fast one machine is.
type Pace struct {
	scale, speed float64
	times        Times
}

// With replaces some of the times.
func (p Pace) With(t Times) Pace {
	p.times = t

	return p
}

// Of returns the pace of a machine: always the same for a seed, a name and an address. A seed of zero is that of the
// process.
func Of(scale float64, seed uint64, name, address string) Pace {
	if seed == 0 {
		seed = Seed()
	}

	h := fnv.New64a()
	_, _ = h.Write([]byte(name + "/" + address)) // a hash takes everything
	u := rand.New(rand.NewPCG(seed, h.Sum64())).Float64()

	return Pace{scale: scale, speed: fastest * math.Pow(slowest/fastest, u)}
}

// Lasts is how long the machine is in a state.
func (p Pace) Lasts(s State) time.Duration {
	return time.Duration(float64(p.times.real(s)) * p.scale * p.speed)
}
