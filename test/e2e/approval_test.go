package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	talosclient "github.com/siderolabs/talos/pkg/machinery/client"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/test/wait"
)

// cli runs a command of the operator as a person does. It returns the exit code and what was printed.
func (w *world) cli(args ...string) (int, string) {
	w.t.Helper()

	var out bytes.Buffer

	cmd := exec.Command(operator, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+w.kubeconfigOf(w.plane, "cli"))
	cmd.Stdout, cmd.Stderr = &out, &out

	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		w.t.Fatal(err)
	}

	return cmd.ProcessState.ExitCode(), out.String()
}

// says runs a command and compares its exit code and a part of its output.
func (w *world) says(code int, part string, args ...string) string {
	w.t.Helper()

	got, out := w.cli(args...)
	if got != code || !strings.Contains(out, part) {
		w.t.Errorf("%v ends with %d, not %d and %q:\n%s", args, got, code, part, out)
	}

	return out
}

// rollout sets how changes reach the machines of a cluster.
func (w *world) rollout(cluster string, o v1alpha1.RolloutOptions) {
	w.t.Helper()
	change(w, &vitistackv1alpha1.KubernetesCluster{}, cluster, func(k *vitistackv1alpha1.KubernetesCluster) {
		k.Spec.Rollout = &o
	})
}

// plan waits until the plan of a control plane or worker group is in a phase.
func (w *world) plan(of func() *v1alpha1.PlanStatus, phase v1alpha1.PlanPhase, part string) {
	w.t.Helper()
	w.eventually(fmt.Sprintf("the plan is %s, %q", phase, part), func(context.Context) error {
		p := of()
		if p == nil || p.Phase != phase || !strings.Contains(p.Message, part) {
			return fmt.Errorf("it is %+v", p)
		}

		return nil
	})
}

func (w *world) planOfControlPlane(name string) func() *v1alpha1.PlanStatus {
	return func() *v1alpha1.PlanStatus {
		cp := &v1alpha1.TalosControlPlane{}
		w.get(cp, name)

		return cp.Status.Plan
	}
}

func (w *world) planOfWorkers(cluster string) func() *v1alpha1.PlanStatus {
	return func() *v1alpha1.PlanStatus {
		workers := &v1alpha1.TalosWorker{}
		w.get(workers, cluster+"-workers")

		return workers.Status.Plan
	}
}

// TestApproval: with manual approval nothing happens before a user has read the plan and agreed to this one.
func TestApproval(t *testing.T) {
	w := newWorld(t)
	for i := range 3 {
		w.boot(i + 1)
	}

	w.apply(clusterManifest("asked", w.address(1), []string{w.address(1)}, []string{w.address(2), w.address(3)}))
	w.running("asked")
	w.reboot(1, 2)
	w.sendAgain("asked", 3)
	w.says(0, "Nothing changes", "plan", "asked")

	w.rollout("asked", v1alpha1.RolloutOptions{Approval: v1alpha1.ApprovalManual})
	w.patchCluster("asked", "machine: {nodeLabels: {shelf: seven}, registries: {config: {example.org: "+
		"{auth: {username: u, password: hush-hush}}}}}")

	out := w.says(2, "AwaitingApproval", "plan", "asked")
	for _, text := range []string{"asked-cp-0", "asked-workers-0", "asked-workers-1", "Pending"} {
		if !strings.Contains(out, text) {
			t.Errorf("the plan does not show %s:\n%s", text, out)
		}
	}

	out = w.says(2, "+machine.nodeLabels.shelf: seven", "plan", "asked", "-o", "diff")
	out += w.says(2, `"phase": "AwaitingApproval"`, "plan", "asked", "-o", "json")

	if strings.Contains(out, "hush") {
		t.Errorf("the plan shows a password:\n%s", out)
	}

	w.says(1, "unknown output format", "plan", "asked", "-o", "toml")
	w.says(1, "no KubernetesCluster", "plan", "nobody")
	w.says(1, "review the plan again", "approve", "asked", "--plan", "0123456789ab")

	w.idle(5 * time.Second)

	if err := w.labelled("asked", "shelf", "seven", 0)(context.Background()); err != nil {
		t.Errorf("something was changed without approval: %v", err)
	}

	stale := w.planOfWorkers("asked")().ID

	w.patchCluster("asked", "machine: {nodeLabels: {shelf: eight}}")
	w.says(2, "AwaitingApproval", "plan", "asked")
	w.says(1, "review the plan again", "approve", "asked", "--plan", stale)
	w.says(0, "approved", "approve", "asked")
	w.eventually("the approved change is everywhere", w.upToDate("asked"))
	w.eventually("the Nodes have it", w.labelled("asked", "shelf", "eight", 3))
	w.says(0, "Nothing changes", "plan", "asked")
	w.says(0, "Nothing to approve", "approve", "asked")
	w.searchSecrets("asked")
}

