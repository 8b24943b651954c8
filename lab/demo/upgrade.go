package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"time"

	"github.com/dustin/go-humanize"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
)

// codeChanges is the exit code of talos-operator upgrade plan where there is something to do.
const codeChanges = 2

// Upgrade is an upgrade of Talos, as a user of the command line asks for it and follows it.
type Upgrade struct {
	// To is the version.
	To string
	// Vault is where the snapshot of etcd goes that is taken first.
	Vault Vault
	// Operator is the path of talos-operator, Kubeconfig that of the management plane's kubeconfig.
	Operator, Kubeconfig string
}

// Upgrade plans the upgrade, asks for it, shows its progress until every machine is healthy, and prints its record.
func (c *Cluster) Upgrade(ctx context.Context, out io.Writer, u Upgrade) error {
	if err := u.command(ctx, out, codeChanges, "upgrade", "plan", c.Key.Name, "--talos", u.To); err != nil {
		return err
	}

	fmt.Fprintf(out, "\nThe spec of %s gets talosVersion %s, upgrade.talos Automatic and backupBeforeDisruption.\n\n",
		c.Key.Name, u.To)

	began := time.Now()

	if err := c.beginUpgrade(ctx, u); err != nil {
		return err
	}

	if err := c.awaitUpgrade(ctx, u.To, began, NewScreen(out, false, 0)); err != nil {
		return err
	}

	fmt.Fprintf(out, "\nEvery machine runs Talos %s and is healthy after %s.\n\n", u.To,
		time.Since(began).Round(100*time.Millisecond))

	return u.command(ctx, out, 0, "upgrade", "history", c.Key.Name, "--machines")
}

// command runs a command of talos-operator that is to end with an exit code, and shows it as a user types it.
func (u Upgrade) command(ctx context.Context, out io.Writer, want int, args ...string) error {
	fmt.Fprint(out, "$ talos-operator")

	for _, arg := range args {
		fmt.Fprint(out, " ", arg)
	}

	fmt.Fprintln(out)

	cmd := exec.CommandContext(ctx, u.Operator, append(args, "--kubeconfig", u.Kubeconfig)...)
	cmd.Stdout, cmd.Stderr = out, out

	err := cmd.Run()

	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return fmt.Errorf("running talos-operator: %w", err)
	}

	if code := cmd.ProcessState.ExitCode(); code != want {
		return fmt.Errorf("talos-operator %s %s ended with exit code %d", args[0], args[1], code)
	}

	return nil
}

// beginUpgrade asks for the version. The schedule is suspended: it only says how the operator backs up before it
// disrupts anything.
func (c *Cluster) beginUpgrade(ctx context.Context, u Upgrade) error {
	s := &v1alpha1.TalosEtcdBackupSchedule{ObjectMeta: metav1.ObjectMeta{Namespace: c.Key.Namespace, Name: c.Key.Name}}
	s.Spec.Schedule, s.Spec.Suspend = "@daily", true
	s.Spec.BackupTemplate.Spec = v1alpha1.TalosEtcdBackupSpec{
		ControlPlaneRef: v1alpha1.ObjectReference{Name: c.Key.Name},
		Storage:         u.Vault.Storage(),
		RecipientsFrom:  []v1alpha1.SecretKeyReference{{Name: u.Vault.Age, Key: "recipient"}},
	}

	if err := c.Client.Create(ctx, s); err != nil {
		return fmt.Errorf("creating the TalosEtcdBackupSchedule %s: %w", s.Name, err)
	}

	kc := &vitistackv1alpha1.KubernetesCluster{}
	if err := c.Client.Get(ctx, c.Key, kc); err != nil {
		return fmt.Errorf("reading the KubernetesCluster: %w", err)
	}

	before := kc.DeepCopy()
	kc.Spec.TalosVersion = u.To
	kc.Spec.Upgrade = &v1alpha1.UpgradeOptions{Talos: v1alpha1.UpgradeAutomatic}
	kc.Spec.BackupBeforeDisruption = &v1alpha1.BackupBeforeDisruption{
		ScheduleRef: v1alpha1.ObjectReference{Name: s.Name},
	}

	if err := c.Client.Patch(ctx, kc, ctrlclient.MergeFrom(before)); err != nil {
		return fmt.Errorf("asking for Talos %s: %w", u.To, err)
	}

	return nil
}

