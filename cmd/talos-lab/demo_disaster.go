package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/lab/control"
	"github.com/talos-operator/talos-operator/lab/demo"
	"github.com/talos-operator/talos-operator/lab/stack"
)

const (
	backupName  = "demo"
	restoreName = "demo"
	noteText    = "this must not be lost"
)

var errNoteLost = errors.New("the note from before the backup is not what it was")

// disaster backs the cluster up, destroys the disks of its control plane, and brings it back from the bucket.
func disaster(ctx context.Context, out io.Writer, l *demoLab, cluster *demo.Cluster) error {
	secrets, err := cluster.Secrets(ctx)
	if err != nil {
		return err
	}

	vault := l.vault()

	if err := backUp(ctx, out, cluster, vault, secrets.Kubeconfig); err != nil {
		return err
	}

	if err := l.destroy(ctx, out, cluster); err != nil {
		return err
	}

	began := time.Now()

	fmt.Fprintln(out, "\nA TalosEtcdRestore names the bucket and the age key; the newest verified backup is restored.")
	fmt.Fprintln(out)

	if err := cluster.BeginRestore(ctx, restoreName, vault); err != nil {
		return err
	}

	_, err = cluster.AwaitRestore(ctx, restoreName, func(r *v1alpha1.TalosEtcdRestore, s v1alpha1.RestoreStepStatus) {
		fmt.Fprintf(out, "%7.1fs  %-11s %s\n", s.CompletedAt.Sub(began).Seconds(), s.Step, stepText(r, s))
	})
	if err != nil {
		return err
	}

	took := time.Since(began)

	text, err := demo.ReadNote(ctx, secrets.Kubeconfig)
	if err != nil {
		return err
	}

	if text != noteText {
		return fmt.Errorf("%w: %q", errNoteLost, text)
	}

	fmt.Fprintf(out, "\nThe cluster is back after %s. The kubeconfig from before works, and the ConfigMap %s says: %s.\n",
		rounded(took), demo.Note, text)

	return nil
}

// vault is the bucket of the lab.
func (l *demoLab) vault() demo.Vault {
	return demo.Vault{
		Endpoint: l.info.Store, Bucket: stack.Bucket, Credentials: stack.StoreSecret, Age: stack.AgeSecret,
	}
}

// stepText says what a step has done.
func stepText(r *v1alpha1.TalosEtcdRestore, s v1alpha1.RestoreStepStatus) string {
	switch s.Step {
	case v1alpha1.RestorePreflight:
		return "backup " + r.Status.Backup.ID + " is complete, can be decrypted and belongs to this cluster"
	case v1alpha1.RestorePreparing:
		return "all control-plane nodes are up, without etcd data"
	case v1alpha1.RestoreUploading:
		return "the snapshot is on " + r.Status.Machine
	case v1alpha1.RestoreRecovering:
		return "etcd has started from it"
	case v1alpha1.RestoreProving:
		return "the Kubernetes API serves what was backed up"
	case v1alpha1.RestoreJoining:
		return "the other control-plane nodes have joined"
	default:
		return s.Message
	}
}

// backUp writes a note into the cluster and takes a backup.
func backUp(ctx context.Context, out io.Writer, cluster *demo.Cluster, vault demo.Vault, kubeconfig []byte) error {
	if err := demo.WriteNote(ctx, kubeconfig, noteText); err != nil {
		return err
	}

	began := time.Now()

	b, err := cluster.Back(ctx, backupName, vault)
	if err != nil {
		return err
	}

	st := b.Status

	fmt.Fprintf(out, "Backed up to the bucket in %s: %s\n", rounded(time.Since(began)), st.Location)
	fmt.Fprintf(out, "  etcd of %s at revision %d, %d keys, %s; compressed and encrypted with age %s.\n",
		st.Source.Machine, st.Revision, st.Verification.TotalKeys, size(st.Size), size(st.StoredSize))
	fmt.Fprintln(out, "  Verified by a drill: an etcd of the operator's own has started from it.")

	return nil
}

func size(q *resource.Quantity) string { return humanize.IBytes(uint64(max(q.Value(), 0))) }

// destroy wipes the disks of all control-plane nodes at once.
func (l *demoLab) destroy(ctx context.Context, out io.Writer, cluster *demo.Cluster) error {
	nodes, err := l.client.Nodes(ctx)
	if err != nil {
		return err
	}

	var names []string

	for _, n := range nodes {
		if n.MachineType == "controlplane" && strings.HasPrefix(n.Name, cluster.Key.Namespace+"/"+cluster.Key.Name+"-") {
			names = append(names, n.Name)
		}
	}

	slices.Sort(names)

	if _, err := l.client.Act(ctx, control.Action{Names: names, Action: control.ActionWipe}); err != nil {
		return err
	}

	fmt.Fprintf(out, "\nDisaster: the disks of %s are replaced by empty ones. etcd is gone.\n",
		strings.ReplaceAll(strings.Join(names, ", "), cluster.Key.Namespace+"/", ""))

	return nil
}