// TestBadConfigStops: a config that makes a node unhealthy stops at the canary, also across a crash of the manager; the
// node gets the last config that worked back while it is unhealthy, and a corrected spec goes through.
func TestBadConfigStops(t *testing.T) {
	w := newWorld(t)
	for i := range 4 {
		w.boot(i + 1)
	}

	w.apply(clusterManifest("sick", w.address(1), []string{w.address(1)},
		[]string{w.address(2), w.address(3), w.address(4)}))
	w.running("sick")
	w.reboot(2)
	w.sendAgain("sick", 3)
	w.rollout("sick", v1alpha1.RolloutOptions{
		MaxUnavailable: new(intstr.FromString("100%")), HealthTimeout: &metav1.Duration{Duration: 8 * time.Second},
	})
	w.eventually("all is well", w.upToDate("sick"))

	identity := w.identity("sick")

	setFlags := func(args map[string]string) {
		change(w, &vitistackv1alpha1.KubernetesCluster{}, "sick", func(k *vitistackv1alpha1.KubernetesCluster) {
			k.Spec.Workers[0].MachineTemplate.Spec.ConfigPatches = nil
			for flag, value := range args {
				k.Spec.Workers[0].MachineTemplate.Spec.ConfigPatches = []string{
					"machine: {kubelet: {extraArgs: {" + flag + ": \"" + value + "\"}}}",
				}
			}
		})
	}

	setFlags(map[string]string{"container-runtime": "remote"})
	w.eventually("the canary takes it", func(context.Context) error {
		if c := w.machine("sick-workers-0").Status.Change; c == nil || c.Phase == v1alpha1.ChangePending {
			return fmt.Errorf("%+v", c)
		}

		return nil
	})
	w.killWithin(0, 2*time.Second)
	w.plan(w.planOfWorkers("sick"), v1alpha1.PlanStopped, "sick-workers-0 has not been healthy")
	w.says(2, "Stopped", "plan", "sick")

	for _, name := range []string{"sick-workers-1", "sick-workers-2"} {
		if m := w.machine(name); m.Spec.Change != nil || m.Status.Change.Phase != v1alpha1.ChangePending {
			t.Errorf("%s was let go after the canary died: %+v, %+v", name, m.Spec.Change, m.Status.Change)
		}
	}

	w.says(0, "is rolled back", "revert", "sick-workers-0")
	w.eventually("the canary is well again", w.condition(&v1alpha1.TalosMachine{}, "sick-workers-0",
		v1alpha1.ConditionUpToDate, metav1.ConditionFalse, v1alpha1.ReasonReverted))
	w.eventually("and ready",
		w.condition(&v1alpha1.TalosMachine{}, "sick-workers-0", v1alpha1.ConditionReady, metav1.ConditionTrue))
	w.plan(w.planOfWorkers("sick"), v1alpha1.PlanStopped, "was rolled back")

	setFlags(map[string]string{"v": "3"})
	w.eventually("the corrected config is everywhere", w.upToDate("sick"))
	w.nodesReady("sick", 4)
	w.says(1, "no change under way", "revert", "sick-workers-0")
	w.converged("sick", identity)
}

// TestTriedChange: a firewall that would shut us out is taken back by the node, and one with a hole for us stays.
func TestTriedChange(t *testing.T) {
	w := newWorld(t)
	for i := range 2 {
		w.boot(i + 1)
	}

	const (
		shut = "apiVersion: v1alpha1\nkind: NetworkDefaultActionConfig\ningress: block\n"
		hole = "apiVersion: v1alpha1\nkind: NetworkRuleConfig\nname: apis\nportSelector:\n  ports: [50000, 6443]\n  protocol: tcp\n" +
			"ingress: [{subnet: 0.0.0.0/0}]\n"
	)

	w.apply(clusterManifest("tried", w.address(1), []string{w.address(1)}, []string{w.address(2)}))
	w.running("tried")
	w.reboot(2)
	w.sendAgain("tried", 1)
	w.tryFor("tried", 10*time.Second)

	before := w.identity("tried")

	w.patchCluster("tried", shut)
	w.plan(w.planOfWorkers("tried"), v1alpha1.PlanStopped, "rolled the change of NetworkDefaultActionConfig back")
	w.plan(w.planOfControlPlane("tried"), v1alpha1.PlanStopped, "rolled the change of NetworkDefaultActionConfig back")
	w.eventually("the nodes answer", func(ctx context.Context) error {
		return errors.Join(
			w.condition(&v1alpha1.TalosMachine{}, "tried-cp-0", v1alpha1.ConditionReachable, metav1.ConditionTrue)(ctx),
			w.condition(&v1alpha1.TalosMachine{}, "tried-workers-0", v1alpha1.ConditionReachable, metav1.ConditionTrue)(ctx))
	})

	if applied := w.nodes[w.address(2)].Faults().Calls("ApplyConfiguration"); applied == 0 {
		t.Error("nothing was ever tried")
	}

	w.says(0, "retries its change", "retry", "tried-workers-0")
	w.eventually("it is tried again, in vain", func(context.Context) error {
		c := w.machine("tried-workers-0").Status.Change
		if c == nil || c.Phase != v1alpha1.ChangeFailed || w.machine("tried-workers-0").Annotations[v1alpha1.RetryAnnotation] != "" {
			return fmt.Errorf("%+v", c)
		}

		return nil
	})

	// Now it has to be confirmed in time, however busy the computer is.
	w.tryFor("tried", 10*time.Minute)
	w.patchCluster("tried", shut+"---\n"+hole)
	w.eventually("the firewall with a hole stays", w.upToDate("tried"))
	w.converged("tried", before)
}

