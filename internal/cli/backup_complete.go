package cli

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/internal/backup"
)

// completeObjects completes a flag with the names of the objects of a kind.
func (s *session) completeObjects(kind client.ObjectList) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, start string) ([]cobra.Completion, cobra.ShellCompDirective) {
		p, err := s.open()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}

		ctx, cancel := context.WithTimeout(cmd.Context(), completeTimeout)
		defer cancel()

		if err := p.List(ctx, kind, client.InNamespace(p.namespace)); err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}

		var out []cobra.Completion

		_ = meta.EachListItem(kind, func(o runtime.Object) error {
			if named, err := meta.Accessor(o); err == nil && strings.HasPrefix(named.GetName(), start) {
				out = append(out, named.GetName())
			}

			return nil
		})

		return out, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeBackups completes the only argument with the IDs of backups in the store that the flags name, the newest
// first.
func (s *session) completeBackups(where *storeFlags) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, start string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}

		ctx, cancel := context.WithTimeout(cmd.Context(), completeTimeout)
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
