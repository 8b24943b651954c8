package node

import (
	"fmt"

	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"

	"github.com/talos-operator/talos-operator/lab/node/image"
)

// pcrKey is the fingerprint of the key that signs the PCR policies of images for Secure Boot.
const pcrKey = "4C:41:42:00:11:22:33:44:55:66:77:88:99:AA:BB:CC:DD:EE:FF:00:11:22:33:44:55:66:77:88:99:AA:BB:CC"

// SetSecureBoot switches Secure Boot in the firmware on or off, from the next boot on. The boot medium is signed for
// it; an installed system boots with it only if its installer was.
func (n *Node) SetSecureBoot(on bool) { n.secureBoot.Store(on) }

// verify refuses an installed system that is not signed, as the firmware does: the boot loader itself is not, so that
// the other boot entry does not help.
func (s *session) verify(installer string) error {
	if s.n.secureBoot.Load() && !image.Signed(installer) {
		return fmt.Errorf("the firmware refuses the boot loader of %s: it is not signed", installer)
	}

	return nil
}

// showSecurity shows whether the firmware has verified what was booted. Without Secure Boot everything stays as it was
// recorded.
func (s *session) showSecurity() {
	if s.n.secureBoot.Load() {
		s.store.SetSecurityState(runtime.SecurityStateSpec{
			SecureBoot: true, BootedWithUKI: true, PCRSigningKeyFingerprint: pcrKey,
		})
	}
}

// showExtensions shows the system extensions of the boot medium, or of an installed system with a schematic.
func (s *session) showExtensions() {
	if s.faulty(image.BadExtensions) {
		s.store.SetExtensions()

		return
	}

	schematic, installer := s.runningImage()
	if installer != "" && schematic == "" {
		return
	}

	var all []runtime.ExtensionStatusSpec

	add := func(name, version, author string) {
		var one runtime.ExtensionStatusSpec

		one.Image = installer
		one.Metadata.Name, one.Metadata.Version, one.Metadata.Author = name, version, author
		all = append(all, one)
	}

	for _, name := range s.extensions() {
		add(name, s.tag, "Lab")
	}

	if schematic != "" {
		add("schematic", schematic, "Image Factory")
	}

	s.store.SetExtensions(all...)
}

// runningImage is the schematic of what runs, and its installer; both are empty on the boot medium.
func (s *session) runningImage() (schematic, installer string) {
	if loader := s.n.system.Loader(); loader != nil && loader.Current() != nil {
		return loader.Current().Schematic, loader.Current().Image
	}

	return "", ""
}

// extensions are the names of the system extensions that run.
func (s *session) extensions() []string {
	schematic, installer := s.runningImage()
	all, known := s.n.opts.Schematics[schematic]

	switch {
	case s.faulty(image.BadExtensions), installer != "" && schematic == "":
		return nil
	case known:
		return all
	}

	return s.n.opts.Extensions
}
