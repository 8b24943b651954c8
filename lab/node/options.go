package node

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"path/filepath"
	"time"

	"github.com/talos-operator/talos-operator/lab/node/hardware"
	"github.com/talos-operator/talos-operator/lab/node/pace"
	"github.com/talos-operator/talos-operator/lab/node/quorum"
)

// DefaultTalosVersion is the Talos that a node boots from its boot medium unless told otherwise.
const DefaultTalosVersion = "v1.13.9"

// DefaultScale and WatchScale are how fast machines are in tests, and where a person looks on.
const (
	DefaultScale = pace.DefaultScale
	WatchScale   = pace.WatchScale
)

// Seed is what machines without a seed of their own get their speed from.
var Seed = pace.Seed

// Options describe one machine.
type Options struct {
	// Name is the machine's name: what DHCP tells it as host name.
	Name string
	// Address is the machine's IP, a loopback address in the lab.
	Address string
	// Gateway is the machine's default gateway and resolver; the first address of its /16 when empty.
	Gateway string
	// Dir holds the machine's disks and stays over restarts of the lab.
	Dir string
	// Assets is the folder with etcd, etcdutl and kube-apiserver. Unused when Modelled.
	Assets string
	// Scale is what the times of a real machine are multiplied by: 1 is as slow as a real one. DefaultScale when zero,
	// WatchScale where a person looks on.
	Scale float64
	// Times replace some of those of a real machine.
	Times pace.Times
	// Seed says, with name and address, how fast the machine is: 0.6 to 1.6 of these times. That of the process when zero.
	Seed uint64
	// Cluster is the discovery service shared by the nodes of a lab; a registry of its own when nil.
	Cluster *Registry
	// Disks are the machine's disks; one of 20 GiB when nil. A machine with an empty list has none.
	Disks []Disk
	// TalosVersion is the tag on the boot medium; DefaultTalosVersion when empty.
	TalosVersion string
	// SecureBoot is true for a machine whose firmware has Secure Boot on, see SetSecureBoot.
	SecureBoot bool
	// Extensions are the system extensions of the boot medium, and of installers with a schematic that Schematics does not
	// have.
	Extensions []string
	// Schematics are the system extensions that an image factory puts into images, by the IDs of schematics.
	Schematics map[string][]string
	// Links are the names of network cards beside eth0.
	Links []string
	// CPUs and MemoryMiB are the machine's size; 2 and 4096 when zero.
	CPUs, MemoryMiB int
	// UUID is the system UUID; made up and kept when empty, and the machine shows none where it is NoUUID.
	UUID string
	// Modelled replaces etcd and the API server by a model, for labs of hundreds of clusters.
	Modelled bool
	// ModelledKubernetes replaces the API server by a model, next to a real etcd.
	ModelledKubernetes bool
	// NodeGrace is how long a Kubernetes node may be silent before it is NotReady; 40 s when zero.
	NodeGrace time.Duration
	// Heartbeat is the pause between two renewals of the kubelet's lease; 10 s when zero.
	Heartbeat time.Duration
	// Log receives what the node and its child processes print; it may be nil.
	Log io.Writer
}

// Disk is one disk of a machine.
type Disk = hardware.Disk

// GiB is a size of disks, NoUUID the system UUID of a machine whose firmware has none.
const (
	GiB    = hardware.GiB
	NoUUID = hardware.NoUUID
)

var errOptions = errors.New("a node needs a name, an address and a directory")

func (o Options) complete() (Options, error) {
	addr, err := netip.ParseAddr(o.Address)
	if err != nil || o.Name == "" || o.Dir == "" {
		return o, fmt.Errorf("%w (name %q, address %q, directory %q)", errOptions, o.Name, o.Address, o.Dir)
	}

	if o.Gateway == "" {
		o.Gateway = netip.PrefixFrom(addr, subnetBits).Masked().Addr().Next().String()
	}

	if o.TalosVersion == "" {
		o.TalosVersion = DefaultTalosVersion
	}

	if o.Scale == 0 {
		o.Scale = DefaultScale
	}

	if o.CPUs == 0 {
		o.CPUs = 2
	}

	if o.MemoryMiB == 0 {
		o.MemoryMiB = 4096
	}

	if o.Cluster == nil {
		o.Cluster = NewRegistry()
	}

	if o.Disks == nil {
		o.Disks = []Disk{{Name: "sda", Size: 20 * GiB, Model: "LAB DISK", Transport: "sata"}}
	}

	if o.Log == nil {
		o.Log = io.Discard
	}

	return o, nil
}

// subnetBits is the length of the network prefix that a node believes to be in.
const subnetBits = 16

// modelsKubernetes reports whether the API server is a model.
func (o Options) modelsKubernetes() bool { return o.Modelled || o.ModelledKubernetes }

// engine returns what runs the node's etcd.
func (o Options) engine() quorum.Engine {
	if o.Modelled {
		return o.Cluster.model
	}

	return quorum.Real{Binary: filepath.Join(o.Assets, "etcd"), Utl: filepath.Join(o.Assets, "etcdutl")}
}