// awaitUpgrade waits until the record of the upgrade reports a success, and says what changes meanwhile.
func (c *Cluster) awaitUpgrade(ctx context.Context, to string, began time.Time, s *Screen) error {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()

	for {
		o, err := c.observeUpgrade(ctx)
		if err == nil {
			for _, l := range o.lines(to) {
				s.say(time.Since(began), l.what, l.text)
			}

			if done, err := o.ended(to); done || err != nil {
				return err
			}
		}

		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("waiting for the upgrade to Talos %s: %w", to, ctx.Err()), err)
		case <-tick.C:
		}
	}
}

// observation is what the management plane says of an upgrade at one moment.
type observation struct {
	controlPlane v1alpha1.TalosControlPlane
	machines     []v1alpha1.TalosMachine
	backups      []v1alpha1.TalosEtcdBackup
	runs         []v1alpha1.TalosUpgrade
}

func (c *Cluster) observeUpgrade(ctx context.Context) (observation, error) {
	var (
		o        observation
		machines v1alpha1.TalosMachineList
		backups  v1alpha1.TalosEtcdBackupList
		runs     v1alpha1.TalosUpgradeList
	)

	here := ctrlclient.InNamespace(c.Key.Namespace)

	err := errors.Join(c.Client.Get(ctx, c.Key, &o.controlPlane), c.Client.List(ctx, &machines, here),
		c.Client.List(ctx, &backups, here, ctrlclient.MatchingLabels{v1alpha1.ScheduleLabel: c.Key.Name}),
		c.Client.List(ctx, &runs, here))
	if err != nil {
		return o, fmt.Errorf("observing the upgrade: %w", err)
	}

	o.machines, o.backups, o.runs = machines.Items, backups.Items, runs.Items

	return o, nil
}

// ended reports whether the run to a version has succeeded, and why it will not.
func (o observation) ended(to string) (bool, error) {
	for i := range o.runs {
		switch st := o.runs[i].Status; {
		case o.runs[i].Spec.To != to:
		case st.Phase == v1alpha1.UpgradeRunSucceeded:
			return true, nil
		case st.Phase == v1alpha1.UpgradeRunStopped, st.CompletionTime != nil:
			return false, fmt.Errorf("the upgrade to Talos %s is %s: %s", to, st.Phase, st.Message)
		}
	}

	return false, nil
}

// line is what is to be said of one thing.
type line struct{ what, text string }

// lines are what is to be said of an upgrade.
func (o observation) lines(to string) []line {
	var out []line

	for i := range o.backups {
		out = append(out, line{"backup", backupText(&o.backups[i])})
	}

	for i := range o.machines {
		if text := upgradeText(&o.machines[i], to); text != "" {
			out = append(out, line{o.machines[i].Name, text})
		}
	}

	// What etcd is like says something once a machine has begun.
	if etcd := meta.FindStatusCondition(o.controlPlane.Status.Conditions, v1alpha1.ConditionEtcdHealthy); etcd != nil &&
		len(out) > len(o.backups) {
		out = append(out, line{"etcd", etcd.Message})
	}

	return out
}

func backupText(b *v1alpha1.TalosEtcdBackup) string {
	done, failed := outcome(b.Status.Conditions, v1alpha1.ConditionReady)

	switch {
	case failed != "":
		return b.Name + " has failed: " + failed
	case !done || b.Status.StoredSize == nil:
		return "taking a snapshot of etcd before the first machine reboots"
	default:
		return fmt.Sprintf("complete: %s in %s", humanize.IBytes(uint64(max(b.Status.StoredSize.Value(), 0))),
			b.Status.Location)
	}
}

// upgradeText says what a machine does about the upgrade; nothing before it begins.
func upgradeText(m *v1alpha1.TalosMachine, to string) string {
	ch := m.Status.Change
	if ch == nil || ch.Kind != v1alpha1.ChangeTalos {
		if m.Status.TalosVersion == to {
			return "healthy with Talos " + to
		}

		return ""
	}

	switch ch.Phase {
	case v1alpha1.ChangePending:
		return ch.Message
	case v1alpha1.ChangeDraining:
		return "draining"
	case v1alpha1.ChangeRebooting:
		return "installing Talos " + to + " and rebooting"
	case v1alpha1.ChangeSettling:
		return "has booted Talos " + m.Status.TalosVersion + ", not yet healthy"
	default:
		return string(ch.Phase) + ": " + ch.Message
	}
}
