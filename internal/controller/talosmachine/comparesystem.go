package talosmachine

import (
	"context"
	"fmt"
	"strings"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/change"
	"github.com/talos-operator/talos-operator/internal/decide/upgrade"
	"github.com/talos-operator/talos-operator/internal/imagefactory"
	"github.com/talos-operator/talos-operator/internal/machineconfig"
	"github.com/talos-operator/talos-operator/internal/talos"
)

// compareSystem compares the operating system of a node with the one that its cluster is upgraded to. It changes
// nothing on the node, and records what ran before what has been booted.
func (r *Reconciler) compareSystem(ctx context.Context, s *scope) (ctrl.Result, error) {
	if !s.compared || s.facts == nil || s.facts.TalosVersion == "" || !s.mayUpgrade() {
		return ctrl.Result{}, nil
	}

	image, err := r.imageOf(ctx, s)
	if err != nil {
		return ctrl.Result{}, err
	}

	incomplete := s.isIncomplete(image)
	if c := s.machine.Status.Change; incomplete && change.IsUpgrade(c) &&
		(change.Begun(c) || r.unreportedFor(s) < reportTime) {
		// Which decides nothing: the upgrade was planned with a report. As in waitsForReport, one that has not begun is not
		// waited for longer.
		c.Message = "waiting for the machine to report what it has booted"
		if r.unreportedFor(s) >= reportTime {
			c.Message = fmt.Sprintf("the machine has not reported within %s what it has booted: reboot it", reportTime)
		}

		s.lookSoon(r.retryReport(s))

		return ctrl.Result{}, nil
	}

	live, err := machineconfig.InstallImage(s.live)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("reading the live config of %s: %w", s.machine.Name, err)
	}

	config, err := r.Hashes.HashWithoutInstaller(s.live)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("reading the live config of %s: %w", s.machine.Name, err)
	}

	runs := s.running(image, live, s.image)
	runs.config = config

	st := &s.machine.Status
	st.PreviousSystem = change.Previous(st.Change, st.PreviousSystem, runs.hash())

	var found systems
	if s.unsourced != nil {
		found = endSystems(s, runs)
	} else {
		found = compareSystems(s.controlPlane, s.machine, runs, s.image)
		s.ahead = installerAhead(s.controlPlane, s.machine, runs, s.image)
	}

	if found.incomplete = incomplete; incomplete {
		s.lookSoon(r.retryReport(s))
	}

	s.systems = &found

	return ctrl.Result{}, nil
}

// running is what the machine runs, with what it would lose by an installer that the spec asks for. live is the one
// that its config names.
func (s *scope) running(image talos.Image, live, installer string) running {
	from := s.sources()

	return running{
		system: system{s.facts.TalosVersion, image.Schematic}, installer: live, image: image,
		lost: losses(image.Names, installer, from), mayLose: mayLose(image.Names, from.Install().DropExtensions),
		incomplete: s.isIncomplete(image),
	}
}

// mayUpgrade reports whether the operating system of the machine is compared: where upgrades are automatic, where one
// has been planned, and where one may have to be rolled back.
func (s *scope) mayUpgrade() bool {
	u, c := s.controlPlane.Spec.Upgrade, s.machine.Status.Change

	return u != nil && u.Talos == v1alpha1.UpgradeAutomatic || c != nil && c.Kind == v1alpha1.ChangeTalos ||
		s.machine.Annotations[v1alpha1.RevertAnnotation] != "" && s.machine.Status.PreviousSystem != nil
}

// upgradesTalos reports whether machines may be given another Talos: one upgrade at a time, so not while they are given
// another Kubernetes.
func upgradesTalos(cp *v1alpha1.TalosControlPlane) bool {
	o, u := cp.Spec.Upgrade, cp.Status.Upgrade

	return o != nil && o.Talos == v1alpha1.UpgradeAutomatic &&
		(u == nil || u.KubernetesVersion == "" && u.KubernetesBegun == "")
}

