package lab

import (
	"fmt"
	"net/netip"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"github.com/talos-operator/talos-operator/lab/node"
	"github.com/talos-operator/talos-operator/lab/node/disk"
)

const (
	// maxSubnetBits is the length of the only subnet that addresses of a lab are handed out of.
	maxSubnetBits = 16
	// reservedNumber is the third number of addresses that no machine gets.
	reservedNumber = 255
	// gatewayNumber is the last number of the address that machines believe to be their gateway.
	gatewayNumber = 254
)

var validName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?(/[a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$`)

// record is what a lab keeps of a machine, apart from what the machine keeps itself.
type record struct {
	Name         string `json:"name"`
	Address      string `json:"address"`
	TalosVersion string `json:"talosVersion,omitempty"`
	CPUs         int    `json:"cpus,omitempty"`
	MemoryMiB    int    `json:"memoryMiB,omitempty"`
	SecureBoot   bool   `json:"secureBoot,omitempty"`
	Off          bool   `json:"off,omitempty"`

	disks []node.Disk // the machine keeps them itself
}

// NodeOption changes a machine that Boot makes.
type NodeOption func(*record)

// WithAddress gives the machine an address instead of the next free one.
func WithAddress(address string) NodeOption { return func(r *record) { r.Address = address } }

// WithDisks gives the machine disks instead of a single one of 20 GiB.
func WithDisks(disks ...node.Disk) NodeOption { return func(r *record) { r.disks = disks } }

// WithSize gives the machine processors and memory; zero means the default.
func WithSize(cpus, memoryMiB int) NodeOption {
	return func(r *record) { r.CPUs, r.MemoryMiB = cpus, memoryMiB }
}

// WithTalosVersion puts another Talos on the medium that the machine boots from.
func WithTalosVersion(tag string) NodeOption { return func(r *record) { r.TalosVersion = tag } }

// WithSecureBoot gives the machine a firmware with Secure Boot on.
func WithSecureBoot(on bool) NodeOption { return func(r *record) { r.SecureBoot = on } }

// PoweredOff leaves a new machine off.
func PoweredOff() NodeOption { return func(r *record) { r.Off = true } }

// hostname is what DHCP tells the machine: its name without the namespace.
func (r record) hostname() string { return path.Base(r.Name) }

func (r record) addr() netip.Addr {
	addr, _ := netip.ParseAddr(r.Address)

	return addr
}

// Reserved returns an address of the subnet that no machine gets by itself: n is its last number.
func (l *Lab) Reserved(n byte) netip.Addr { return Reserved(l.subnet, n) }

// Reserved returns an address of a lab's subnet that no machine gets by itself: n is its last number.
func Reserved(subnet netip.Prefix, n byte) netip.Addr {
	b := subnet.Addr().As4()
	b[2], b[3] = reservedNumber, n

	return netip.AddrFrom4(b)
}

// place gives a machine its address; the caller holds l.mu.
func (l *Lab) place(r *record) error {
	taken := map[netip.Addr]string{}
	for _, m := range l.machines {
		taken[m.addr()] = m.Name
	}

	if r.Address != "" {
		addr := r.addr()

		if !addr.Is4() || !addr.IsLoopback() {
			return fmt.Errorf("the address %q of %s is not in 127.0.0.0/8", r.Address, r.Name)
		}

		if other, ok := taken[addr]; ok {
			return fmt.Errorf("the address %s of %s belongs to %s", r.Address, r.Name, other)
		}

		return nil
	}

	for addr := l.subnet.Addr().Next(); l.subnet.Contains(addr); addr = addr.Next() {
		b := addr.As4()

		if b[2] == reservedNumber {
			break
		}

		if _, ok := taken[addr]; !ok && b[3] != 0 && b[3] != 255 {
			r.Address = addr.String()

			return nil
		}
	}

	return fmt.Errorf("no address is left in %s for %s", l.subnet, r.Name)
}

// dir is where a machine is kept. A name has no underscore of its own.
func (l *Lab) dir(name string) string {
	return filepath.Join(l.opts.Dir, "nodes", strings.ReplaceAll(name, "/", "_"))
}

func (l *Lab) recordsFile() string { return filepath.Join(l.opts.Dir, "fleet.json") }

// save writes the records; the caller holds l.mu.
func (l *Lab) save() error {
	records := make(map[string]record, len(l.machines))
	for name, m := range l.machines {
		records[name] = m.record
	}

	return disk.WriteJSON(l.recordsFile(), records)
}

// console is the log of one machine, opened when there is something to write: a lab of a thousand machines in
// maintenance mode needs no thousand open files.
type console struct {
	path string

	mu     sync.Mutex
	file   *os.File
	closed bool
}

// Write appends to the log. What cannot be written is lost: a machine does not stop because of its console.
func (c *console) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()

	if c.file == nil && !c.closed {
		c.file, _ = os.OpenFile(c.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	}

	if c.file != nil {
		_, _ = c.file.Write(p)
	}

	return len(p), nil
}

func (c *console) close() {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.closed = true

	if c.file != nil {
		_ = c.file.Close()
		c.file = nil
	}
}
