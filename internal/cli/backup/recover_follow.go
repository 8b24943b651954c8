package backup

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/backup"
	"github.com/talos-operator/talos-operator/internal/backup/signature"
	"github.com/talos-operator/talos-operator/internal/cli/access"
	"github.com/talos-operator/talos-operator/internal/cli/output"
	"github.com/talos-operator/talos-operator/internal/cli/session"
)

const removeTimeout = time.Minute

// backupSet is a backup in the store.
type backupSet = backup.Set

// recoverResult is what -o prints.
type recoverResult struct {
	Cluster      string `json:"cluster"`
	Namespace    string `json:"namespace"`
	ControlPlane string `json:"controlPlane"`
	Restore      string `json:"restore"`
	// Complete is true if the cluster runs from the backup, and this was verified.
	Complete bool   `json:"complete"`
	Backup   string `json:"backup"`
	// Revision of etcd when it was first observed after the restore, on Machine.
	Revision int64  `json:"revision,omitempty"`
	Machine  string `json:"machine,omitempty"`
	MemberID string `json:"memberID,omitempty"`
	// LastSnapshot is the location of the copy of the wiped data.
	LastSnapshot string        `json:"lastSnapshot,omitempty"`
	Steps        []recoverStep `json:"steps,omitempty"`
	// Kubeconfig is the Secret with the administrator's kubeconfig, under the key value.
	Kubeconfig string   `json:"kubeconfigSecret"`
	Secrets    []string `json:"secrets,omitempty"`
	Warnings   []string `json:"warnings,omitempty"`
	// VerificationKey verifies the backups of the cluster; empty if unknown.
	VerificationKey string `json:"verificationKey,omitempty"`
}

// recoverStep is one step of the restore.
type recoverStep struct {
	Step    v1alpha1.RestoreStep `json:"step"`
	Seconds float64              `json:"seconds"`
	Message string               `json:"message,omitempty"`
}

// text describes what will be done.
func (v *recovery) text(w io.Writer, now time.Time) {
	for _, text := range v.warnings {
		fmt.Fprintln(w, "Warning:", text)
	}

	tw := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	line := func(name, format string, args ...any) {
		fmt.Fprintf(tw, "%s\t%s\n", name, fmt.Sprintf(format, args...))
	}

	there := "is not there yet"
	if v.exists {
		there = "is there"
	}

	e := &v.look.entry
	line("Cluster", "%s: %s in namespace %s, which %s", v.cluster, v.title, v.namespace, there)
	line("Backup", "%s, %s ago (%s), verified: %s", v.set.ID, ago(now, v.set.Time), v.set.Time.UTC().Format(time.RFC3339),
		e.verified(now))
	line("", "revision %s, %s, Talos %s, Kubernetes %s", e.revision(), output.Bytes(e.Size), cmp.Or(e.Talos, "not known"),
		cmp.Or(e.Kubernetes, "not known"))
	line("", "signed: %s", originOf(e.Authenticity))
	line("Store", "%s", v.store.Location())
	line("Control plane", "%s", cmp.Or(strings.Join(v.machines, ", "), "as the manifest says"))
	line("Workers", "%s", output.OrNone(v.workers))

	switch {
	case v.done != nil:
		line("State", "it runs from this backup already: TalosEtcdRestore %s is complete", v.done.Name)
	case v.running != nil:
		line("State", "TalosEtcdRestore %s is at step %s and goes on", v.running.Name,
			cmp.Or(v.running.Status.Step, v1alpha1.RestorePreflight))
	case v.options.discard:
		line("Lost", "what the cluster wrote after the backup; a copy is kept beside it where it can be read")
	default:
		line("Lost", "nothing: where a control-plane machine has etcd data, the restore stops before it touches any")
	}

	if v.done == nil {
		line("Makes", "%s", output.OrNone(v.made()))
	}

	for i := range v.obsolete {
		line("Removes", "TalosEtcdRestore %s, which has touched nothing", v.obsolete[i].Name)
	}

	_ = tw.Flush() // the underlying writer reports its own errors
}

// rehearsed prints the objects that would be created.
func (v *recovery) rehearsed() error {
	if v.output == output.Text {
		v.text(v.Out, time.Now())
		fmt.Fprintln(v.Out, "\nNothing was changed: -o yaml shows the objects.")

		return nil
	}

	for _, text := range v.warnings {
		fmt.Fprintln(v.ErrOut, "Warning:", text)
	}

	objects, err := v.objects()
	if err != nil {
		return err
	}

	if v.output == output.JSON {
		list := map[string]any{"apiVersion": "v1", "kind": "List", "items": objects}

		return output.JSON.Print(v.Out, list, nil)
	}

	for _, o := range objects {
		data, err := yaml.Marshal(o.Object)
		if err != nil {
			return fmt.Errorf("rendering %s %s: %w", o.GetKind(), o.GetName(), err)
		}

		fmt.Fprintf(v.Out, "---\n%s", data)
	}

	return nil
}

// plainObject returns an object without the fields that the API server adds.
func plainObject(o client.Object) (*unstructured.Unstructured, error) {
	raw, err := json.Marshal(o)
	if err != nil {
		return nil, fmt.Errorf("rendering %s: %w", o.GetName(), err)
	}

	out := &unstructured.Unstructured{}
	if err := json.Unmarshal(raw, &out.Object); err != nil {
		return nil, fmt.Errorf("rendering %s: %w", o.GetName(), err)
	}

	unstructured.RemoveNestedField(out.Object, "metadata", "creationTimestamp")
	unstructured.RemoveNestedField(out.Object, "status")

	return out, nil
}