// compareSystems is pure. image is the installer that the spec names.
func compareSystems(cp *v1alpha1.TalosControlPlane, m *v1alpha1.TalosMachine, runs running, image string) systems {
	out := systems{live: runs.system, want: runs.system, config: runs.config}
	if upgradesTalos(cp) {
		out.follow(cp, m, runs, image)
	}

	// What a user does not want is not brought to the machine, whatever the path is, and however far it has come.
	unwanted := m.Annotations[v1alpha1.RevertAnnotation]

	switch {
	case unwanted == out.want.hash(), unwanted == out.live.hash():
		out.revert(m, runs, image, cp.Spec.TalosVersion)
	case out.want != out.live:
		out.choose(cp.Spec.TalosVersion, runs, image)

		if out.refused == "" {
			_, out.refused = runs.refuse(image)
		}
	}

	if out.refused != "" {
		out.want = out.live
	}

	return out
}

// follow sets the desired system of a machine at this step of the path.
func (o *systems) follow(cp *v1alpha1.TalosControlPlane, m *v1alpha1.TalosMachine, runs running, image string) {
	u, worker := cp.Status.Upgrade, m.Spec.WorkerRef != nil
	turn := !worker || u == nil || u.ControlPlaneDone

	// The version of the path, never that of the spec: no machine goes ahead of a path that others have not gone. One that
	// is ahead of it, because its first config was that of the spec, stays where it is.
	step := u != nil && turn && upgrade.Newer(u.TalosVersion, o.live.version)
	if step {
		o.want.version = u.TalosVersion
	}

	// A schematic comes, and goes, with a version, or once no version is left. Then it is a step of its own, which is
	// planned for the machines that want one: a worker wants one before its turn, and its group has it wait.
	alone := o.live.version == cp.Spec.TalosVersion && (turn || u.SchematicsOnly || u.TalosVersion == "")

	id := machineconfig.Schematic(image)
	if (step || alone) && (id != "" || runs.drops(image, step)) {
		o.want.schematic = id
	}
}

// drops reports whether an installer takes the schematic away from what runs, and may. One without which nothing is
// lost goes with a version: by itself it is no reason to reboot a machine.
func (o running) drops(image string, withVersion bool) bool {
	_, known := imagefactory.Signing(image)

	return o.replaces(image) && known && (o.mayLose || withVersion && o.isBare())
}

// replaces reports whether an installer without schematic is that of the Talos project, or comes from elsewhere than
// the one that the config names, which may have the schematic that runs.
func (o running) replaces(image string) bool {
	_, known := imagefactory.Signing(image)

	return machineconfig.Schematic(image) == "" && (known || !machineconfig.SameRepository(o.installer, image))
}

// choose sets the images that install the desired system and what runs, or why that is refused. image is the installer
// that the spec names.
func (o *systems) choose(spec string, runs running, image string) {
	ok, tag := true, machineconfig.NamedTag(image)
	if machineconfig.Pinned(image) && !upgrade.IsVersion(tag) {
		tag = "" // beside a digest it may be any word
	}

	if o.image = image; o.want.version != spec {
		o.image, ok = machineconfig.Retag(image, spec, o.want.version)
	}

	old, known := runs.again(image, spec)
	o.old = old

	switch {
	case tag != "" && tag != spec && !strings.HasPrefix(tag, spec+"-"):
		o.refused = fmt.Sprintf("the spec asks for Talos %s, and its installer is %s: name the one of that version", spec,
			image)
	case !ok:
		o.refused = fmt.Sprintf("the path of the upgrade goes through Talos %s, and %s does not tell which image that is: "+
			"name the installer with the tag %s and without a digest", o.want.version, image, spec)
	case !known:
		o.refused = fmt.Sprintf("the image that installs Talos %s again, should the upgrade fail, is unknown: name the "+
			"installer with its version as the tag, also where it has a digest", o.live.version)
	}
}

