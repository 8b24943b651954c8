package chaos_test

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"

	"github.com/talos-operator/talos-operator/lab/apid"
	"github.com/talos-operator/talos-operator/lab/chaos"
	"github.com/talos-operator/talos-operator/lab/node/quorum"
)

// fleet is an etcd that a test makes up, and the oracle that judges it.
type fleet struct {
	*chaos.Oracle

	now   time.Time
	etcds []quorum.View
	ready map[string]bool
	// configs of the machines that are on.
	configs map[string]string
}

func (e *fleet) Clusters() []quorum.View { return e.etcds }

// newFleet has three voting members on m1, m2 and m3, a fourth machine without etcd, and a worker.
func newFleet() *fleet {
	e := &fleet{now: time.Unix(1000, 0), ready: map[string]bool{"m1": true, "m2": true, "m3": true, "w1": true}}
	e.configs = map[string]string{"m1": kubernetes("v1.35.1"), "m2": kubernetes("v1.35.1"), "m3": kubernetes("v1.35.1")}
	e.Oracle = chaos.NewOracle(e, func() time.Time { return e.now })
	e.etcds = []quorum.View{{ID: 1, Authority: "ca", Members: []quorum.MemberView{member(1), member(2), member(3)}}}

	for _, name := range []string{"m1", "m2", "m3", "m4", "w1"} {
		e.Watch(name, name, chaos.Machine{
			Ready: func() bool { return e.ready[name] }, Talos: func() string { return "v1.12.4" },
			Config: func() ([]byte, bool) { raw, on := e.configs[name]; return []byte(raw), on },
		})
	}

	return e
}

// kubernetes is a config whose components have a version, but for those that are given as "name version".
func kubernetes(version string, but ...string) string {
	out := ""

	for _, name := range []string{"kubelet", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy"} {
		v := version

		for _, b := range but {
			if other, ok := strings.CutPrefix(b, name+" "); ok {
				v = other
			}
		}

		out += "image: registry.k8s.io/" + name + ":" + v + "\n"
	}

	return out
}

func member(i uint64) quorum.MemberView {
	name := fmt.Sprintf("m%d", i)

	return quorum.MemberView{ID: i, Name: name, Dir: name, Data: true, Serving: true, Since: time.Unix(500, 0)}
}

// down takes a member away, by a fault or otherwise.
func (e *fleet) down(i int, fault bool) {
	m := &e.etcds[0].Members[i-1]

	if fault {
		e.Fault(m.Name)
	}

	m.Serving, m.Since = false, e.now
}

func (e *fleet) call(dir, method string, request any) {
	e.Called(dir, apid.Call{Method: "/machine.MachineService/" + method, Mutating: true, Request: request})
}

// apply sends a config that does not reboot.
func (e *fleet) apply(name, config string) {
	e.call(name, "ApplyConfiguration", &machine.ApplyConfigurationRequest{
		Data: []byte(config), Mode: machine.ApplyConfigurationRequest_NO_REBOOT,
	})
}

// upgrade sends the call of before Talos 1.13, which reboots.
func (e *fleet) upgrade(name, version string) {
	e.call(name, "Upgrade", &machine.UpgradeRequest{Image: "ghcr.io/siderolabs/installer:" + version})
}

// install sends the call since Talos 1.13, which does not, with the digest of an image that was pulled.
func (e *fleet) install(name, version string) {
	image := "ghcr.io/siderolabs/installer:" + version
	e.Called(name, apid.Call{
		Method: "/machine.ImageService/Pull", Request: &machine.ImageServicePullRequest{ImageRef: image},
	})
	e.Called(name, apid.Call{
		Method: "/machine.LifecycleService/Upgrade", Mutating: true,
		Request: &machine.LifecycleServiceUpgradeRequest{Source: &machine.InstallArtifactsSource{
			ImageName: fmt.Sprintf("ghcr.io/siderolabs/installer@sha256:%x", sha256.Sum256([]byte(image))),
		}},
	})
}

