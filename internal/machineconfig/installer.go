package machineconfig

import (
	"fmt"
	"strings"
)

// schematicLength is the length of the ID of an image factory schematic, a SHA-256 in hexadecimal.
const schematicLength = 64

// installer is the image that a config names. What no factory builds is an error before a node tries to pull it.
func installer(in Input) (string, error) {
	switch {
	case in.Install.Refused != nil:
		return "", in.Install.Refused
	case in.Install.Image != "":
		return in.Install.Image, nil
	case in.Install.Factory == nil:
		return DefaultInstallImage(in.TalosVersion), nil
	}

	image, err := in.Install.Factory.Resolve()

	return image.Installer(), err
}

// InstallImage reads the installer image from a config, empty where it names none.
func InstallImage(config []byte) (string, error) {
	docs, err := splitDocuments(config)
	if err != nil {
		return "", fmt.Errorf("reading config: %s", describe(err)) // the cause may quote secrets
	}

	main := mainOf(docs)
	if main == nil {
		return "", nil
	}

	return scalarOf(child(child(main, "machine"), "install"), "image"), nil
}

// Retag returns an image of the same repository with another tag, for an image whose tag is a version. ok is false for
// an image with a digest, or with another tag than that version: it is unknown which reference is that of another
// version.
func Retag(reference, from, to string) (retagged string, ok bool) {
	i := parseImage(reference)
	if i.repository == "" || i.digest != "" || i.tag != from {
		return "", false
	}

	return i.repository + ":" + to, true
}

// TagOf returns the tag of an image; empty if it has none, or a digest.
func TagOf(reference string) string {
	i := parseImage(reference)
	if i.digest != "" {
		return ""
	}

	return i.tag
}

// NamedTag returns the tag of an image, also one beside a digest, which a runtime ignores: it is what a user says the
// image is.
func NamedTag(reference string) string { return parseImage(reference).tag }

// Pinned reports whether an image has a digest.
func Pinned(reference string) bool { return parseImage(reference).digest != "" }

// WithoutDigest returns an image without its digest.
func WithoutDigest(reference string) string {
	reference, _, _ = strings.Cut(reference, "@")

	return reference
}

// Schematic returns the ID of the image factory schematic in a reference to an installer image, empty where it has
// none.
func Schematic(reference string) string {
	id := schematicPart(parseImage(reference).repository)
	if len(id) == schematicLength && strings.Trim(id, "0123456789abcdef") == "" {
		return id
	}

	return ""
}

// WithSchematic returns an image with another schematic. It leaves an image without one as it is.
func WithSchematic(reference, schematic string) string {
	was := Schematic(reference)
	if was == "" || schematic == "" {
		return reference
	}

	return strings.Replace(reference, "/"+was, "/"+schematic, 1)
}

// SameRepository reports whether two references are of one repository.
func SameRepository(a, b string) bool { return parseImage(a).repository == parseImage(b).repository }

func schematicPart(repository string) string {
	return repository[strings.LastIndex(repository, "/")+1:]
}
