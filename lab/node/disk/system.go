// Package disk is what an emulated machine keeps when its power is off: the partitions of its system disk as
// directories below one directory.
package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

// Partition labels of a Talos system disk.
const (
	EFI       = "EFI"
	BIOS      = "BIOS"
	Boot      = "BOOT"
	Meta      = "META"
	State     = "STATE"
	Ephemeral = "EPHEMERAL"
)

// Labels are the partitions in the order in which they stand on the disk.
func Labels() []string { return []string{EFI, BIOS, Boot, Meta, State, Ephemeral} }

// Entry is one boot entry: an installed Talos.
type Entry struct {
	Tag       string `json:"tag"`
	Image     string `json:"image"`
	Schematic string `json:"schematic,omitempty"`
	// Broken entries do not boot: the boot loader falls back to the other entry.
	Broken bool `json:"broken,omitempty"`
	// WarmOnly entries boot out of a system that runs. A cold boot falls back to the other entry.
	WarmOnly bool `json:"warmOnly,omitempty"`
}

// Boots reports whether the entry boots, cold from the power button or warm out of a system that runs.
func (e *Entry) Boots(cold bool) bool { return e != nil && !e.Broken && (!cold || !e.WarmOnly) }

// Loader is the boot loader's state: two slots, one of which boots.
type Loader struct {
	Disk    string            `json:"disk"` // device name, for example "sda"
	Default string            `json:"default"`
	Entries map[string]*Entry `json:"entries"`
}

// Slots of the boot loader.
const (
	SlotA = "A"
	SlotB = "B"
)

// Other returns the slot that does not boot.
func (l *Loader) Other() string {
	if l.Default == SlotA {
		return SlotB
	}

	return SlotA
}

// Current returns the entry that boots.
func (l *Loader) Current() *Entry { return l.Entries[l.Default] }

// System is the system disk of one machine.
type System struct {
	dir string

	mu     sync.Mutex
	loader *Loader
	meta   map[uint8]string
}

// Open loads the disk kept in dir, which need not exist.
func Open(dir string) (*System, error) {
	s := &System{dir: dir}

	return s, s.load()
}

func (s *System) load() error {
	s.loader, s.meta = nil, map[uint8]string{}

	loader := &Loader{}

	found, err := ReadJSON(s.path(Boot, "loader.json"), loader)
	if err != nil {
		return err
	}

	if found {
		s.loader = loader
	}

	_, err = ReadJSON(s.path(Meta, "meta.json"), &s.meta)

	return err
}

func (s *System) path(elem ...string) string {
	return filepath.Join(append([]string{s.dir}, elem...)...)
}

// Installed reports whether Talos is installed on the disk.
func (s *System) Installed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.loader != nil
}

// Loader returns a copy of the boot loader's state, nil when nothing is installed.
func (s *System) Loader() *Loader {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.loader == nil {
		return nil
	}

	c := *s.loader
	c.Entries = map[string]*Entry{}

	for slot, e := range s.loader.Entries {
		entry := *e
		c.Entries[slot] = &entry
	}

	return &c
}

// SetLoader writes the boot loader's state.
func (s *System) SetLoader(l *Loader) error {
	s.mu.Lock()
	defer s.mu.Unlock()

	if err := WriteJSON(s.path(Boot, "loader.json"), l); err != nil {
		return err
	}

	s.loader = l

	return nil
}

// Config returns the machine config in the STATE partition, nil when there is none.
func (s *System) Config() ([]byte, error) {
	data, err := os.ReadFile(s.path(State, "config.yaml"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}

	if err != nil {
		return nil, fmt.Errorf("reading the machine config: %w", err)
	}

	return data, nil
}

// SetConfig writes the machine config.
func (s *System) SetConfig(data []byte) error { return WriteFile(s.path(State, "config.yaml"), data) }

// NodeIdentity returns the node ID in the STATE partition; generate makes one when there is none.
func (s *System) NodeIdentity(generate func() string) (string, error) {
	path := s.path(State, "node-identity")

	data, err := os.ReadFile(path)
	if err == nil {
		return string(data), nil
	}

	if !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("reading the node identity: %w", err)
	}

	id := generate()

	return id, WriteFile(path, []byte(id))
}

// MetaValues returns a copy of the META keys.
func (s *System) MetaValues() map[uint8]string {
	s.mu.Lock()
	defer s.mu.Unlock()

	c := make(map[uint8]string, len(s.meta))
	for k, v := range s.meta {
		c[k] = v
	}

	return c
}

// metaSize is the room for values in a META partition.
const metaSize = 256 << 10

// ErrMetaFull says that a value does not fit into META.
var ErrMetaFull = errors.New("META is full")

// SetMeta writes one META key.
func (s *System) SetMeta(key uint8, value string) error {
	s.mu.Lock()
	defer s.mu.Unlock()

	size := len(value)

	for k, v := range s.meta {
		if k != key {
			size += len(v)
		}
	}

	if size > metaSize {
		return ErrMetaFull
	}

	s.meta[key] = value

	return WriteJSON(s.path(Meta, "meta.json"), s.meta)
}

// DeleteMeta removes one META key and reports whether it was there.
func (s *System) DeleteMeta(key uint8) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if _, ok := s.meta[key]; !ok {
		return false, nil
	}

	delete(s.meta, key)

	return true, WriteJSON(s.path(Meta, "meta.json"), s.meta)
}

// EphemeralPath returns a path in the EPHEMERAL partition.
func (s *System) EphemeralPath(elem ...string) string {
	return s.path(append([]string{Ephemeral}, elem...)...)
}

// Keys returns the keys that open a partition, by their slots: none if it is not encrypted. ok is false while it is not
// formatted.
func (s *System) Keys(label string) (keys map[int]string, ok bool, err error) {
	keys = map[int]string{}
	ok, err = ReadJSON(s.path(label, "luks.json"), &keys)

	return keys, ok, err
}

// SetKeys formats a partition with keys, or replaces those that it has.
func (s *System) SetKeys(label string, keys map[int]string) error {
	return WriteJSON(s.path(label, "luks.json"), keys)
}

// StateUsed reports whether the STATE partition has been formatted.
func (s *System) StateUsed() bool {
	_, err := os.Stat(s.path(State))

	return err == nil
}

// Wipe empties partitions; no label at all wipes the whole disk.
func (s *System) Wipe(labels ...string) error {
	s.mu.Lock()
	defer s.mu.Unlock()

	if len(labels) == 0 {
		if err := os.RemoveAll(s.dir); err != nil {
			return fmt.Errorf("wiping %s: %w", s.dir, err)
		}

		return s.load()
	}

	for _, label := range labels {
		if err := os.RemoveAll(s.path(label)); err != nil {
			return fmt.Errorf("wiping the partition %s: %w", label, err)
		}
	}

	return s.load()
}
