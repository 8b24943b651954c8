package backup

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/backup/store"
	"github.com/talos-operator/talos-operator/internal/cli/output"
	"github.com/talos-operator/talos-operator/internal/cli/session"
)

// recoverer is the command that restores a cluster.
type recoverer struct {
	*session.Session

	where    storeFlags
	operator operatorFlags
	choice   backupChoice
	options  recoverOptions

	// backup is an ID or key in the store, or a TalosEtcdBackup if no store is named.
	backup, file   string
	ownCredentials bool
	again, yes     bool
	dryRun, wait   bool
	timeout        time.Duration
	output         output.Format
}

// recoverOptions are copied to the TalosEtcdRestore unchanged.
type recoverOptions struct {
	discard, foreign, copied, isolate bool
	unauthenticated                   bool
	lost                              []string
	last, verification                string
	bump                              int64
}

// NewRecoverCommand returns the command `recover`.
func NewRecoverCommand(streams genericiooptions.IOStreams) *cobra.Command {
	r := &recoverer{Session: newStoreSession(streams)}

	cmd := &cobra.Command{
		Use:   "recover [CLUSTER]",
		Short: "Bring a cluster back from a backup, after the loss of its etcd or of everything",
		Long: `Bring a cluster back from a backup, after the loss of its etcd or of everything.

After a total loss: with an empty management plane, fresh machines in maintenance mode, a store, an age identity and
the verification key of the cluster (backup key printed it), name the manifest of the cluster with -f. The PKI comes
from the backup, so that old kubeconfigs and the certificates of workers stay valid. Without the verification key
nothing distinguishes the backups of the cluster from anything else in the store: then name one with --backup, and
say --allow-unauthenticated.

An existing cluster is restored with CLUSTER. What it wrote since is lost, which --discard-newer-data has
to say; a copy of it is kept beside the backup where it can still be read.

The command shows what it is going to do and asks. Then it makes the namespace, the Secrets that the operator reads the
backup with, a TalosEtcdRestore and the objects of the manifest, in this order, and follows the restore to its proof.
Run it again after an interruption: it goes on with the restore that is there. Exit codes: 0 the cluster runs from the
backup, 1 it does not, or not yet.`,
		Example: `  talos-operator recover -f prod.yaml -n clusters --storage s3://backups/prod -i key.txt \
    --verification-key ed25519:…
  talos-operator recover prod -n clusters --schedule nightly --before 2h --discard-newer-data`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: r.CompleteCluster,
		RunE:              func(cmd *cobra.Command, args []string) error { return r.run(cmd.Context(), args) },
	}
	r.where.add(r.Session, cmd)
	r.where.addIdentities(cmd)
	r.operator.add(cmd)
	r.choice.add(cmd)
	r.options.add(cmd)
	r.addFlags(cmd)

	return r.Attach(cmd)
}

func (r *recoverer) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVarP(&r.file, "file", "f", "", "manifest of the cluster: a KubernetesCluster, or a TalosControlPlane with "+
		"its TalosWorkers")
	f.StringVar(&r.backup, "backup", "", "this backup: an ID, the key of a file, or, without --storage and --schedule, a "+
		"TalosEtcdBackup (default: the newest that is good)")
	f.BoolVar(&r.ownCredentials, "operator-credentials", false, "the operator reaches the bucket with its own "+
		"credentials; give it none of this environment")
	f.BoolVar(&r.again, "again", false, "restore a backup that was restored already")
	f.BoolVarP(&r.yes, "yes", "y", false, "do not ask")
	f.BoolVar(&r.dryRun, "dry-run", false, "show what would be done; with -o yaml, the objects without the "+
		"values of Secrets")
	f.BoolVar(&r.wait, "wait", true, "follow the restore to its end")
	f.DurationVar(&r.timeout, "timeout", time.Hour, "how long to follow it")
	output.AddFlag(cmd, &r.output)

	cmd.MarkFlagsMutuallyExclusive("storage", "schedule")
	cmd.MarkFlagsMutuallyExclusive("backup", "latest", "before")
	_ = cmd.MarkFlagFilename("file", "yaml", "yml", "json")
	_ = cmd.RegisterFlagCompletionFunc("backup", r.CompleteObjects(&v1alpha1.TalosEtcdBackupList{}))
}

func (o *recoverOptions) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVar(&o.discard, "discard-newer-data", false, "what the cluster wrote after the backup may be lost")
	f.BoolVar(&o.foreign, "allow-foreign", false, "accept a snapshot of another tool: nothing tells which cluster "+
		"it is of")
	f.BoolVar(&o.copied, "allow-missing-checksum", false, "accept a database that was copied from a node")
	f.BoolVar(&o.unauthenticated, "allow-unauthenticated", false, "accept the backup that --backup names although it has "+
		"no signature, or no verification key is known: anyone who can write to the store can have made it")
	f.BoolVar(&o.isolate, "isolate", false, "make another cluster from it, with a PKI of its own, to inspect its "+
		"contents")
	f.StringSliceVar(&o.lost, "lost-machine", nil, "control-plane machine that never comes back; may be repeated")
	f.StringVar(&o.last, "last-snapshot", "", "what happens with data that is about to be wiped: Require, Try or "+
		"Skip a copy")
	f.StringVar(&o.verification, "verification", "", "how the backup is verified first: Checksum, Database or Drill "+
		"(default: Database)")
	f.Int64Var(&o.bump, "revision-bump", 0, "raise the revision by this much, so that watchers notice")
}

