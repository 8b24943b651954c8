package backup

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/talos-operator/talos-operator/internal/backup"
	"github.com/talos-operator/talos-operator/internal/cli/session"
)

// completeBackups completes the only argument with the IDs of backups in the store that the flags name, the newest
// first.
func completeBackups(s *session.Session, where *storeFlags) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, start string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}

		ctx, cancel := context.WithTimeout(cmd.Context(), session.CompleteTimeout)
		defer cancel()

		st, err := where.open(ctx, s, false)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		defer st.Close()

		cluster, _ := cmd.Flags().GetString("cluster") // empty if the command does not have the flag

		if cluster == "" {
			cluster = st.cluster
		}

		sets, err := listBackups(ctx, st, cluster)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}

		slices.Reverse(sets)

		var out []cobra.Completion

		for i := range sets {
			if set := &sets[i]; set.Complete() && strings.HasPrefix(set.ID, start) {
				out = append(out, describe(set))
			}
		}

		return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
	}
}

func describe(set *backup.Set) cobra.Completion {
	if set.Cluster == "" {
		return set.ID
	}

	return cobra.CompletionWithDesc(set.ID, set.Cluster)
}