// grow adds two members.
func (e *fleet) grow() {
	e.etcds[0].Members = append(e.etcds[0].Members, member(4), member(5))
	e.Watch("m5", "m5", chaos.Machine{Config: func() ([]byte, bool) { return nil, false }})
}

// up brings a member back.
func (e *fleet) up(i int) {
	m := &e.etcds[0].Members[i-1]
	m.Serving, m.Since = true, e.now
}

func (e *fleet) pass(d time.Duration) { e.now = e.now.Add(d) }

// TestOracle: each rule finds what breaks it, and nothing else.
func TestOracle(t *testing.T) {
	apply := func(mode machine.ApplyConfigurationRequest_Mode) any {
		return &machine.ApplyConfigurationRequest{Mode: mode}
	}

	for name, c := range map[string]struct {
		happens func(*fleet)
		want    chaos.Rule
		says    string
	}{
		"reboot of one of three": {happens: func(e *fleet) { e.call("m1", "Reboot", nil) }},
		"reboot while another one is dead": {
			happens: func(e *fleet) { e.down(2, true); e.pass(time.Minute); e.call("m1", "Reboot", nil) },
			want:    chaos.RuleQuorum, says: "Reboot of m1 leaves 1 of 3 voting members",
		},
		"reboot while another one dies": {
			happens: func(e *fleet) { e.down(2, true); e.pass(time.Second); e.call("m1", "Reboot", nil) },
		},
		"two reboots": {
			happens: func(e *fleet) {
				e.call("m2", "Reboot", nil)
				e.down(2, false)
				e.pass(time.Second)
				e.call("m1", "Reboot", nil)
			},
			want: chaos.RuleQuorum,
		},
		"reboot of two of five": {
			happens: func(e *fleet) {
				e.grow()
				e.call("m2", "Reboot", nil)
				e.down(2, false)
				e.pass(time.Minute)
				e.call("m1", "Reboot", nil)
			},
			want: chaos.RuleAlone, says: "Reboot of m1 while m2 has not come back from its own",
		},
		"reboots of five one after the other": {
			happens: func(e *fleet) {
				e.grow()
				e.call("m2", "Reboot", nil)
				e.down(2, false)
				e.pass(time.Second)
				e.up(2)
				e.pass(time.Second)
				e.call("m1", "Reboot", nil)
			},
		},
		"a reboot that was not carried out, and a fault": {
			happens: func(e *fleet) {
				e.grow()
				e.call("m2", "Reboot", nil)
				e.pass(time.Second)
				e.down(2, true)
				e.pass(time.Minute)
				e.call("m1", "Reboot", nil)
			},
		},
		"reboot without quorum": {
			happens: func(e *fleet) { e.down(2, true); e.down(3, true); e.pass(time.Minute); e.call("m1", "Reboot", nil) },
		},
		"reboot of the dead one": {
			happens: func(e *fleet) { e.down(1, true); e.pass(time.Minute); e.call("m1", "Reboot", nil) },
		},
		"reboot of one of two": {
			happens: func(e *fleet) { e.etcds[0].Members = e.etcds[0].Members[:2]; e.call("m1", "Reboot", nil) },
		},
		"config with a reboot while another one is dead": {
			happens: func(e *fleet) {
				e.down(2, true)
				e.pass(time.Minute)
				e.call("m1", "ApplyConfiguration", apply(machine.ApplyConfigurationRequest_REBOOT))
			},
			want: chaos.RuleQuorum,
		},
		"config without a reboot while another one is dead": {
			happens: func(e *fleet) {
				e.down(2, true)
				e.pass(time.Minute)
				e.call("m1", "ApplyConfiguration", apply(machine.ApplyConfigurationRequest_STAGED))
			},
		},
		"a member leaves": {happens: func(e *fleet) { e.call("m1", "EtcdLeaveCluster", nil) }},
		"a member leaves while another one is dead": {
			happens: func(e *fleet) { e.down(2, true); e.pass(time.Minute); e.call("m1", "EtcdLeaveCluster", nil) },
			want:    chaos.RuleQuorum, says: "EtcdLeaveCluster at m1 of the member on m1 leaves 1 of 2",
		},
		"the last member leaves": {
			happens: func(e *fleet) { e.etcds[0].Members = e.etcds[0].Members[:1]; e.call("m1", "EtcdLeaveCluster", nil) },
			want:    chaos.RuleQuorum,
		},
		"a dead member is removed": {
			happens: func(e *fleet) {
				e.down(2, true)
				e.pass(time.Minute)
				e.call("m1", "EtcdRemoveMemberByID", &machine.EtcdRemoveMemberByIDRequest{MemberId: 2})
			},
		},
		"a healthy member is removed instead of the dead one": {
			happens: func(e *fleet) {
				e.down(2, true)
				e.pass(time.Minute)
				e.call("m1", "EtcdRemoveMemberByID", &machine.EtcdRemoveMemberByIDRequest{MemberId: 3})
			},
			want: chaos.RuleQuorum,
		},
		"wipe of a member": {
			happens: func(e *fleet) { e.Yield("m1", true); e.call("m1", "Reset", nil) },
			want:    chaos.RuleWipe, says: "Reset of m1, which holds the data of a member",
		},
		"wipe of a member whose etcd is down": {
			happens: func(e *fleet) { e.down(1, true); e.pass(time.Minute); e.call("m1", "Reset", nil) },
			want:    chaos.RuleWipe,
		},
		"wipe after a member has left": {
			happens: func(e *fleet) {
				e.Yield("m1", true)
				e.etcds[0].Members = e.etcds[0].Members[1:]
				e.call("m1", "Reset", nil)
			},
		},
		"wipe of a healthy worker": {
			happens: func(e *fleet) { e.call("w1", "Reset", nil) }, want: chaos.RuleWipe, says: "which no person gave up",
		},
		"wipe of a worker that was abandoned": {
			happens: func(e *fleet) { e.Yield("w1", true); e.call("w1", "Reset", nil) },
		},
		"wipe of a worker that was abandoned and taken back": {
			happens: func(e *fleet) { e.Yield("w1", true); e.Yield("w1", false); e.call("w1", "Reset", nil) },
			want:    chaos.RuleWipe,
		},
		"wipe in a cluster that was abandoned": {
			happens: func(e *fleet) { e.Retire(); e.call("m1", "Reset", nil) },
		},
		"a second etcd": {
			happens: func(e *fleet) { e.Founded(quorum.Founding{Cluster: 2, Dir: "m4", Others: e.etcds}) },
			want:    chaos.RuleSplit, says: "m4 founded etcd 0000000000000002 while m1, m2, m3 hold data",
		},
		"a second etcd while one disk is left": {
			happens: func(e *fleet) {
				e.etcds[0].Members[0].Data, e.etcds[0].Members[2].Data = false, false
				e.Destroyed()
				e.Founded(quorum.Founding{Cluster: 2, Dir: "m4", Others: e.etcds})
			},
			want: chaos.RuleSplit, says: "while m2 hold",
		},
		"a new etcd after a total loss": {
			happens: func(e *fleet) {
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
			happens: func(e *fleet) { e.Founded(quorum.Founding{Cluster: 2, Dir: "x1", Others: e.etcds}) },
		},
		"all writes are kept": {
			happens: func(e *fleet) { e.Acknowledged(1, "a"); e.etcds[0].Writes = []string{"a"}; e.Settled() },
		},
		"a write is lost": {
			happens: func(e *fleet) { e.Acknowledged(1, "a"); e.Settled() },
			want:    chaos.RuleWrites, says: "1 acknowledged writes of etcd 0000000000000001 are lost",
		},
		"a write is lost with a minority of the disks": {
			happens: func(e *fleet) {
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
			happens: func(e *fleet) {
				e.etcds = append(e.etcds, quorum.View{ID: 2, Members: []quorum.MemberView{member(4)}})
				e.Settled()
			},
			want: chaos.RuleSplit,
		},
		"the next minor of Talos": {happens: func(e *fleet) { e.upgrade("m1", "v1.13.9") }},
		"an installer that does not reboot": {
			happens: func(e *fleet) { e.down(2, true); e.pass(time.Minute); e.install("m1", "v1.13.9") },
		},
		"an upgrade that reboots while another one is dead": {
			happens: func(e *fleet) { e.down(2, true); e.pass(time.Minute); e.upgrade("m1", "v1.13.9") },
			want:    chaos.RuleQuorum, says: "Upgrade of m1 leaves 1 of 3",
		},
		"Talos skips a minor": {
			happens: func(e *fleet) { e.upgrade("m1", "v1.14.0") }, want: chaos.RuleVersion, says: "a minor is skipped",
		},
		"Talos skips a minor, by a digest": {
			happens: func(e *fleet) { e.install("w1", "v1.14.0") }, want: chaos.RuleVersion, says: "a minor is skipped",
		},
		"an older Talos": {
			happens: func(e *fleet) { e.upgrade("m1", "v1.12.3") }, want: chaos.RuleVersion, says: "1.12.3 is installed on m1",
		},
		"the Talos that runs": {
			happens: func(e *fleet) { e.install("m1", "v1.12.4") }, want: chaos.RuleVersion, says: "m1, which runs it",
		},
		"a newer API server": {
			happens: func(e *fleet) { e.apply("m1", kubernetes("v1.35.1", "kube-apiserver v1.36.2")) },
		},
		"an API server skips a minor": {
			happens: func(e *fleet) { e.apply("m1", kubernetes("v1.35.1", "kube-apiserver v1.37.0")) },
			want:    chaos.RuleVersion, says: "kube-apiserver of m1 goes from 1.35.1 to 1.37.0: a minor is skipped",
		},
		"a kubelet newer than an API server": {
			happens: func(e *fleet) {
				e.configs["m1"] = kubernetes("v1.35.1", "kube-apiserver v1.36.2")
				e.apply("m1", kubernetes("v1.35.1", "kube-apiserver v1.36.2", "kubelet v1.36.2"))
			},
			want: chaos.RuleVersion, says: "kubelet of m1 becomes 1.36.2, and the API server of m2 is 1.35.1",
		},
		"a kubelet newer than an API server that is off": {
			happens: func(e *fleet) {
				e.configs["m1"] = kubernetes("v1.35.1", "kube-apiserver v1.36.2")
				e.configs["m2"] = kubernetes("v1.35.1", "kube-apiserver v1.36.2")
				e.apply("m1", e.configs["m1"])
				delete(e.configs, "m3")
				e.apply("w1", "image: ghcr.io/siderolabs/kubelet:v1.36.2\n")
			},
			want: chaos.RuleVersion, says: "the API server of m3 is 1.35.1",
		},
		"a scheduler after all API servers": {
			happens: func(e *fleet) {
				for name := range e.configs {
					e.configs[name] = kubernetes("v1.35.1", "kube-apiserver v1.36.2")
				}

				e.apply("m1", kubernetes("v1.35.1", "kube-apiserver v1.36.2", "kube-scheduler v1.36.2"))
			},
		},
		"the cluster does not come to rest": {
			happens: func(e *fleet) { e.Stuck("m1 is stuck") }, want: chaos.RuleConvergence, says: "m1 is stuck",
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := newFleet()
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
	e := newFleet()
	e.Called("w1", apid.Call{Method: "/machine.MachineService/Reset"})

	if got := e.Violations(); len(got) > 0 {
		t.Errorf("violations: %+v", got)
	}
}
