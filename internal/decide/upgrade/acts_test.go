package upgrade_test

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/change"
	"github.com/talos-operator/talos-operator/internal/decide/upgrade"
	"github.com/talos-operator/talos-operator/internal/safety"
)

// perform does what a step asks for, and notes it.
func (s *machineScope) perform(in change.Input, act change.Act) end {
	switch act {
	case change.Drain:
		return s.drain()
	case change.Permit:
		s.permit()
	case change.Pull, change.Install, change.Uninstall:
		return s.install(in, act)
	case change.Upgrade, change.Reboot:
		return s.reboot(act)
	case change.AskStaged:
		s.pass.Asked, s.pass.Holds = true, s.node.disk != s.node.live
	case change.Stage, change.Apply:
		if !s.isItself() {
			return over
		}

		s.node.disk = in.Want
		if s.pass.Staged, s.pass.Sent = act == change.Stage, act == change.Apply; s.pass.Sent {
			s.node.live = in.Want
		}
	case change.Uncordon:
		s.node.cordoned, s.pass.Uncordoned = false, true
	case change.Remember:
		s.m.Status.WorkingHash, s.pass.Remembered = s.facts.config, true
	default:
	}

	return goesOn
}

// isItself reports whether the machine that was observed is reached, in the same boot.
func (s *machineScope) isItself() bool { return s.node.reachable() && s.node.bootID() == s.facts.boot }

func (s *machineScope) drain() end {
	i := s.m.Status.Intent
	if i == nil || i.Step != v1alpha1.StepDrain {
		s.m.Status.Intent = &v1alpha1.MachineIntent{Step: v1alpha1.StepDrain, Since: metav1.NewTime(s.now)}
		if !s.save() {
			return conflicts
		}
	}

	if s.node.cordoned, s.pass.Drained = true, !s.crowded; s.crowded {
		s.pass.Held = "pods"
	}

	return goesOn
}

// permit asks the safety kernel, with live evidence.
func (s *machineScope) permit() {
	if s.disruption == nil || s.disruption.Machine != s.m.Name {
		s.pass.Unrecorded = true

		return
	}

	nodes, moment := s.collect(s.list())

	v := safety.Permit(nodes, s.disruption.Machine, safety.Disruption{Act: safety.ActReboot, Machine: s.m.Name})
	if v.Action != safety.Proceed {
		s.pass.Held = v.Message

		return
	}

	s.pass.Permitted, s.evidence = true, moment

	for _, n := range nodes {
		if n.Name == s.m.Name {
			s.permitted = n.BootID
		}
	}
}

// reboot has the machine reboot, or install and reboot.
func (s *machineScope) reboot(act change.Act) end {
	n, c := s.node, s.m.Status.Change

	switch {
	case !s.isItself():
		return over
	case n.stage != stageRunning:
		return goesOn // it does already
	case s.permitted != n.bootID():
		s.Fatalf("%s of %s, which was not permitted in boot %d", act, n.name, n.boot)
	case change.IsUpgrade(c):
		s.mayBoot(act, versionOf(c.Image))
	case n.next != n.runs:
		s.Fatalf("a reboot of %s for its configuration boots %s instead of %s", n.name, n.next, n.runs)
	}

	if act == change.Upgrade {
		if s.oneOf(20, "the machine refuses") {
			s.m.Status.Change.Message = "it refuses"

			return over
		}

		n.legacy, n.target = s.outcome(), versionOf(c.Image)
	}

	s.takeAway(n, s.evidence)

	n.stage = map[change.Act]string{change.Reboot: stageRebooting, change.Upgrade: stageUpgrading}[act]
	n.due = s.now.Add(s.duration(string(act)))

	if n.legacy == hangs && act == change.Upgrade {
		n.due = s.now.Add(24 * time.Hour)
	}

	s.Logf("%s is asked to %s, for %+v", n.name, act, c)

	return goesOn
}