func (r *recoverer) run(ctx context.Context, args []string) error {
	if err := r.output.Validate(); err != nil {
		return err
	}

	p, err := r.Open()
	if err != nil {
		return err
	}

	v := &recovery{recoverer: r, plane: p}
	defer v.close()

	for _, step := range []func(context.Context) error{
		func(ctx context.Context) error { return v.findTarget(ctx, args) },
		v.findStore, v.findBackup, v.describe, v.findEarlier,
	} {
		if err := step(ctx); err != nil {
			return fmt.Errorf("nothing was changed: %w", err)
		}
	}

	if r.dryRun {
		return v.rehearsed()
	}

	return v.act(ctx)
}

// act asks for confirmation, starts the restore and follows it.
func (v *recovery) act(ctx context.Context) error {
	v.text(v.ErrOut, time.Now())

	if v.done == nil {
		if err := v.confirm(); err != nil {
			return err
		}

		if err := v.create(ctx); err != nil {
			return fmt.Errorf("%w; run the command again to go on", err)
		}

		if v.wait {
			if err := v.follow(ctx); err != nil {
				return err
			}
		}
	}

	result := v.result()

	return v.output.Print(v.Out, result, result.text)
}

// confirm asks the user for confirmation. A restore that is in progress was confirmed before.
func (v *recovery) confirm() error {
	if v.yes || v.running != nil {
		return nil
	}

	return session.Confirm(v.IOStreams)
}

// findStore opens the store locally, and determines how the operator accesses it.
func (v *recovery) findStore(ctx context.Context) error {
	if err := v.findNamed(ctx); err != nil {
		return err
	}

	st, err := v.where.open(ctx, v.Session, true)
	if err != nil {
		return err
	}

	v.store = st

	if err := v.acceptTarget(ctx); err != nil {
		return err
	}

	if v.named != nil {
		v.storage, v.identitiesFrom = &v.named.storage, v.named.identitiesFrom
	} else if v.storage, err = v.where.storageFor(&v.operator); err != nil {
		return err
	}

	if len(v.where.identities) > 0 {
		if err := v.identitySecret(); err != nil {
			return err
		}
	}

	if v.named != nil || v.storage.S3 == nil {
		return nil
	}

	return v.storageSecret()
}

// findNamed finds the object that names the store: the one in a flag, or the only schedule of the cluster.
func (v *recovery) findNamed(ctx context.Context) error {
	f := &v.where

	switch {
	case f.storage != "":
		return nil
	case f.schedule == "" && isObjectName(v.backup):
		f.object = v.backup
	case f.schedule == "":
		o, err := scheduleOf(ctx, v.plane, v.controlPlane)
		if err != nil {
			return err
		}

		f.schedule = o.Name
	}

	if v.plane.Namespace != v.namespace {
		return fmt.Errorf("the cluster is in namespace %s, and the object that names its backups in %s: use --storage",
			v.namespace, v.plane.Namespace)
	}

	named, err := f.find(ctx, v.plane)
	v.named = named

	return err
}

// isObjectName distinguishes the name of a TalosEtcdBackup from the ID of a backup, which has capital letters, and from
// a key.
func isObjectName(text string) bool {
	return text != "" && text == strings.ToLower(text) && !strings.Contains(text, "/")
}

// storageSecret adds the Secret with which the operator accesses the bucket, unless it already has access.
func (v *recovery) storageSecret() error {
	data := map[string][]byte{}
	s3, name := v.storage.S3, v.controlPlane+"-recovery-storage"

	if s3.CredentialsRef == nil && !v.ownCredentials {
		c, err := store.EnvironmentCredentials()
		if err != nil {
			return fmt.Errorf("finding credentials for the operator; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, name a "+
				"Secret with --s3-credentials-secret, or say --operator-credentials where it has its own: %w", err)
		}

		s3.CredentialsRef = &v1alpha1.ObjectReference{Name: name}
		fillCredentials(data, c)

		if c.SessionToken != "" {
			v.warn("the credentials in this environment are temporary: the restore needs them until it is complete")
		}
	}

	ca, err := v.where.ca()
	if err != nil {
		return err
	}

	if s3.CAFrom == nil && len(ca) > 0 {
		s3.CAFrom = &v1alpha1.SecretKeyReference{Name: name, Key: keyCA}
		data[keyCA] = ca
	}

	if len(data) > 0 {
		v.secrets = append(v.secrets, v.secret(name, data))
	}

	return nil
}

// identitySecret adds the Secret with which the operator decrypts the backup.
func (v *recovery) identitySecret() error {
	var all []string

	for _, file := range v.where.identities {
		content, err := readIdentityFile(file)
		if err != nil {
			return err
		}

		all = append(all, strings.TrimSpace(string(content)))
	}

	name := v.identityName()
	v.secrets = append(v.secrets, v.secret(name, map[string][]byte{keyIdentity: []byte(strings.Join(all, "\n") + "\n")}))
	v.identitiesFrom = []v1alpha1.SecretKeyReference{{Name: name, Key: keyIdentity}}

	return nil
}

func (v *recovery) identityName() string { return v.controlPlane + "-recovery-identity" }

// storeCluster returns the name of the cluster in the store.
func (v *recovery) storeCluster() string {
	return cmp.Or(v.choice.cluster, v.store.cluster, v.cluster)
}
