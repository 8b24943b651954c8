package node

import (
	"errors"
	"fmt"
	"strings"

	"github.com/talos-operator/talos-operator/lab/node/disk"
	"github.com/talos-operator/talos-operator/lab/node/pace"
)

// faulty reports whether the installed system that runs has a fault, which a word in the reference of its image names.
func (s *session) faulty(word string) bool {
	loader := s.n.system.Loader()

	return loader != nil && loader.Entries[s.slot] != nil && strings.Contains(loader.Entries[s.slot].Image, word)
}

// FallBack has the machine boot the other entry, as Talos does by itself after a fatal error of a system that has not
// been healthy yet. It returns before the machine goes down.
func (n *Node) FallBack() error {
	s := n.current()
	if s == nil {
		return errors.New("the machine is off")
	}

	return s.fallBack()
}

func (s *session) fallBack() error {
	loader := s.n.system.Loader()
	if loader == nil {
		return errors.New("no Talos is installed")
	}

	other := disk.SlotA
	if s.slot == disk.SlotA {
		other = disk.SlotB
	}

	if loader.Entries[other] == nil {
		return fmt.Errorf("there is no boot entry %s", other)
	}

	s.logf("fatal error: reverting to the boot entry %s", other)

	loader.Default = other
	if err := s.n.system.SetLoader(loader); err != nil {
		return err
	}

	go s.n.restart(s, true)

	return nil
}

// dies ends a system that falls back by itself, some time after its API is up.
func (s *session) dies() {
	if s.spend(s.ctx, pace.Fatal) != nil {
		return
	}

	if err := s.fallBack(); err != nil {
		s.logf("falling back: %v", err)
	}
}
