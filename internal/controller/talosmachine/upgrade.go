package talosmachine

import (
	"context"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/change"
	"github.com/talos-operator/talos-operator/internal/decide/upgrade"
	"github.com/talos-operator/talos-operator/internal/imagefactory"
	"github.com/talos-operator/talos-operator/internal/machineconfig"
	"github.com/talos-operator/talos-operator/internal/talos"
)

// system is an operating system: what a node runs, or should.
type system struct{ version, schematic string }

// mayChange reports whether the systems are compared again although nothing reports a change: a node reports later what
// it has not reported yet.
func (o *systems) mayChange() bool { return o != nil && o.incomplete }

func (o system) hash() string { return upgrade.SystemHash(o.version, o.schematic) }

// running is what a node runs: the system, the installer that its config names, and the hash of that config without it.
type running struct {
	system
	installer, config string
	// image is what it has booted.
	image talos.Image
	// lost are extensions of it that the installer of the spec does not have; mayLose if the spec lets all that run go.
	lost    []string
	mayLose bool
	// incomplete: it may have more than it has reported.
	incomplete bool
}

// systems are the operating systems that a comparison found.
type systems struct {
	live, want system
	// config is the hash of the live config, without the installer.
	config string
	// image installs the desired system, old what runs.
	image, old string
	// refused says why the desired system is not installed; empty if it may be.
	refused string
	// reverting: what the cluster is upgraded to is not desired on this machine, because it was rolled back.
	reverting bool
	// incomplete: the node may have more than it has reported, and is asked again.
	incomplete bool
}

// runs returns the hash of the system that runs; empty if none was compared.
func (o *systems) runs() string {
	if o == nil {
		return ""
	}

	return o.live.hash()
}

// upgraded returns the version that the node was upgraded to, once the upgrade of the cluster is over: then its config
// may name that installer. Before, each machine that is done would change the plan of those that are not.
func (s *scope) upgraded() string {
	cp := s.controlPlane
	if u := cp.Spec.Upgrade; u == nil || u.Talos != v1alpha1.UpgradeAutomatic || cp.Status.Upgrade != nil ||
		s.facts.TalosVersion != cp.Spec.TalosVersion {
		return ""
	}

	return s.facts.TalosVersion
}

// secured reports whether the firmware has verified what runs.
func (o running) secured() bool { return o.image.SecureBoot != nil && *o.image.SecureBoot }

// unsigns reports whether what runs is for Secure Boot, and an installer is known not to be.
func (o running) unsigns(image string) bool {
	signed, known := imagefactory.Signing(image)

	return (o.secured() || o.image.Signed) && known && !signed
}

// signs reports whether an installer is for Secure Boot, and what runs is known not to be.
func (o running) signs(image string) bool {
	signed, _ := imagefactory.Signing(image)

	return o.image.SecureBoot != nil && !o.secured() && !o.image.Signed && signed
}

// again returns the image that installs what runs, by what its config and the spec name. One that the machine would not
// boot is none.
func (o running) again(image, spec string) (string, bool) {
	for _, of := range []string{o.installer, image} {
		tag := machineconfig.NamedTag(of)
		if tag == "" && of == image {
			tag = spec // a digest alone is the installer of the version that the spec names beside it
		}

		// A tag that is no version may stand for anything.
		if tag != o.version && tag != spec && !upgrade.IsVersion(tag) || o.unsigns(of) || o.signs(of) {
			continue
		}

		if old, ok := o.sibling(of, tag); ok {
			return old, true
		}
	}

	return "", false
}

// sibling returns the image that installs what runs, of the repository of another one whose tag is known. A digest is
// that of one version with one schematic: it stays if these run, and otherwise the tag beside it leads to what runs.
func (o running) sibling(of, tag string) (string, bool) {
	if machineconfig.Pinned(of) && tag == o.version && machineconfig.WithSchematic(of, o.schematic) == of {
		return of, true
	}

	old, ok := machineconfig.Retag(machineconfig.WithoutDigest(of), tag, o.version)

	return machineconfig.WithSchematic(old, o.schematic), ok
}

// systemInput returns the evidence about the operating system, which has been compared.
func (r *Reconciler) systemInput(s *scope) change.Input {
	in := r.input(s)
	in.Edited, in.Reverting, in.Fields, in.Cuts = nil, s.systems.reverting, "", ""

	in.Live, in.Want = s.systems.live.hash(), s.systems.want.hash()

	if c := in.Record.Change; s.stalePath() && change.IsUpgrade(c) && !s.systems.reverting {
		in.Want = c.Target
	}

	in.Equal = in.Live == in.Want
	in.Worked = worked(&s.machine.Status, in.Live)
	in.Runs = v1alpha1.PreviousSystem{
		TalosVersion: s.systems.live.version, Schematic: s.systems.live.schematic, ConfigHash: s.systems.config,
	}
	in.Legacy = upgrade.Legacy(s.systems.live.version)

	return in
}

// worked returns the system with which the last upgrade of a machine was complete, if that has replaced what runs now.
// A machine that runs something else was installed anew, or by hand.
func worked(st *v1alpha1.TalosMachineStatus, live string) string {
	if p := st.PreviousSystem; p == nil || p.ReplacedBy != st.WorkingSystem || systemOf(p).hash() != live {
		return ""
	}

	return st.WorkingSystem
}

// stalePath reports whether the path of the upgrade is not planned for this spec yet: it neither begins an upgrade, nor
// ends one.
func (s *scope) stalePath() bool {
	cp := s.controlPlane
	u, o := cp.Status.Upgrade, cp.Spec.Upgrade

	return u != nil && o != nil && o.Talos == v1alpha1.UpgradeAutomatic && u.ObservedGeneration != cp.Generation
}

// recordSystem records how the node gets another operating system. A difference of configurations comes first.
func (r *Reconciler) recordSystem(ctx context.Context, s *scope) {
	// A rollback depends on no path.
	if s.systems == nil || s.stalePath() && !s.systems.reverting {
		return
	}

	in := r.systemInput(s)

	outcome, record := change.CompareTalos(in, s.systems.image)
	replaces := outcome == change.Described || outcome == change.FellBack
	if c := record.Change; replaces && s.keeps() && c != nil && (c.Staged || change.MayBeDrained(c)) {
		return // the record is all that tells what has to be undone on the node
	}

	switch o := s.systems; outcome {
	case change.FellBack:
		var event *change.Event
		if record, event = change.DescribeFallback(in, o.image, o.old, o.fields()); !s.keeps() {
			r.tell(s, event)
		}
	case change.Described:
		r.undrain(ctx, s)

		in.Record = record
		record = change.DescribeTalos(in, o.image, o.old, o.fields())
	case change.Forgone:
		record.Change, record.Intent = nil, nil
	case change.Kept, change.TakenOver, change.Unfinished:
	}

	s.record(record)
}

// fields names what an upgrade changes, as the fields of a configuration are named.
func (o *systems) fields() []v1alpha1.FieldChange {
	var out []v1alpha1.FieldChange

	if o.live.version != o.want.version {
		out = append(out, v1alpha1.FieldChange{Field: upgrade.FieldTalos, Old: o.live.version, New: o.want.version})
	}

	if o.live.schematic != o.want.schematic {
		out = append(out, v1alpha1.FieldChange{Field: upgrade.FieldSchematic, Old: o.live.schematic, New: o.want.schematic})
	}

	return out
}
