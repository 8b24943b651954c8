package session

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
)

// CompleteTimeout ends a completion: a hanging shell is worse than a missing completion.
const CompleteTimeout = 3 * time.Second

// CompleteCluster completes the only argument of a command with the names of clusters.
func (s *Session) CompleteCluster(cmd *cobra.Command, args []string, start string,
) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}

	p, err := s.Open()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}

	ctx, cancel := context.WithTimeout(cmd.Context(), CompleteTimeout)
	defer cancel()

	var out []cobra.Completion

	for _, list := range []client.ObjectList{
		&vitistackv1alpha1.KubernetesClusterList{}, &v1alpha1.TalosControlPlaneList{},
	} {
		if err := p.List(ctx, list, client.InNamespace(p.Namespace)); err != nil {
			continue
		}

		_ = meta.EachListItem(list, func(o runtime.Object) error {
			if named, err := meta.Accessor(o); err == nil && strings.HasPrefix(named.GetName(), start) {
				out = append(out, named.GetName())
			}

			return nil
		})
	}

	slices.Sort(out)

	return slices.Compact(out), cobra.ShellCompDirectiveNoFileComp
}

// CompleteObjects completes a flag with the names of the objects of a kind.
func (s *Session) CompleteObjects(kind client.ObjectList) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, start string) ([]cobra.Completion, cobra.ShellCompDirective) {
		p, err := s.Open()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}

		ctx, cancel := context.WithTimeout(cmd.Context(), CompleteTimeout)
		defer cancel()

		if err := p.List(ctx, kind, client.InNamespace(p.Namespace)); err != nil {
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