// follow waits for the end of the restore, and prints each step.
func (v *recovery) follow(ctx context.Context) error {
	t := output.NewTeller(v.ErrOut)
	defer t.End()

	told := map[v1alpha1.RestoreStep]bool{}
	o := v.running

	err := wait.PollUntilContextTimeout(ctx, pollObject, v.timeout, true, func(ctx context.Context) (bool, error) {
		if err := v.plane.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			return false, session.Explain("reading TalosEtcdRestore "+o.Name, err)
		}

		for _, s := range o.Status.Steps {
			if s.CompletedAt != nil && !told[s.Step] && s.Step != v1alpha1.RestoreComplete {
				told[s.Step] = true

				t.Keep(strings.TrimSpace(fmt.Sprintf("%-18s done in %.1fs  %s", s.Step,
					s.CompletedAt.Sub(s.StartedAt.Time).Seconds(), s.Message)))
			}
		}

		ended, failed := endOfRestore(o)
		if !ended && failed == nil {
			t.Say(fmt.Sprintf("%-18s %s", cmp.Or(o.Status.Step, v1alpha1.RestorePreflight), nowAt(o.Status.Conditions)))
		}

		return ended, failed
	})

	if wait.Interrupted(err) {
		return fmt.Errorf("TalosEtcdRestore %s is not complete yet (step %s: %s), and goes on without this command; run it "+
			"again to follow it", o.Name, cmp.Or(o.Status.Step, v1alpha1.RestorePreflight), nowAt(o.Status.Conditions))
	}

	return err
}

// endOfRestore reports whether a restore has ended, and how.
func endOfRestore(o *v1alpha1.TalosEtcdRestore) (bool, error) {
	if o.Status.Step == v1alpha1.RestoreComplete {
		return meta.IsStatusConditionTrue(o.Status.Conditions, v1alpha1.ConditionComplete), nil
	}

	c := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionStalled)
	if c == nil || c.Status != metav1.ConditionTrue {
		return false, nil
	}

	if o.Status.Step == v1alpha1.RestoreStopped {
		return false, fmt.Errorf("TalosEtcdRestore %s was stopped: %s (%s)", o.Name, c.Message, c.Reason)
	}

	return false, fmt.Errorf("TalosEtcdRestore %s cannot go on: %s (%s); it retries every minute, and this command "+
		"follows it when it is run again", o.Name, c.Message, c.Reason)
}

func (v *recovery) result() *recoverResult {
	o := v.running
	if v.done != nil {
		o = v.done
	}

	out := &recoverResult{
		Cluster: v.cluster, Namespace: v.namespace, ControlPlane: v.controlPlane, Restore: o.Name, Backup: v.set.ID,
		Complete: o.Status.Step == v1alpha1.RestoreComplete, Revision: o.Status.Revision, Machine: o.Status.Machine,
		MemberID: o.Status.MemberID, LastSnapshot: o.Status.LastSnapshot, Kubeconfig: v.cluster + "-" + access.FileKubeconfig,
		Warnings: v.warnings,
	}

	if b := o.Status.Backup; b != nil {
		out.Backup = b.ID
	}

	if v.key != (signature.Public{}) && !v.options.isolate {
		out.VerificationKey = v.key.String()
	}

	for _, s := range v.secrets {
		out.Secrets = append(out.Secrets, s.Name)
	}

	for _, s := range o.Status.Steps {
		if s.CompletedAt != nil {
			out.Steps = append(out.Steps, recoverStep{
				Step: s.Step, Seconds: s.CompletedAt.Sub(s.StartedAt.Time).Seconds(), Message: s.Message,
			})
		}
	}

	return out
}

func (r *recoverResult) text(w io.Writer) {
	if !r.Complete {
		fmt.Fprintf(w, "TalosEtcdRestore %s is made; kubectl get talosetcdrestore %s -n %s tells how it goes.\n", r.Restore,
			r.Restore, r.Namespace)

		return
	}

	fmt.Fprintf(w, "Cluster %s runs from backup %s.\n", r.Cluster, r.Backup)

	for _, s := range r.Steps {
		if s.Step == v1alpha1.RestoreProving || s.Step == v1alpha1.RestoreComplete {
			fmt.Fprintf(w, "Proof: %s.\n", s.Message)
		}
	}

	if r.LastSnapshot != "" {
		fmt.Fprintf(w, "What was lost is kept in %s.\n", r.LastSnapshot)
	}

	fmt.Fprintf(w, "\nKubeconfigs from before are valid. A new one:\n"+
		"  kubectl get secret %s -n %s -o jsonpath='{.data.value}' | base64 -d\n", r.Kubeconfig, r.Namespace)

	if r.VerificationKey != "" {
		fmt.Fprintf(w, "Keep the key that checks the backups of the cluster beside the age identity:\n  %s\n",
			r.VerificationKey)
	}

	if len(r.Secrets) > 0 {
		fmt.Fprintf(w, "The keys for the backup are not needed any more, unless a backup schedule uses them:\n"+
			"  kubectl delete secret %s -n %s\n", strings.Join(r.Secrets, " "), r.Namespace)
	}
}
