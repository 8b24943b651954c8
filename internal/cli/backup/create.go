package backup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/cli/output"
	"github.com/talos-operator/talos-operator/internal/cli/session"
)

// pollObject is how often an object is read while waiting for it.
const pollObject = 300 * time.Millisecond

// createResult is what -o prints.
type createResult struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// ID, Location, Revision, Size and Verified describe the backup once it is complete.
	ID       string                     `json:"id,omitempty"`
	Location string                     `json:"location,omitempty"`
	Revision int64                      `json:"revision,omitempty"`
	Size     int64                      `json:"size,omitempty"`
	Verified v1alpha1.VerificationLevel `json:"verified,omitempty"`
	Complete bool                       `json:"complete"`
}

type backupCreator struct {
	*session.Session

	where        storeFlags
	operator     operatorFlags
	controlPlane string
	name         string
	recipients   []string
	unencrypted  bool
	wait         bool
	timeout      time.Duration
	output       output.Format
}

func newBackupCreateCommand(streams genericiooptions.IOStreams) *cobra.Command {
	c := &backupCreator{Session: newStoreSession(streams)}

	cmd := &cobra.Command{
		Use:   "create --control-plane NAME | --schedule NAME",
		Short: "Take a backup now",
		Long: `Take a backup now: a TalosEtcdBackup is made, and the operator does the rest. It is made from the template of a
schedule: the one that is named, or the only one of the control plane. Without a schedule, --storage and --recipient say
where it goes and who can read it. It belongs to no schedule, and stays until it is deleted.

With --wait the command follows it to its end. Exit codes: 0 it is made, or with --wait complete and verified as its
spec says; 1 it is not, and the message says why.`,
		Example: `  talos-operator backup create --schedule nightly -n clusters --wait
  talos-operator backup create --control-plane prod -n clusters --storage s3://backups/prod \
    --s3-credentials-secret s3 --recipient age1...`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, _ []string) error { return c.run(cmd.Context()) },
	}
	c.where.addAddress(c.Session, cmd)
	c.operator.add(cmd)

	f := cmd.Flags()
	f.StringVar(&c.controlPlane, "control-plane", "", "TalosControlPlane to back up")
	f.StringVar(&c.name, "name", "", "name of the TalosEtcdBackup (default: that of the control plane, and something "+
		"random)")
	f.StringSliceVar(&c.recipients, "recipient", nil, "age public key (age1...) that can decrypt the backup; may be "+
		"repeated")
	f.BoolVar(&c.unencrypted, "allow-unencrypted", false, "take it without a recipient: anyone who can read the store "+
		"has root on the cluster")
	f.BoolVar(&c.wait, "wait", false, "follow it until it is complete and verified")
	f.DurationVar(&c.timeout, "timeout", time.Hour, "how long to follow it")
	output.AddFlag(cmd, &c.output)

	_ = cmd.RegisterFlagCompletionFunc("control-plane", c.CompleteObjects(&v1alpha1.TalosControlPlaneList{}))

	cmd.MarkFlagsOneRequired("control-plane", "schedule")
	cmd.MarkFlagsMutuallyExclusive("storage", "schedule")
	cmd.MarkFlagsMutuallyExclusive("recipient", "allow-unencrypted")

	return c.Attach(cmd)
}

func (c *backupCreator) run(ctx context.Context) error {
	if err := c.output.Validate(); err != nil {
		return err
	}

	p, err := c.Open()
	if err != nil {
		return err
	}

	spec, err := c.spec(ctx, p)
	if err != nil {
		return err
	}

	cp := &v1alpha1.TalosControlPlane{}
	if err := getNamed(ctx, p, cp, "TalosControlPlane", spec.ControlPlaneRef.Name); err != nil {
		return err
	}

	b := &v1alpha1.TalosEtcdBackup{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: c.name}, Spec: *spec}
	if c.name == "" {
		b.GenerateName = cp.Name + "-"
	}

	if err := p.Create(ctx, b); err != nil {
		return session.Explain("making a TalosEtcdBackup of "+cp.Name, err)
	}

	if c.wait {
		if err := c.follow(ctx, p, b); err != nil {
			return err
		}
	}

	result := resultOf(b)

	return c.output.Print(c.Out, result, result.text)
}

// spec returns the spec of the backup: that of a schedule, or the one given by the flags.
func (c *backupCreator) spec(ctx context.Context, p *session.Plane) (*v1alpha1.TalosEtcdBackupSpec, error) {
	if c.where.storage == "" {
		if len(c.recipients) > 0 || c.unencrypted || c.operator != (operatorFlags{}) {
			return nil, errors.New("--recipient, --allow-unencrypted and the flags of a store go with --storage; a schedule " +
				"has its own")
		}

		return c.template(ctx, p)
	}

	storage, err := c.where.storageFor(&c.operator)
	if err != nil {
		return nil, err
	}

	if len(c.recipients) == 0 && !c.unencrypted {
		return nil, errors.New("the backup holds the root credentials of the cluster: name who can read it with " +
			"--recipient age1..., or say --allow-unencrypted")
	}

	return &v1alpha1.TalosEtcdBackupSpec{
		ControlPlaneRef: v1alpha1.ObjectReference{Name: c.controlPlane}, Storage: *storage,
		Recipients: c.recipients, AllowUnencrypted: c.unencrypted,
	}, nil
}

