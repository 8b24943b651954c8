package talosmachine

import (
	"cmp"
	"context"
	"fmt"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/talos"
)

// uuid is that of the machine that the object has described until now; empty while none was seen.
func (s *scope) uuid() string {
	if s.held == nil {
		return ""
	}

	return s.held.State.Runtime.UUID(s.machine.Name)
}

// checkIdentity refuses a node of the cluster that is another machine than the object describes: addresses get mixed
// up, and a DHCP server may hand them out anew. Its config, its member and its reset would be those of the other one.
func (s *scope) checkIdentity(uuid string) error {
	known := s.uuid()

	switch {
	case uuid == "" || uuid == known || uuid == s.machine.Annotations[v1alpha1.AcceptMachineAnnotation]:
		return nil
	case known == "":
		// Never seen: a node that runs already is taken over, unless it is known under another name.
		if owner := s.ownerOf(uuid); owner != "" {
			return s.refuseStranger(uuid, "it is "+owner)
		}

		return nil
	}

	return s.refuseStranger(uuid, s.whois(uuid))
}

// checkHardware does so for a machine in maintenance mode. A machine whose config it is to get has the keys of the
// cluster after that, those of all CAs where it is one of the control plane. A machine in maintenance mode shows
// nothing to prove who it is, so that a machine which has been here before gets another config only where its hardware
// is the same, or a person says so.
func (s *scope) checkHardware(uuid string) error {
	known, accepted := s.uuid(), s.machine.Annotations[v1alpha1.AcceptMachineAnnotation]
	if uuid != "" && uuid == known || accepted != "" && accepted == cmp.Or(uuid, v1alpha1.AcceptNoUUID) {
		return nil
	}

	if s.everConfigured() || known != "" && s.ownerOf(uuid) != "" {
		return s.refuseStranger(uuid, s.whois(uuid))
	}

	return nil
}

// ownerOf is the other machine that a UUID belongs to; empty when nobody knows.
func (s *scope) ownerOf(uuid string) string {
	if s.held == nil {
		return ""
	}

	owner := s.held.State.Runtime.OwnerOf(uuid)
	if owner == s.machine.Name {
		return ""
	}

	return owner
}

func (s *scope) whois(uuid string) string {
	if owner := s.ownerOf(uuid); owner != "" {
		return "it is " + owner
	}

	if uuid == "" {
		return "its identity cannot be verified"
	}

	return "no machine of the cluster has this UUID"
}

func (s *scope) refuseStranger(uuid, who string) error {
	s.stranger = true

	shows := "has the UUID " + uuid
	if uuid == "" {
		shows = "shows no UUID"
	}

	return failure.Waiting(v1alpha1.ReasonWrongMachine, fmt.Sprintf("the machine at %s %s and is not %s: "+
		"%s; nothing was sent to it: correct the address, or, if the hardware was exchanged, annotate the TalosMachine with "+
		"%s=%s", s.address, shows, s.machine.Name, who, v1alpha1.AcceptMachineAnnotation,
		cmp.Or(uuid, v1alpha1.AcceptNoUUID)), retryDisk)
}

// retryCertificate is how soon a machine in maintenance mode is asked again that shows another certificate than it has
// to: that lasts until it reboots or a person acts, and a change of the spec is noticed at once.
const retryCertificate = 5 * time.Minute

// refuseCertificate keeps everything from a machine in maintenance mode that does not show the certificate which the
// spec names. Fingerprints are public, so that both are told.
func (s *scope) refuseCertificate(wrong *talos.MismatchError) error {
	s.stranger = true

	return failure.Waiting(v1alpha1.ReasonMaintenanceCertificateMismatch, fmt.Sprintf("%s at %s is in maintenance mode "+
		"and shows the certificate fingerprint %s; maintenanceFingerprint is %s: nothing was sent. Correct the field if "+
		"the console of the machine shows the first one", s.machine.Name, s.address, wrong.Shown, wrong.Expected),
		retryCertificate)
}

// isAsBefore: what was decided in this pass is about the machine, and the boot of it, that was there before, also where
// neither has a UUID.
func (s *scope) isAsBefore(f talos.Facts) bool {
	return s.facts == nil || s.facts.UUID == f.UUID && s.facts.BootID == f.BootID
}

// self is the machine that was observed in this pass, in the boot that it was in.
func (s *scope) self() talos.Self { return talos.Self{UUID: s.facts.UUID, BootID: s.facts.BootID} }

// met: the machine itself has answered at the address in this pass, or nobody was ever there.
func (s *scope) met() bool { return s.facts != nil || !s.everConfigured() && !s.stranger }

// recordPlace keeps up where the machine is and what it is.
func (r *Reconciler) recordPlace(ctx context.Context, s *scope) (ctrl.Result, error) {
	if s.answer != talos.StateMember || s.facts == nil || !s.everConfigured() {
		return ctrl.Result{}, nil
	}

	have := s.held.State.Runtime.Machines[s.machine.Name]
	if have.Address == s.address && (s.facts.UUID == "" || have.UUID == s.facts.UUID) {
		return ctrl.Result{}, nil
	}

	err := r.States.Record(ctx, s.controlPlaneKey(), func(state *clusterstate.State) { r.markConfigured(s, state) })
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("recording where %s is: %w", s.machine.Name, err)
	}

	if have.Address != "" && have.Address != s.address {
		r.event(s, v1alpha1.ReasonReachable, "Move", "Found %s at %s instead of %s", s.machine.Name, s.address, have.Address)
	}

	return ctrl.Result{}, nil
}
