package chaos_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"

	"github.com/talos-operator/talos-operator/lab/apid"
	"github.com/talos-operator/talos-operator/lab/chaos"
	"github.com/talos-operator/talos-operator/lab/node/quorum"
)

// estate is an etcd that a test makes up, and the oracle that judges it.
type estate struct {
	*chaos.Oracle

	now   time.Time
	etcds []quorum.View
	ready map[string]bool
}

func (e *estate) Clusters() []quorum.View { return e.etcds }

// newEstate has three voting members on m1, m2 and m3, a fourth machine without etcd, and a worker.
func newEstate() *estate {
	e := &estate{now: time.Unix(1000, 0), ready: map[string]bool{"m1": true, "m2": true, "m3": true, "w1": true}}
	e.Oracle = chaos.NewOracle(e, func() time.Time { return e.now })
	e.etcds = []quorum.View{{ID: 1, Authority: "ca", Members: []quorum.MemberView{member(1), member(2), member(3)}}}

	for _, name := range []string{"m1", "m2", "m3", "m4", "w1"} {
		e.Watch(name, name, func() bool { return e.ready[name] })
	}

	return e
}

func member(i uint64) quorum.MemberView {
	name := fmt.Sprintf("m%d", i)

	return quorum.MemberView{ID: i, Name: name, Dir: name, Data: true, Serving: true, Since: time.Unix(500, 0)}
}

// down takes a member away, by a fault or otherwise.
func (e *estate) down(i int, fault bool) {
	m := &e.etcds[0].Members[i-1]

	if fault {
		e.Fault(m.Name)
	}

	m.Serving, m.Since = false, e.now
}

func (e *estate) call(dir, method string, request any) {
	e.Called(dir, apid.Call{Method: "/machine.MachineService/" + method, Mutating: true, Request: request})
}

func (e *estate) pass(d time.Duration) { e.now = e.now.Add(d) }

