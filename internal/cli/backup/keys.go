package backup

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/backup"
	"github.com/talos-operator/talos-operator/internal/backup/signature"
	"github.com/talos-operator/talos-operator/internal/cli/output"
	"github.com/talos-operator/talos-operator/internal/cli/session"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/failure"
)

// notAuthentic is shown for a backup whose signature is wrong.
const notAuthentic = "NotAuthentic"

// addKeys adds --verification-key.
func (f *storeFlags) addKeys(cmd *cobra.Command) {
	cmd.Flags().StringSliceVar(&f.verificationKeys, "verification-key", nil, "public key that checks the signatures of "+
		"backups (ed25519:...), as backup key prints it; may be repeated. With --schedule and --backup, that of the control "+
		"plane is known")
}

// keys returns the verification keys that the flags name.
func (f *storeFlags) keys() ([]signature.Public, error) {
	keys, err := signature.ParseAll(f.verificationKeys)
	if err != nil {
		return nil, fmt.Errorf("--verification-key: %w", err)
	}

	return keys, nil
}

// accept adds a verification key.
func (s *openStore) accept(keys ...signature.Public) {
	for _, key := range keys {
		if !slices.Contains(s.keys, key) {
			s.keys = append(s.keys, key)
		}
	}
}

// warnf prints a warning about a backup.
func (s *openStore) warnf(format string, args ...any) {
	fmt.Fprintf(s.errOut, "Warning: "+format+"\n", args...)
}

// authenticate determines the origin of a backup, and warns if it is not known to be authentic. A wrong signature is an
// error. The manifest is nil for files of other tools.
func (s *openStore) authenticate(id string, m *backup.Manifest) (backup.Authenticity, error) {
	origin, err := backup.Authenticate(m, s.keys...)
	if err == nil && origin != backup.Authentic {
		s.warnf("backup %s: %s", id, origin.Warning())
	}

	return origin, err
}

// verificationKeyOf returns the verification key of a control plane: from its status, which needs fewer permissions, or
// else from its state Secret. There is none before it has a PKI.
func verificationKeyOf(
	ctx context.Context, p *session.Plane, cp *v1alpha1.TalosControlPlane,
) ([]signature.Public, error) {
	if text := cp.Status.BackupVerificationKey; text != "" {
		key, err := signature.Parse(text)

		return []signature.Public{key}, err
	}

	key, err := signingKeyOf(ctx, p, cp.Namespace, cp.Name)
	if err != nil || key == nil {
		return nil, err
	}

	return []signature.Public{key.Public()}, nil
}

// signingKeyOf returns the key that signs the backups of a control plane; nil without a readable state Secret.
func signingKeyOf(ctx context.Context, p *session.Plane, namespace, name string) (*signature.Key, error) {
	secret := &corev1.Secret{}

	err := p.Get(ctx, client.ObjectKey{Namespace: namespace, Name: clusterstate.SecretName(name)}, secret)
	if err != nil {
		return nil, nil // who may not read it works without
	}

	state, err := clusterstate.Decode(secret.Data)
	if err != nil {
		return nil, fmt.Errorf("the state Secret %s cannot be used: %w", secret.Name, err)
	}

	return state.Bundle.BackupKey()
}

// originOf describes the origin of a backup, for users.
func originOf(origin string) string {
	return cmp.Or(map[string]string{
		string(backup.Authentic): "yes", string(backup.Unchecked): "unchecked", string(backup.Unsigned): "no",
		notAuthentic: "WRONG",
	}[origin], "-")
}

// backupKeyResult is what -o prints.
type backupKeyResult struct {
	Cluster   string `json:"cluster"`
	Namespace string `json:"namespace"`
	// VerificationKey is public.
	VerificationKey string `json:"verificationKey"`
}

func newBackupKeyCommand(streams genericiooptions.IOStreams) *cobra.Command {
	s := session.New(streams)

	var format output.Format

	cmd := &cobra.Command{
		Use:   "key CLUSTER",
		Short: "Print the public key that checks the backups of a cluster",
		Long: `Print the public key that checks the backups of a cluster.

Backups are signed with a key that follows from the PKI of the cluster. As long as its state Secret is there, the
operator checks them by itself. After a total loss the PKI is in the backup alone, and this key distinguishes
the backups of the cluster from anything else in the store. It is no secret, and stays the same for the life of the
cluster: keep it beside the age identity.`,
		Example: `  talos-operator backup key prod -n clusters
  talos-operator recover -f prod.yaml -n clusters --storage s3://backups/prod -i key.txt \
    --verification-key ed25519:...`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: s.CompleteCluster,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := format.Validate(); err != nil {
				return err
			}

			result, err := backupKey(cmd.Context(), s, args[0])
			if err != nil {
				return err
			}

			return format.Print(s.Out, result, func(w io.Writer) { fmt.Fprintln(w, result.VerificationKey) })
		},
	}
	output.AddFlag(cmd, &format)

	return s.Attach(cmd)
}

func backupKey(ctx context.Context, s *session.Session, name string) (*backupKeyResult, error) {
	p, err := s.Open()
	if err != nil {
		return nil, err
	}

	c, err := session.FindTop(ctx, p, name)
	if err != nil {
		return nil, err
	}

	keys, err := verificationKeyOf(ctx, p, c.ControlPlane)
	if err != nil {
		return nil, err
	}

	if len(keys) == 0 {
		return nil, fmt.Errorf("TalosControlPlane %s has no PKI yet, or its state Secret may not be read: kubectl describe "+
			"it", c.ControlPlane.Name)
	}

	return &backupKeyResult{Cluster: c.Name(), Namespace: p.Namespace, VerificationKey: keys[0].String()}, nil
}

// authenticFirst chooses the newest backup that is known to be authentic; the sets must be sorted, the newest first. A
// backup with a wrong signature is skipped and, if a key is known, also one without a signature, unless there is no
// other.
func (s *openStore) authenticFirst(ctx context.Context, sets []backup.Set) (*backup.Set, error) {
	var (
		unsigned *backup.Set
		first    error
	)

	for i := range sets {
		set := &sets[i]

		m, err := backup.ReadManifest(ctx, s, *set)
		if err != nil {
			return set, nil // reading it again reports the error
		}

		switch origin, err := backup.Authenticate(m, s.keys...); {
		case err != nil:
			first = cmp.Or(first, err)

			s.warnf("%s; it is passed over", failure.Message(err))
		case origin == backup.Authentic || len(s.keys) == 0:
			return set, nil
		case unsigned == nil:
			unsigned = set
		}
	}

	if unsigned == nil {
		return nil, fmt.Errorf("no backup as was asked for is authentic: %w", first)
	}

	return unsigned, nil
}
