package talosmachine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/change"
	"github.com/talos-operator/talos-operator/internal/decide/upgrade"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/imagefactory"
	"github.com/talos-operator/talos-operator/internal/machineconfig"
	"github.com/talos-operator/talos-operator/internal/machineconfig/desired"
	"github.com/talos-operator/talos-operator/internal/machineconfig/volume"
	"github.com/talos-operator/talos-operator/internal/talos"
)

// readImage asks a node for the image that it has booted, for the status, until that was read once while the node was
// running: early in a boot it may not know yet.
func (r *Reconciler) readImage(ctx context.Context, s *scope) error {
	st := &s.machine.Status
	if st.Image != nil && st.BootID == s.facts.BootID && st.Stage == change.StageRunning {
		return nil
	}

	_, err := r.imageOf(ctx, s)

	return err
}

// shownImage is the image of the status: what runs, and whether the spec asks for that.
func (s *scope) shownImage() *v1alpha1.RunningImage {
	var out v1alpha1.RunningImage

	switch was := s.machine.Status.Image; {
	case s.booted != nil && !s.reportsLess():
		out.Schematic, out.Extensions, out.SecureBoot = s.booted.Schematic, s.booted.Names, s.booted.SecureBoot
	case was != nil:
		out.Schematic, out.Extensions, out.SecureBoot = was.Schematic, was.Extensions, was.SecureBoot
	default:
		return nil
	}

	if s.controlPlane == nil || s.held == nil || s.worker == nil && s.machine.Spec.WorkerRef != nil {
		return &out
	}

	options := s.sources().Install()
	secure := options.SecureBoot != nil && *options.SecureBoot

	if out.DesiredSchematic = s.desiredSchematic(options); out.DesiredSchematic == "" && !secure {
		return &out
	}

	as := matches(&out, secure)
	out.MatchesSpec = &as

	return &out
}

// matches reports whether a machine runs what the spec asks for, with Secure Boot if it asks for that.
func matches(i *v1alpha1.RunningImage, secure bool) bool {
	return (i.DesiredSchematic == "" || i.Schematic == i.DesiredSchematic) &&
		(!secure || i.SecureBoot != nil && *i.SecureBoot)
}

// reportsLess reports whether a node has reported more of what it has booted earlier in the same boot: a report without
// its security state is no news.
func (s *scope) reportsLess() bool {
	st := &s.machine.Status

	return st.Image != nil && st.Image.SecureBoot != nil && s.booted.SecureBoot == nil && st.BootID != "" &&
		st.BootID == s.facts.BootID
}

// desiredSchematic is the ID of the schematic that the spec asks for; empty if it asks for none.
func (s *scope) desiredSchematic(options v1alpha1.InstallOptions) string {
	image := s.sources().Image()
	if image == nil {
		return machineconfig.Schematic(options.Image)
	}

	// A schematic that cannot be rendered is refused before it counts as desired.
	resolved, err := image.Resolve()
	if err != nil {
		return ""
	}

	return resolved.ID
}

// checkImage holds a machine in maintenance mode whose installer would not boot on it, or would take extensions away
// that its boot medium has. Nothing is sent to it, and it is queried again after the given time.
func (s *scope) checkImage(config []byte, again time.Duration) error {
	installer, err := machineconfig.InstallImage(config)
	if err != nil {
		return fmt.Errorf("reading the first config of %s: %w", s.machine.Name, err)
	}

	wait := func(reason, text string) error {
		return failure.Waiting(reason, fmt.Sprintf("nothing was sent to machine %s: %s", s.machine.Name, text), again)
	}

	if s.isIncomplete(*s.booted) {
		return wait(v1alpha1.ReasonImageUnknown, "it does not report whether it was booted with Secure Boot and which "+
			"extensions its boot medium has, so that its installer might take them away, or not boot: it is queried again; if "+
			"it never reports that, reboot it from its medium")
	}

	if reason, text := s.checkSigning(installer); reason != "" {
		return wait(reason, text)
	}

	if other := otherPlatform(s.booted.Platform, installer); other != "" {
		return wait(v1alpha1.ReasonPlatformMismatch, fmt.Sprintf("it runs on the platform %s, and %s is for %s: set "+
			"install.platform", s.booted.Platform, installer, other))
	}

	if lost := losses(s.booted.Names, installer, s.sources()); len(lost) > 0 {
		return wait(v1alpha1.ReasonExtensionsLost, fmt.Sprintf("its boot medium has the extensions %s, and %s has not: add "+
			"them to install.schematic, or name those that it may lose in install.dropExtensions", strings.Join(lost, ", "),
			installer))
	}

	return nil
}

