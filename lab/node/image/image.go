// Package image is what an emulated node makes of images: what their references say, and which ones it has.
package image

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/distribution/reference"
)

// Faults of images: what goes wrong with an installer, or with a component of Kubernetes, by a word in its reference;
// with an installer also by Node.FailInstaller of the lab.
const (
	// BadPull in an image reference makes the image impossible to pull.
	BadPull = "-missing"
	// BadInstall makes the installer exit with an error.
	BadInstall = "-broken-installer"
	// BadBoot makes an installed system that does not boot.
	BadBoot = "-broken-boot"
	// BadHealth makes an installed system that boots, and whose kubelet ends at once.
	BadHealth = "-unhealthy"
	// BadStay makes an installed system that boots, is never healthy, and falls back to the one before after a while.
	BadStay = "-falls-back"
	// BadColdBoot makes an installed system that runs until the machine is powered on the next time: it boots only out of
	// another one, and a cold boot falls back.
	BadColdBoot = "-no-cold-boot"
	// BadNetwork makes an installed system that boots without a network.
	BadNetwork = "-no-network"
	// BadExtensions makes an installed system that boots without its system extensions.
	BadExtensions = "-no-extensions"
	// BadRun makes a component of Kubernetes that ends as soon as it is started.
	BadRun = "-crashing"
)

// Digest makes up the digest of an image.
func Digest(image string) string { return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(image))) }

// Canonical is an image reference pinned to its digest.
func Canonical(image string) string {
	if strings.Contains(image, "@") {
		return image
	}

	return strings.TrimSuffix(image, ":"+Tag(image)) + "@" + Digest(image)
}

// Listed returns the name and the digest that a node lists an image under: a short name gets its registry, and a tag
// beside a digest is dropped.
func Listed(image string) (name, digest string) {
	ref, err := reference.ParseDockerRef(image)
	if err != nil {
		return image, Digest(image)
	}

	if d, ok := ref.(reference.Digested); ok {
		return ref.String(), d.Digest().String()
	}

	return ref.String(), Digest(image)
}

// CheckPull says why an image cannot be pulled.
func CheckPull(image string) error {
	if image == "" || strings.Contains(image, BadPull) {
		return fmt.Errorf("failed to resolve reference %q: %s: not found", image, image)
	}

	return nil
}

// CheckRun says why a component of Kubernetes does not run from an image.
func CheckRun(image string) error {
	if err := CheckPull(image); err != nil {
		return err
	}

	if strings.Contains(image, BadRun) {
		return fmt.Errorf("a container of %s ended with exit code 1", image)
	}

	return nil
}

// Tag returns the tag of an image reference.
func Tag(image string) string {
	image, _, _ = strings.Cut(image, "@")
	i := strings.LastIndex(image, ":")

	if i < 0 || strings.Contains(image[i:], "/") {
		return ""
	}

	return image[i+1:]
}

// Version returns what a system that was installed from an image with a tag says it is: the words of faults that show
// once it runs are no part of that.
func Version(tag string) string {
	for _, word := range []string{BadHealth, BadStay, BadColdBoot, BadNetwork, BadExtensions} {
		tag = strings.ReplaceAll(tag, word, "")
	}

	return tag
}

// Schematic returns the schematic ID in a reference to an image of the image factory.
func Schematic(image string) string {
	name, _, _ := strings.Cut(image, "@")
	name = strings.TrimSuffix(name, ":"+Tag(name)) // a registry may have a port
	part := name[strings.LastIndex(name, "/")+1:]

	if len(part) == schematicLength && strings.Trim(part, "0123456789abcdef") == "" {
		return part
	}

	return ""
}

// Signed reports whether an installer is signed for Secure Boot, which its name tells.
func Signed(image string) bool { return strings.Contains(image, "-secureboot/") }

// schematicLength is the length of a schematic ID, a SHA-256 in hex.
const schematicLength = 64

// Store has the images that a node has pulled. The zero value is empty.
type Store struct {
	mu   sync.Mutex
	have map[string]bool
}

// Add makes an image present.
func (s *Store) Add(image string) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.have == nil {
		s.have = map[string]bool{}
	}

	s.have[image] = true
}

// Find finds a present image by its tag or its digest, and returns the reference that it was pulled under: that tells
// which version is in it, as the content of a real image does.
func (s *Store) Find(image string) (string, error) {
	for _, have := range s.List() {
		if have == image || Canonical(have) == image {
			return have, nil
		}
	}

	return "", fmt.Errorf("installer image %q not found in containerd store: not found", image)
}

// List returns the present images and more, sorted.
func (s *Store) List(more ...string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()

	return slices.Compact(slices.Sorted(slices.Values(slices.AppendSeq(more, maps.Keys(s.have)))))
}

// Remove removes an image, and reports whether it was there.
func (s *Store) Remove(image string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	_, there := s.have[image]
	delete(s.have, image)

	return there
}