// template returns the spec in the template of the schedule.
func (c *backupCreator) template(ctx context.Context, p *session.Plane) (*v1alpha1.TalosEtcdBackupSpec, error) {
	if c.where.schedule == "" {
		o, err := scheduleOf(ctx, p, c.controlPlane)
		if err != nil {
			return nil, err
		}

		return o.Spec.BackupTemplate.Spec.DeepCopy(), nil
	}

	o := &v1alpha1.TalosEtcdBackupSchedule{}
	if err := getNamed(ctx, p, o, "TalosEtcdBackupSchedule", c.where.schedule); err != nil {
		return nil, err
	}

	spec := o.Spec.BackupTemplate.Spec.DeepCopy()
	if c.controlPlane != "" && spec.ControlPlaneRef.Name != c.controlPlane {
		return nil, fmt.Errorf("TalosEtcdBackupSchedule %s is one of %s, and not of %s", o.Name, spec.ControlPlaneRef.Name,
			c.controlPlane)
	}

	return spec, nil
}

// scheduleOf returns the only schedule of a control plane.
func scheduleOf(ctx context.Context, p *session.Plane, controlPlane string) (*v1alpha1.TalosEtcdBackupSchedule, error) {
	list := &v1alpha1.TalosEtcdBackupScheduleList{}
	if err := p.List(ctx, list, client.InNamespace(p.Namespace)); err != nil {
		return nil, session.Explain("looking for schedules of "+controlPlane, err)
	}

	found := slices.DeleteFunc(list.Items, func(o v1alpha1.TalosEtcdBackupSchedule) bool {
		return o.Spec.BackupTemplate.Spec.ControlPlaneRef.Name != controlPlane
	})

	switch len(found) {
	case 0:
		return nil, fmt.Errorf("control plane %s has no TalosEtcdBackupSchedule in namespace %s: say where its backups lie "+
			"with --storage", controlPlane, p.Namespace)
	case 1:
		return &found[0], nil
	}

	var all []string
	for i := range found {
		all = append(all, found[i].Name)
	}

	return nil, fmt.Errorf("control plane %s has several TalosEtcdBackupSchedules (%s): say which with --schedule",
		controlPlane, strings.Join(all, ", "))
}

// follow waits for the end of a backup, and prints its progress.
func (c *backupCreator) follow(ctx context.Context, p *session.Plane, b *v1alpha1.TalosEtcdBackup) error {
	t := output.NewTeller(c.ErrOut)
	defer t.End()

	err := wait.PollUntilContextTimeout(ctx, pollObject, c.timeout, true, func(ctx context.Context) (bool, error) {
		if err := p.Get(ctx, client.ObjectKeyFromObject(b), b); err != nil {
			return false, session.Explain("reading TalosEtcdBackup "+b.Name, err)
		}

		ended, failed := endOf(b)
		if !ended && failed == nil {
			t.Say(nowAt(b.Status.Conditions))
		}

		return ended, failed
	})

	if wait.Interrupted(err) {
		return fmt.Errorf("TalosEtcdBackup %s is not complete yet, and goes on without this command: %s", b.Name,
			nowAt(b.Status.Conditions))
	}

	return err
}

// endOf reports whether a backup has ended, and how.
func endOf(b *v1alpha1.TalosEtcdBackup) (bool, error) {
	if b.Status.ObservedGeneration != b.Generation {
		return false, nil
	}

	conditions := b.Status.Conditions
	stalled := meta.FindStatusCondition(conditions, v1alpha1.ConditionStalled)

	switch {
	case stalled != nil && stalled.Status == metav1.ConditionTrue && b.Status.CompletedAt != nil:
		return false, fmt.Errorf("TalosEtcdBackup %s is stored as %s, and is not verified: %s (%s)", b.Name,
			b.Status.BackupID, stalled.Message, stalled.Reason)
	case stalled != nil && stalled.Status == metav1.ConditionTrue:
		return false, fmt.Errorf("TalosEtcdBackup %s failed: %s (%s)", b.Name, stalled.Message, stalled.Reason)
	}

	return meta.IsStatusConditionTrue(conditions, v1alpha1.ConditionComplete), nil
}

// nowAt returns the current activity of an object.
func nowAt(conditions []metav1.Condition) string {
	for _, kind := range []string{
		v1alpha1.ConditionPaused, v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled, v1alpha1.ConditionComplete,
	} {
		c := meta.FindStatusCondition(conditions, kind)
		if c != nil && (c.Status == metav1.ConditionTrue || kind == v1alpha1.ConditionComplete) {
			return cmp.Or(c.Message, c.Reason)
		}
	}

	return "waiting for the operator to observe it"
}

func resultOf(b *v1alpha1.TalosEtcdBackup) *createResult {
	out := &createResult{
		Namespace: b.Namespace, Name: b.Name, ID: b.Status.BackupID, Location: b.Status.Location,
		Revision: b.Status.Revision, Complete: b.Status.CompletedAt != nil,
	}

	if b.Status.StoredSize != nil {
		out.Size = b.Status.StoredSize.Value()
	}

	if v := b.Status.Verification; v != nil {
		out.Verified = v.Level
	}

	return out
}

func (r *createResult) text(w io.Writer) {
	if !r.Complete {
		fmt.Fprintf(w, "talosetcdbackup/%s is made; kubectl get talosetcdbackup %s -n %s tells how it goes.\n", r.Name,
			r.Name, r.Namespace)

		return
	}

	fmt.Fprintf(w, "talosetcdbackup/%s is complete: %s, %s, verified: %s.\n%s\n", r.Name, r.ID, output.Bytes(r.Size),
		cmp.Or(string(r.Verified), "no"), r.Location)
}