// isIncomplete reports whether a node may have more than it has reported of what it has booted: what is unknown must
// not be overwritten. Talos before 1.5 has no security state to report, nor images for Secure Boot, and counts as
// having what it lists. A node in a container installs nothing.
func (s *scope) isIncomplete(image talos.Image) bool {
	version := s.facts.TalosVersion
	old := upgrade.IsVersion(version) && !imagefactory.Since(version, firstReporting)

	return !image.Told && !old && image.Platform != container
}

// firstReporting is the minor version of Talos 1 that first had a security state, container the platform of a node in a
// container.
const (
	firstReporting = 5
	container      = "container"
)

// checkSigning returns why an installer, signed for Secure Boot or not, does not go with the machine or the spec.
func (s *scope) checkSigning(installer string) (reason, text string) {
	options := s.sources().Install()

	signed, known := imagefactory.Signing(installer)
	wants := options.SecureBoot != nil && *options.SecureBoot
	on := s.booted.SecureBoot != nil && *s.booted.SecureBoot

	switch {
	case wants && !on:
		return v1alpha1.ReasonSecureBootOff, "it was not booted with Secure Boot, and install.secureBoot asks for it: " +
			"put its firmware into setup mode, boot an image for Secure Boot, and let it enroll the keys; or remove " +
			"install.secureBoot"
	case !known || signed:
		return "", ""
	case wants:
		return v1alpha1.ReasonSecureBootMismatch, fmt.Sprintf("%s is not signed for Secure Boot: name the installer "+
			"whose name ends with -secureboot, or set install.schematic", installer)
	case on:
		return v1alpha1.ReasonSecureBootMismatch, fmt.Sprintf("it was booted with Secure Boot, and %s is not signed "+
			"for that, so it would not boot again: set install.secureBoot, or switch Secure Boot off in its firmware",
			installer)
	case volume.HasTPM(desired.Volumes(s.sources())):
		return v1alpha1.ReasonSecureBootMismatch, fmt.Sprintf("the volumes need TPM keys, but %s is not signed for Secure "+
			"Boot: set install.secureBoot, or use keys of another type", installer)
	}

	return "", ""
}

// otherPlatform is the platform of an installer of a factory, if it is another one than what runs: the machine would
// look for its network and its name in another place. A node in a container runs no installer.
func otherPlatform(runs, installer string) string {
	image, ok := imagefactory.Parse(installer)
	if !ok || image.Platform == "" || runs == "" || runs == container || image.Platform == runs {
		return ""
	}

	return image.Platform
}

// losses are the extensions that run and that an installer does not have, as far as the spec tells what it has: what is
// in an installer that it or a patch names, or in a schematic that it names by ID, only the factory knows.
func losses(running []string, installer string, from desired.Sources) []string {
	options, image := from.Install(), from.Image()
	id := machineconfig.Schematic(installer)
	_, known := imagefactory.Signing(installer)

	switch {
	case id == "" && (options.Image != "" || !known):
		return nil
	case id == "":
		return imagefactory.Lost(running, nil, options.DropExtensions)
	case image == nil || image.Schematic == nil:
		return nil
	}

	// A patch may name another installer than that of the schematic.
	if resolved, err := image.Resolve(); err != nil || resolved.ID != id {
		return nil
	}

	return imagefactory.Lost(running, image.Schematic.Customization.SystemExtensions.OfficialExtensions,
		options.DropExtensions)
}

// mayLose reports whether the spec lets everything go that runs: by *, or each extension by its name.
func mayLose(running, mayGo []string) bool {
	return slices.Contains(mayGo, "*") || len(running) > 0 && len(imagefactory.Lost(running, nil, mayGo)) == 0
}
