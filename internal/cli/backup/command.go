// Package backup contains the commands about etcd backups: create, list, inspect, verify and download them, and
// recover a cluster from one.
package backup

import (
	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/talos-operator/talos-operator/internal/cli/session"
)

// NewCommand groups the backup commands. Those that only read work without a management plane.
func NewCommand(streams genericiooptions.IOStreams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "backup",
		Short: "List, inspect, verify, download and take backups of etcd",
		Long: `List, inspect, verify, download and take backups of etcd.

Where backups lie is said by an address (--storage), which needs no management plane, or by an object of one
(--schedule, --backup). An S3 store takes its credentials from the standard environment: AWS_ACCESS_KEY_ID and so on,
AWS_PROFILE, a web identity token, the metadata service.`,
	}
	cmd.AddCommand(
		newBackupListCommand(streams), newBackupInspectCommand(streams), newBackupVerifyCommand(streams),
		newBackupDownloadCommand(streams), newBackupCreateCommand(streams), newBackupKeyCommand(streams),
	)

	return cmd
}

// newStoreSession returns a session whose --cluster is the name of a Talos cluster, and not of an entry in the
// kubeconfig, which is selected by --context.
func newStoreSession(streams genericiooptions.IOStreams) *session.Session {
	s := session.New(streams)
	s.Flags.ClusterName = nil

	return s
}
