package talos

import (
	"context"
	"slices"

	"github.com/cosi-project/runtime/pkg/safe"
	talosclient "github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"

	"github.com/talos-operator/talos-operator/internal/text"
)

// Pseudo extensions describe the image. The schematic is that of the image factory.
const (
	schematicExtension = "schematic"
	modulesExtension   = "modules.dep"
	configExtension    = "embedded-config"
)

// Limits of what a node reports about its image: those of the status fields for them.
const (
	maxExtensions, maxExtensionName = 64, 128
	maxSchematic                    = 64
	// A text that is cut would not be that of its ID.
	maxSchematicText = 4096
	maxPlatform      = 32
)

// Extensions of the image that a node runs.
type Extensions struct {
	// Schematic is the ID of the image factory schematic; empty for an image from another source.
	Schematic string
	// SchematicText is the schematic itself; empty if the node does not show it, as before Talos 1.7, or if it is long.
	SchematicText string
	// Names of the system extensions, sorted, at most 64.
	Names []string
	// refused: the node does not list them for this client.
	refused bool
}

// Image is what a node reports about the image that it has booted. It stays the same until the next boot.
type Image struct {
	Extensions
	// Told is true if the rest is all that the node knows: it has reported its security state, which it does after its
	// extensions. Before, and on a node that refuses to report them, what is missing here may be there. Talos before 1.5
	// has no such state and never tells.
	Told bool
	// SecureBoot is true if the firmware has verified the image; nil if the node does not say.
	SecureBoot *bool
	// Signed is true for an image that was built for Secure Boot, whether or not the firmware has verified it.
	Signed bool
	// Platform that the node runs on, such as metal or nocloud; empty if the node does not say.
	Platform string
}

// Extensions lists the extensions of the running image, in addition to Talos itself.
func (n *Node) Extensions(ctx context.Context) (Extensions, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()

	out, err := readExtensions(ctx, n.c)

	return out, classify("its extensions", n.name(), err)
}

// Image reads what the node reports about the image that it has booted.
func (n *Node) Image(ctx context.Context) (Image, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()

	out, err := readImage(ctx, n.c)

	return out, classify("its image", n.name(), err)
}

// Image reads what a machine in maintenance mode reports about its boot medium.
func (m *Maintenance) Image(ctx context.Context) (Image, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()

	out, err := readImage(ctx, m.c)

	return out, m.pin.classify("its image", m.address, err)
}

func readImage(ctx context.Context, c *talosclient.Client) (Image, error) {
	var (
		out Image
		err error
	)

	// The security state first: an extension that is listed after it was there is not missed.
	r := &reader{c: c}
	s := get[*runtime.SecurityState](
		ctx, r, runtime.NamespaceName, runtime.SecurityStateType, runtime.SecurityStateID)

	out.Extensions, err = readExtensions(ctx, c)
	if err != nil {
		return out, err
	}

	if s != nil {
		out.Told = !out.refused
		out.SecureBoot = &s.TypedSpec().SecureBoot
		// Only images for Secure Boot have a signed PCR policy.
		out.Signed = s.TypedSpec().PCRSigningKeyFingerprint != ""
	}

	p := get[*runtime.PlatformMetadata](
		ctx, r, runtime.NamespaceName, runtime.PlatformMetadataType, runtime.PlatformMetadataID)
	if p != nil {
		out.Platform = clip(text.Name(p.TypedSpec().Platform), maxPlatform)
	}

	return out, r.err
}

func readExtensions(ctx context.Context, c *talosclient.Client) (Extensions, error) {
	var out Extensions

	list, err := safe.ReaderListAll[*runtime.ExtensionStatus](ctx, c.COSI)
	if err != nil {
		if isAbsent(err) {
			out.refused = true

			return out, nil
		}

		return out, err
	}

	for e := range list.All() {
		switch meta := e.TypedSpec().Metadata; meta.Name {
		case schematicExtension:
			out.Schematic = clip(text.Name(meta.Version), maxSchematic)

			if len(meta.ExtraInfo) <= maxSchematicText {
				out.SchematicText = meta.ExtraInfo
			}
		case modulesExtension, configExtension:
		default:
			out.Names = append(out.Names, clip(text.Name(meta.Name), maxExtensionName))
		}
	}

	slices.Sort(out.Names)
	out.Names = out.Names[:min(len(out.Names), maxExtensions)]

	return out, nil
}