// refuse says why what runs must not be replaced by an installer, with the reason of a condition: what would be lost,
// that the machine would not boot again, or what is unknown. Both are empty if it may be. What is known to be wrong
// comes first, so that the reason is the same before and after the machine has reported the rest.
func (o running) refuse(image string) (reason, text string) {
	_, known := imagefactory.Signing(image)
	replaces := o.schematic != "" && o.replaces(image)

	if reason, text = o.refuseSigning(image); reason != "" {
		return reason, text
	}

	switch {
	case otherPlatform(o.image.Platform, image) != "":
		return v1alpha1.ReasonPlatformMismatch, fmt.Sprintf("it runs on the platform %s, and %s is for %s, so it would lose "+
			"its network: set install.platform", o.image.Platform, image, otherPlatform(o.image.Platform, image))
	case len(o.lost) > 0:
		return v1alpha1.ReasonExtensionsLost, fmt.Sprintf("it would lose the extensions %s, which %s does not have: add "+
			"them to install.schematic, or name them in install.dropExtensions", strings.Join(o.lost, ", "), image)
	case replaces && !o.mayLose && len(o.image.Names) > 0:
		return v1alpha1.ReasonExtensionsLost, fmt.Sprintf("it would lose the extensions %s of the schematic %s, which %s "+
			"does not have: set the installer image of the factory with that schematic, or another one, or name the "+
			"extensions in install.dropExtensions", strings.Join(o.image.Names, ", "), o.schematic, image)
	case o.incomplete:
		return v1alpha1.ReasonImageUnknown, o.unreported() + ", so that it is unknown what another installer would take " +
			"away: it is queried again; if it never reports that, reboot it"
	case replaces && !o.mayLose && !o.isBare():
		return o.refuseOverlay(image)
	case replaces && !known:
		return v1alpha1.ReasonUpgradeUnsupported, fmt.Sprintf("it runs the schematic %s, and the name of %s does not "+
			"contain one, so it could not be told whether the upgrade succeeded: set an installer of a factory, or that of "+
			"the Talos project", o.schematic, image)
	}

	return "", ""
}

// refuseSigning says why the firmware of the machine, or what it was installed for, does not go with an installer.
func (o running) refuseSigning(image string) (reason, text string) {
	switch {
	case o.unsigns(image) && o.secured():
		return v1alpha1.ReasonSecureBootMismatch, fmt.Sprintf("it boots with Secure Boot, and %s is not signed for that, so "+
			"it would not boot again: set install.secureBoot, or name the installer whose name ends with -secureboot", image)
	case o.unsigns(image):
		return v1alpha1.ReasonSecureBootMismatch, fmt.Sprintf("it was installed for Secure Boot, and %s is not signed for "+
			"that: Talos cannot be changed from one to the other by an upgrade; set install.secureBoot, or replace the "+
			"machine: wipe it and install it without", image)
	case o.signs(image):
		return v1alpha1.ReasonSecureBootOff, fmt.Sprintf("it runs without Secure Boot, and %s is for machines with it: "+
			"Talos cannot be changed from one to the other by an upgrade; remove install.secureBoot, or replace the machine: "+
			"wipe it and install it from a medium for Secure Boot", image)
	}

	return "", ""
}

// unreported says what an incomplete report of a machine lacks.
func (o running) unreported() string {
	if o.image.SecureBoot != nil {
		return "it does not report which extensions it has"
	}

	return "it does not report whether it runs with Secure Boot and which extensions it has"
}

// refuseOverlay says why a schematic without extensions is not taken away: the overlay of a single-board computer, or
// that it is unknown whether there is one.
func (o running) refuseOverlay(image string) (reason, text string) {
	if overlay, _ := imagefactory.HasOverlay(o.schematic, o.image.SchematicText); overlay {
		return v1alpha1.ReasonExtensionsLost, fmt.Sprintf("it would lose the overlay of the schematic %s, without which a "+
			"single-board computer does not boot, and which %s does not have: set the installer image of the factory with "+
			"that schematic, or install.dropExtensions to [\"*\"]", o.schematic, image)
	}

	return v1alpha1.ReasonImageUnknown, fmt.Sprintf("it has no extensions and does not report what else is in its "+
		"schematic %s, such as the overlay of a single-board computer, which %s does not have: set the installer image of "+
		"the factory with that schematic, or install.dropExtensions to [\"*\"] if nothing of it is needed", o.schematic,
		image)
}

// isBare reports whether a machine loses nothing that it needs with its schematic: it has no extension, and its
// schematic is known to have no overlay. Kernel arguments come with an installer, and go with it.
func (o running) isBare() bool {
	overlay, known := imagefactory.HasOverlay(o.schematic, o.image.SchematicText)

	return !o.incomplete && len(o.image.Names) == 0 && known && !overlay
}