// tryFor sets how long a change may be on trial.
func (w *world) tryFor(cluster string, timeout time.Duration) {
	w.t.Helper()
	w.rollout(cluster, v1alpha1.RolloutOptions{TryTimeout: &metav1.Duration{Duration: timeout}})
	w.eventually("the control plane has the time for a trial", func(context.Context) error {
		cp := &v1alpha1.TalosControlPlane{}
		w.get(cp, cluster)

		return wait.True(cp.Spec.Rollout != nil && cp.Spec.Rollout.TryTimeout != nil && cp.Spec.Rollout.TryTimeout.Duration == timeout)
	})
}

// TestRebootsByHand: with rebootPolicy Manual a config is staged, one machine of a group first, and takes effect when
// the machine is rebooted manually; with a closed window nothing reboots; with Automatic the rest goes by itself.
func TestRebootsByHand(t *testing.T) {
	w := newWorld(t)
	for i := range 3 {
		w.boot(i + 1)
	}

	w.apply(clusterManifest("hand", w.address(1), []string{w.address(1)}, []string{w.address(2), w.address(3)}))
	w.running("hand")
	w.reboot(1)
	w.sendAgain("hand", 2)

	before, identity := w.boots(), w.identity("hand")

	w.rollout("hand", v1alpha1.RolloutOptions{RebootPolicy: v1alpha1.RebootManual})
	w.patchCluster("hand", needsReboot("one"))
	w.plan(w.planOfWorkers("hand"), v1alpha1.PlanWaiting, "waiting for hand-workers-0 to be rebooted manually")
	w.eventually("the config is staged", w.condition(&v1alpha1.TalosMachine{}, "hand-workers-0",
		v1alpha1.ConditionUpToDate, metav1.ConditionFalse, v1alpha1.ReasonAwaitingReboot))
	w.eventually("that of the control plane as well", w.condition(&v1alpha1.TalosMachine{}, "hand-cp-0",
		v1alpha1.ConditionUpToDate, metav1.ConditionFalse, v1alpha1.ReasonAwaitingReboot))

	if rebooted := w.rebooted(before); len(rebooted) > 0 {
		t.Errorf("%v rebooted", rebooted)
	}

	w.rebootByHand("hand", w.address(2))
	w.eventually("the second worker is staged", w.condition(&v1alpha1.TalosMachine{}, "hand-workers-1",
		v1alpha1.ConditionUpToDate, metav1.ConditionFalse, v1alpha1.ReasonAwaitingReboot))
	w.rebootByHand("hand", w.address(1))
	w.rebootByHand("hand", w.address(3))
	w.eventually("the first change is through", w.upToDate("hand"))

	before = w.boots()

	w.rollout("hand", v1alpha1.RolloutOptions{
		RebootPolicy: v1alpha1.RebootWindow,
		Windows:      []v1alpha1.MaintenanceWindow{{Schedule: closedNow(), Duration: metav1.Duration{Duration: time.Hour}}},
	})
	w.patchCluster("hand", needsReboot("two"))
	w.plan(w.planOfWorkers("hand"), v1alpha1.PlanWaiting, "maintenance window that opens at")
	w.plan(w.planOfControlPlane("hand"), v1alpha1.PlanWaiting, "maintenance window that opens at")

	if rebooted := w.rebooted(before); len(rebooted) > 0 {
		t.Errorf("%v rebooted outside of the window", rebooted)
	}

	w.rollout("hand", v1alpha1.RolloutOptions{
		RebootPolicy: v1alpha1.RebootWindow,
		Windows:      []v1alpha1.MaintenanceWindow{{Schedule: "* * * * *", Duration: metav1.Duration{Duration: time.Hour}}},
	})
	w.eventually("the second change is through", w.upToDate("hand"))

	if rebooted := w.rebooted(before); !slices.Equal(rebooted, []string{"machine-1", "machine-2", "machine-3"}) {
		t.Errorf("only %v rebooted in the window", rebooted)
	}

	identity.boots = w.boots()
	w.converged("hand", identity)
}

// closedNow is a schedule that opens about half a day from now.
func closedNow() string {
	at := wait.Now().UTC().Add(12 * time.Hour)

	return fmt.Sprintf("%d %d * * *", at.Minute(), at.Hour())
}

// rebootByHand reboots a node with the official client.
func (w *world) rebootByHand(cluster, address string) {
	w.t.Helper()

	n := w.nodes[address]
	before := n.Status().BootID

	// The way there leads over a control-plane node, which may be down itself.
	w.eventually("the reboot of "+n.Name(), func(ctx context.Context) error {
		if n.Status().BootID != before {
			return nil
		}

		return w.talos(cluster).Reboot(talosclient.WithNode(ctx, address), talosclient.WithRebootMode(machineapi.RebootRequest_DEFAULT))
	})
}
