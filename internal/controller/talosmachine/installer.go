package talosmachine

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/change"
	"github.com/talos-operator/talos-operator/internal/decide/rollout"
	"github.com/talos-operator/talos-operator/internal/imagefactory"
	"github.com/talos-operator/talos-operator/internal/machineconfig"
	"github.com/talos-operator/talos-operator/internal/talos"
)

// refusal is why a member does not have the installer of the spec, or should not have it: the reason and the message of
// a condition.
type refusal struct{ reason, message string }

// checkInstaller finds out whether a member can take the installer of the spec. Where it cannot, its config keeps the
// one that it names: the next upgrade would use the other one, also an upgrade that the operator does not begin. The
// rest of the spec does not depend on the installer and is sent, so that one machine does not keep its group from
// changes. A member whose config names that installer already is told what is wrong about it.
//
// It follows from what the member reports in this boot, and never from the status: that is of the boot before until
// this reconciliation ends, and a result that follows from it would stay until something else changes.
func (r *Reconciler) checkInstaller(ctx context.Context, s *scope) error {
	live, err := machineconfig.InstallImage(s.live)
	if err != nil {
		return fmt.Errorf("reading the live config of %s: %w", s.machine.Name, err)
	}

	want := machineconfig.Released{Talos: s.upgraded()}.Installer(live, s.image)
	if want == "" {
		return nil
	}

	image, err := r.imageOf(ctx, s)
	if err != nil {
		return err
	}

	if s.incomplete = s.isIncomplete(image); s.incomplete {
		s.lookSoon(r.retryReport(s))
	}

	if machineconfig.SameRepository(live, want) {
		s.refused = s.checkNamed(image, want)
		if s.incomplete && s.refused == nil {
			s.refused = s.lastRefusal()
		}

		return nil
	}

	s.refused = s.refuseInstaller(image, live, want)
	s.keepsInstaller = s.refused != nil

	s.unknownInstaller = s.incomplete && s.keepsInstaller && s.refused.reason == v1alpha1.ReasonImageUnknown

	if s.unknownInstaller {
		s.refused = cmp.Or(s.lastRefusal(), s.refused)
	}

	return nil
}

// lastRefusal is what the status says to be wrong about the installer of this spec; nil if nothing. While a member has
// not reported everything it stays, and decides nothing: a condition would otherwise change at each boot, and back
// again.
func (s *scope) lastRefusal() *refusal {
	st := &s.machine.Status
	last := meta.FindStatusCondition(st.Conditions, v1alpha1.ConditionUpToDate)

	if last == nil || last.Status != metav1.ConditionFalse || !slices.Contains(refusals, last.Reason) ||
		st.ComparedTo != rollout.ComparedTo(s.controlPlane, s.worker, s.machine) {
		return nil
	}

	return &refusal{last.Reason, last.Message}
}

// refusals are the reasons of what is known to be wrong about an installer.
var refusals = []string{
	v1alpha1.ReasonSecureBootOff, v1alpha1.ReasonSecureBootMismatch, v1alpha1.ReasonPlatformMismatch,
	v1alpha1.ReasonExtensionsLost,
}

// waitsForReport reports whether nothing is decided before the member has reported what it has booted: its recorded
// change brings an installer that it could take when the change was planned. Without that installer it would be another
// change: the node would be made schedulable again, drained once more a moment later, and need another approval. A
// change that has not begun is not waited for longer than reportTime, because its group waits for the machine. A user
// may take the change back, for which nothing of the spec is sent. planned is the hash of the desired config with the
// installer of the spec.
func (r *Reconciler) waitsForReport(s *scope, planned string) bool {
	c := s.machine.Status.Change
	unwanted := s.machine.Annotations[v1alpha1.RevertAnnotation]

	if !s.unknownInstaller || c == nil || c.Target != planned || unwanted == planned {
		return false
	}

	return s.mustEnd() || change.Begun(c) || r.unreportedFor(s) < reportTime
}

// plannedHash is the hash of the desired config with the installer of the spec, where the member keeps another one;
// empty where it does not.
func (r *Reconciler) plannedHash(s *scope, rendered *machineconfig.Rendered) (string, error) {
	if !s.keepsInstaller {
		return "", nil
	}

	planned, _, err := machineconfig.KeepImageTags(s.live, rendered.Bytes, machineconfig.Released{Talos: s.upgraded()})
	if err != nil {
		return "", fmt.Errorf("keeping the versions of %s: %w", s.machine.Name, err)
	}

	hash, err := r.Hashes.Hash(planned)
	if err != nil {
		return "", fmt.Errorf("reading the desired config of %s: %w", s.machine.Name, err)
	}

	return hash, nil
}

// refuseInstaller says why a member whose config names another installer keeps that; nil if it takes the desired one.
func (s *scope) refuseInstaller(image talos.Image, live, want string) *refusal {
	if _, known := imagefactory.Signing(want); !known {
		return nil // what is in it, only its registry knows, and an upgrade to it is refused
	}

	reason, text := s.running(image, live, want).refuse(want)
	if reason == "" {
		return nil
	}

	return &refusal{reason, fmt.Sprintf("machine %s keeps its installer: %s", s.machine.Name, text)}
}

// checkNamed says what is wrong about the installer that the config of a member names; nil if nothing is, or if the
// member has not reported what it runs.
func (s *scope) checkNamed(image talos.Image, installer string) *refusal {
	on := s.sources().Install().SecureBoot
	asked := on != nil && *on
	runs := running{image: image}

	var reason, text string

	switch {
	case image.SecureBoot == nil && s.isIncomplete(image):
	case runs.signs(installer), runs.unsigns(installer):
		reason, text = runs.refuse(installer)
	case asked && image.Signed && !runs.secured():
		reason, text = v1alpha1.ReasonSecureBootOff, "it was installed for Secure Boot, and its firmware does not enforce "+
			"that, which install.secureBoot asks for: switch Secure Boot on in its firmware, or remove install.secureBoot"
	case asked && !runs.secured():
		reason, text = v1alpha1.ReasonSecureBootOff, "it runs without Secure Boot, which install.secureBoot asks for: "+
			"remove install.secureBoot, or replace the machine: wipe it and install it from a medium for Secure Boot"
	}

	if reason == "" {
		return nil
	}

	return &refusal{reason, fmt.Sprintf("machine %s: %s", s.machine.Name, text)}
}