// TestOracle: each rule finds what breaks it, and nothing else.
func TestOracle(t *testing.T) {
	apply := func(mode machine.ApplyConfigurationRequest_Mode) any {
		return &machine.ApplyConfigurationRequest{Mode: mode}
	}

	for name, c := range map[string]struct {
		happens func(*estate)
		want    chaos.Rule
		says    string
	}{
		"reboot of one of three": {happens: func(e *estate) { e.call("m1", "Reboot", nil) }},
		"reboot while another one is dead": {
			happens: func(e *estate) { e.down(2, true); e.pass(time.Minute); e.call("m1", "Reboot", nil) },
			want:    chaos.RuleQuorum, says: "Reboot of m1 leaves 1 of 3 voting members",
		},
		"reboot while another one dies": {
			happens: func(e *estate) { e.down(2, true); e.pass(time.Second); e.call("m1", "Reboot", nil) },
		},
		"two reboots": {
			happens: func(e *estate) {
				e.call("m2", "Reboot", nil)
				e.down(2, false)
				e.pass(time.Second)
				e.call("m1", "Reboot", nil)
			},
			want: chaos.RuleQuorum,
		},
		"reboot without quorum": {
			happens: func(e *estate) { e.down(2, true); e.down(3, true); e.pass(time.Minute); e.call("m1", "Reboot", nil) },
		},
		"reboot of the dead one": {
			happens: func(e *estate) { e.down(1, true); e.pass(time.Minute); e.call("m1", "Reboot", nil) },
		},
		"reboot of one of two": {
			happens: func(e *estate) { e.etcds[0].Members = e.etcds[0].Members[:2]; e.call("m1", "Reboot", nil) },
		},
		"config with a reboot while another one is dead": {
			happens: func(e *estate) {
				e.down(2, true)
				e.pass(time.Minute)
				e.call("m1", "ApplyConfiguration", apply(machine.ApplyConfigurationRequest_REBOOT))
			},
			want: chaos.RuleQuorum,
		},
		"config without a reboot while another one is dead": {
			happens: func(e *estate) {
				e.down(2, true)
				e.pass(time.Minute)
				e.call("m1", "ApplyConfiguration", apply(machine.ApplyConfigurationRequest_STAGED))
			},
		},
		"a member leaves": {happens: func(e *estate) { e.call("m1", "EtcdLeaveCluster", nil) }},
		"a member leaves while another one is dead": {
			happens: func(e *estate) { e.down(2, true); e.pass(time.Minute); e.call("m1", "EtcdLeaveCluster", nil) },
			want:    chaos.RuleQuorum, says: "EtcdLeaveCluster at m1 of the member on m1 leaves 1 of 2",
		},
		"the last member leaves": {
			happens: func(e *estate) { e.etcds[0].Members = e.etcds[0].Members[:1]; e.call("m1", "EtcdLeaveCluster", nil) },
			want:    chaos.RuleQuorum,
		},
		"a dead member is removed": {
			happens: func(e *estate) {
				e.down(2, true)
				e.pass(time.Minute)
				e.call("m1", "EtcdRemoveMemberByID", &machine.EtcdRemoveMemberByIDRequest{MemberId: 2})
			},
		},
		"a healthy member is removed instead of the dead one": {
			happens: func(e *estate) {
				e.down(2, true)
				e.pass(time.Minute)
				e.call("m1", "EtcdRemoveMemberByID", &machine.EtcdRemoveMemberByIDRequest{MemberId: 3})
			},
			want: chaos.RuleQuorum,
		},
		"wipe of a member": {
			happens: func(e *estate) { e.Yield("m1", true); e.call("m1", "Reset", nil) },
			want:    chaos.RuleWipe, says: "Reset of m1, which holds the data of a member",
		},
		"wipe of a member whose etcd is down": {
			happens: func(e *estate) { e.down(1, true); e.pass(time.Minute); e.call("m1", "Reset", nil) },
			want:    chaos.RuleWipe,
		},
		"wipe after a member has left": {
			happens: func(e *estate) {
				e.Yield("m1", true)
				e.etcds[0].Members = e.etcds[0].Members[1:]
				e.call("m1", "Reset", nil)
			},
		},
		"wipe of a healthy worker": {
			happens: func(e *estate) { e.call("w1", "Reset", nil) }, want: chaos.RuleWipe, says: "which no person gave up",
		},
		"wipe of a worker that was abandoned": {
			happens: func(e *estate) { e.Yield("w1", true); e.call("w1", "Reset", nil) },
		},
		"wipe of a worker that was abandoned and taken back": {
			happens: func(e *estate) { e.Yield("w1", true); e.Yield("w1", false); e.call("w1", "Reset", nil) },
			want:    chaos.RuleWipe,
		},
		"wipe in a cluster that was abandoned": {
			happens: func(e *estate) { e.Retire(); e.call("m1", "Reset", nil) },
		},
		"a second etcd": {
			happens: func(e *estate) { e.Founded(quorum.Founding{Cluster: 2, Dir: "m4", Others: e.etcds}) },
			want:    chaos.RuleSplit, says: "m4 founded etcd 0000000000000002 while m1, m2, m3 hold data",
		},
		"a second etcd while one disk is left": {
			happens: func(e *estate) {
				e.etcds[0].Members[0].Data, e.etcds[0].Members[2].Data = false, false
				e.Destroyed()
				e.Founded(quorum.Founding{Cluster: 2, Dir: "m4", Others: e.etcds})
			},
			want: chaos.RuleSplit, says: "while m2 hold",
		},
		"a new etcd after a total loss": {
			happens: func(e *estate) {
				e.Acknowledged(1, "a")

				for i := range e.etcds[0].Members {
					e.etcds[0].Members[i].Data, e.etcds[0].Members[i].Serving = false, false
				}

				e.Destroyed()
				e.Founded(quorum.Founding{Cluster: 2, Dir: "m4", Others: e.etcds})
				e.etcds = append(e.etcds, quorum.View{ID: 2, Members: []quorum.MemberView{member(4)}})
				e.Settled()
			},
		},
		"an etcd of another cluster": {
			happens: func(e *estate) { e.Founded(quorum.Founding{Cluster: 2, Dir: "x1", Others: e.etcds}) },
		},
		"all writes are kept": {
			happens: func(e *estate) { e.Acknowledged(1, "a"); e.etcds[0].Writes = []string{"a"}; e.Settled() },
		},
		"a write is lost": {
			happens: func(e *estate) { e.Acknowledged(1, "a"); e.Settled() },
			want:    chaos.RuleWrites, says: "1 acknowledged writes of etcd 0000000000000001 are lost",
		},
		"a write is lost with a minority of the disks": {
			happens: func(e *estate) {
				e.Acknowledged(1, "a")
				e.etcds[0].Members[0].Data = false
				e.Destroyed()

				for i := range e.etcds[0].Members {
					e.etcds[0].Members[i].Serving = false
				}

				e.Settled()
			},
			want: chaos.RuleWrites,
		},
		"two etcds serve": {
			happens: func(e *estate) {
				e.etcds = append(e.etcds, quorum.View{ID: 2, Members: []quorum.MemberView{member(4)}})
				e.Settled()
			},
			want: chaos.RuleSplit,
		},
		"the cluster does not come to rest": {
			happens: func(e *estate) { e.Stuck("m1 is stuck") }, want: chaos.RuleConvergence, says: "m1 is stuck",
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEstate()
			c.happens(e)

			got := e.Violations()

			switch {
			case c.want == "" && len(got) > 0:
				t.Errorf("violations: %+v", got)
			case c.want != "" && (len(got) != 1 || got[0].Rule != c.want || !strings.Contains(got[0].Message, c.says)):
				t.Errorf("violations: %+v, want one of %s that says %q", got, c.want, c.says)
			}
		})
	}
}

// TestDryRun: a call that asks for no change is not judged.
func TestDryRun(t *testing.T) {
	e := newEstate()
	e.Called("w1", apid.Call{Method: "/machine.MachineService/Reset"})

	if got := e.Violations(); len(got) > 0 {
		t.Errorf("violations: %+v", got)
	}
}
