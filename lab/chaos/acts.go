package chaos

import (
	"path"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"

	"github.com/talos-operator/talos-operator/lab/apid"
	"github.com/talos-operator/talos-operator/lab/node/quorum"
)

// Called judges a call that has reached the machine whose etcd keeps its data in dir, before it has any effect.
func (o *Oracle) Called(dir string, c apid.Call) {
	o.mu.Lock()
	defer o.mu.Unlock()

	o.pulled(c)

	s := o.subjects[dir]
	if s == nil || !c.Mutating {
		return
	}

	switch act := path.Base(c.Method); act {
	case "Upgrade":
		if o.installed(s, c.Request); !installs(c) {
			o.away(s, dir, act)
		}
	case "Reboot", "Shutdown", "Rollback":
		o.away(s, dir, act)
	case "ApplyConfiguration":
		r, _ := c.Request.(*machine.ApplyConfigurationRequest)
		if o.configured(s, dir, r); reboots(c.Request) {
			o.away(s, dir, act)
		}
	case "Reset":
		o.wiped(s, dir)
	case "EtcdLeaveCluster":
		o.left(s, act, func(m quorum.MemberView) bool { return m.Dir == dir })
	case "EtcdRemoveMemberByID":
		if r, ok := c.Request.(*machine.EtcdRemoveMemberByIDRequest); ok {
			o.left(s, act, func(m quorum.MemberView) bool { return m.ID == r.GetMemberId() })
		}
	}
}

// reboots tells whether a config may reboot the node that gets it.
func reboots(request any) bool {
	r, ok := request.(*machine.ApplyConfigurationRequest)

	return ok && (r.GetMode() == machine.ApplyConfigurationRequest_REBOOT ||
		r.GetMode() == machine.ApplyConfigurationRequest_AUTO)
}

// leastVoters is the size from which on an etcd survives that one member is away. A smaller one is interrupted by every
// reboot; that is allowed, because the data stay on the disk.
const leastVoters = 3

// away judges an act that takes a member away for a while.
func (o *Oracle) away(s *subject, dir, act string) {
	for _, c := range o.mine() {
		for _, m := range c.Members {
			if m.Dir != dir || m.Learner || !o.hasQuorum(c) {
				continue
			}

			if voters, alive := o.tally(c, true, &m); voters >= leastVoters && alive <= voters/2 {
				o.violate(RuleQuorum, "%s of %s leaves %d of %d voting members", act, s.name, alive, voters)
			} else {
				o.alone(s, act, c)
			}

			if m.Serving {
				s.acted = o.clock()
			}
		}
	}
}

// left judges an act that takes a member away for good.
func (o *Oracle) left(s *subject, act string, which func(quorum.MemberView) bool) {
	for _, c := range o.mine() {
		for _, m := range c.Members {
			if !which(m) || m.Learner || !o.hasQuorum(c) {
				continue
			}

			voters, alive := o.tally(c, true, &m)
			if voters--; alive <= voters/2 {
				o.violate(RuleQuorum, "%s at %s of the member on %s leaves %d of %d voting members", act, s.name,
					o.nameOf(m), alive, voters)
			}
		}
	}
}

// wiped judges a wipe.
func (o *Oracle) wiped(s *subject, dir string) {
	for _, c := range o.mine() {
		for _, m := range c.Members {
			if m.Dir == dir && m.Data {
				o.violate(RuleWipe, "Reset of %s, which holds the data of a member of etcd %016x", s.name, c.ID)

				return
			}
		}
	}

	if !s.yielded && s.Ready() {
		o.violate(RuleWipe, "Reset of %s, whose node is ready and which no person gave up", s.name)
	}
}

func (o *Oracle) hasQuorum(c quorum.View) bool {
	voters, alive := o.tally(c, false, nil)

	return alive > voters/2
}

// tally counts the voting members, and those that serve but for one. Excused counts those as well that a fault has only
// just taken away.
func (o *Oracle) tally(c quorum.View, excused bool, without *quorum.MemberView) (voters, alive int) {
	for _, m := range c.Members {
		if m.Learner {
			continue
		}

		voters++

		if without != nil && m.ID == without.ID {
			continue
		}

		if m.Serving || excused && o.isExcused(m) {
			alive++
		}
	}

	return voters, alive
}

func (o *Oracle) isExcused(m quorum.MemberView) bool {
	s := o.subjects[m.Dir]

	return s != nil && !s.faulted.IsZero() && !m.Since.Before(s.faulted) && o.clock().Sub(m.Since) < excuse
}
