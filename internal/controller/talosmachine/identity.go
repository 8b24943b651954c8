package talosmachine

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/talos"
)

// uuid returns the UUID of the machine that the object has described so far; empty while none was observed.
func (s *scope) uuid() string {
	if s.held == nil {
		return ""
	}

	return s.held.State.Runtime.UUID(s.machine.Name)
}

// checkIdentity rejects a node of the cluster that is another machine than the object describes: addresses get mixed
// up, and a DHCP server may reassign them. Its configuration, its member and its reset would affect the other machine.
func (s *scope) checkIdentity(uuid string) error {
	known, accepted := s.uuid(), s.machine.Annotations[v1alpha1.AcceptMachineAnnotation]

	switch {
	case uuid == known || accepted != "" && accepted == cmp.Or(uuid, v1alpha1.AcceptNoUUID):
		return nil
	case known == "":
		// The machine was never observed: a running node is adopted, unless it is known under another name.
		if owner := s.ownerOf(uuid); owner != "" {
			return s.refuseStranger(uuid, "it is "+owner)
		}

		return nil
	}

	return s.refuseStranger(uuid, s.whois(uuid))
}

// checkHardware is checkIdentity for a machine in maintenance mode. Once such a machine is configured, it has the keys
// of the cluster, and those of all CAs if it is a control-plane machine. In maintenance mode it cannot prove its
// identity, so a machine that was configured before is configured again only if its hardware is the same, or a user
// confirms it.
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

// checkWiped is checkIdentity for a machine in maintenance mode at the address of one that is being removed: only the
// same hardware proves that the one to be removed was wiped. Another machine may have its address by now, while it
// continues to run at a new one.
func (r *Reconciler) checkWiped(ctx context.Context, s *scope) error {
	if s.uuid() == "" {
		return nil
	}

	uuid, err := r.Nodes.MaintenanceUUID(ctx, s.address, "")
	if err != nil {
		return err
	}

	refused := s.checkIdentity(uuid)
	if refused == nil {
		return nil
	}

	return failure.Waiting(v1alpha1.ReasonWrongMachine, fmt.Sprintf("%s. To go on without %s, annotate it with %s=true",
		failure.Message(refused), s.machine.Name, v1alpha1.SkipResetAnnotation), retryDisk)
}

// ownerOf returns the other machine that a UUID belongs to; empty if it is unknown.
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

// retryCertificate is how soon a machine in maintenance mode that presents an unexpected certificate is queried again.
// This state lasts until the machine reboots or a user acts, and a change of the spec is noticed immediately.
const retryCertificate = 5 * time.Minute

// refuseCertificate sends nothing to a machine in maintenance mode that does not present the certificate named in the
// spec. Fingerprints are public, so the message contains both.
func (s *scope) refuseCertificate(wrong *talos.MismatchError) error {
	s.stranger = true

	return failure.Waiting(v1alpha1.ReasonMaintenanceCertificateMismatch, fmt.Sprintf("%s at %s is in maintenance mode "+
		"and shows the certificate fingerprint %s; maintenanceFingerprint is %s: nothing was sent. Correct the field if "+
		"the console of the machine shows the first one", s.machine.Name, s.address, wrong.Shown, wrong.Expected),
		retryCertificate)
}

// isAsBefore reports whether the decisions of this reconciliation concern the same machine, in the same boot, as
// before, even if neither has a UUID.
func (s *scope) isAsBefore(f talos.Facts) bool {
	return s.facts == nil || s.facts.UUID == f.UUID && s.facts.BootID == f.BootID
}

// self returns the machine that was observed in this reconciliation, with its boot.
func (s *scope) self() talos.Self { return talos.Self{UUID: s.facts.UUID, BootID: s.facts.BootID} }

// met reports whether the machine itself has responded at the address in this reconciliation, or no machine was ever
// there.
func (s *scope) met() bool { return s.facts != nil || !s.everConfigured() && !s.stranger }