// mayBoot checks that a machine may be given a system.
func (s *machineScope) mayBoot(act change.Act, version string) {
	n := s.node

	switch {
	case n.fellBack == version:
		s.Fatalf("%s of %s on %s, which has fallen back from it, and no person has asked for it", act, version, n.name)
	case act == change.Reboot && n.next != version:
		s.Fatalf("%s boots %s instead of %s", n.name, n.next, version)
	case upgrade.Newer(n.runs, version):
		s.Fatalf("%s of %s on %s, which runs %s", act, version, n.name, n.runs)
	case etcdOf(version) < s.needs && etcdOf(n.runs) >= s.needs:
		s.Fatalf("%s of %s on %s, whose etcd cannot read the data of the others", act, version, n.name)
	}
}

// install starts an image on its way to the disk, or checks what has become of it.
func (s *machineScope) install(in change.Input, act change.Act) end {
	c := in.Record.Change
	id, image := c.ID+string(act), c.Image

	switch act {
	case change.Uninstall:
		image = c.OldImage
	case change.Install:
		s.mayBoot(act, versionOf(image))
	default:
	}

	j := s.jobs[s.m.Name]
	if j != nil && (j.id != id || j.image != versionOf(image) || j.boot != s.facts.boot) {
		s.dropJob(s.m.Name)

		j = nil
	}

	switch {
	case j == nil:
		s.startJob(&job{id: id, act: act, image: versionOf(image), boot: s.facts.boot})

		fallthrough
	case !j.ended:
		s.pass.Held = c.Message

		return goesOn
	}

	switch late := s.now.Sub(in.Record.Intent.Since.Time) >= in.Options.HealthTimeout; {
	case j.outcome == succeeds:
		s.pass.Pulled, s.pass.Installed = act == change.Pull, act == change.Install
		s.pass.Uninstalled = act == change.Uninstall
	case j.outcome == exits || late:
		delete(s.jobs, s.m.Name)
		s.pass.Failed, s.pass.Unsure = "the installer fails", j.outcome != exits
	default:
		delete(s.jobs, s.m.Name)

		s.m.Status.Change.Message = "the stream has ended"

		return over
	}

	return goesOn
}

func (s *machineScope) startJob(j *job) {
	n := s.node
	if j.outcome = s.outcome(); j.act == change.Pull && s.missing {
		j.outcome = exits
	}

	j.due = s.now.Add(s.duration(string(j.act)))
	if j.outcome == hangs { // until the time limit of an installer
		j.outcome, j.due = breaks, s.now.Add(30*time.Minute)
	}

	s.jobs[n.name] = j

	// One installer at a time, and none on a machine that goes down.
	if !s.isItself() || n.stage != stageRunning || n.job != nil {
		j.outcome, j.ended = breaks, true

		return
	}

	n.job = j
	s.Logf("%s of %s on %s begins", j.act, j.image, n.name)
}

// outcome draws what becomes of an installer: most succeed.
func (w *world) outcome() outcome {
	if w.quiet {
		return succeeds
	}

	return rapid.SampledFrom([]outcome{
		succeeds, succeeds, succeeds, succeeds, succeeds, succeeds, succeeds, succeeds, exits, breaks, hangs,
	}).Draw(w.T, "outcome")
}

// decommission takes a machine out of the cluster: its member leaves, then its object goes.
func (s *machineScope) decommission() bool {
	machines := s.list()
	nodes, moment := s.collect(machines)
	id := safety.MemberOf(nodes, s.m.Name)

	switch {
	case !s.between():
		return false
	case id == 0 && safety.Gone(nodes, s.m.Name):
		s.forget(s.m.Name)

		return true
	case !s.node.reachable():
		v := safety.Permit(nodes, s.m.Name, safety.Disruption{
			Act: safety.ActReplace, Machine: s.m.Name, Member: id, Gone: skipsReset(s.m),
		})
		if v.Action == safety.Proceed {
			s.drop(id, moment, true)
		}

		return true
	case s.disruption == nil || s.disruption.Machine != s.m.Name:
		return true
	}

	v := safety.Permit(nodes, s.m.Name, safety.Disruption{Act: safety.ActRemove, Machine: s.m.Name})
	if v.Action != safety.Proceed || !s.between() || !s.node.reachable() {
		return true
	}

	if s.drop(s.node.member, moment, false) {
		s.node.member, s.node.leaves = 0, true
	}

	return s.between()
}
