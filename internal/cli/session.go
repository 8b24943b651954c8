package cli

import (
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/internal/app"
)

// session contains what every command needs: the connection, the user's permissions, and the output.
type session struct {
	genericiooptions.IOStreams

	flags *genericclioptions.ConfigFlags
}

func newSession(streams genericiooptions.IOStreams) *session {
	flags := genericclioptions.NewConfigFlags(true)
	// These flags would only clutter the help: caching discovery is not worthwhile for a handful of kinds.
	flags.CacheDir, flags.DisableCompression = nil, nil

	return &session{IOStreams: streams, flags: flags}
}

// attach adds the connection flags to a command, with completion of namespaces left to kubectl.
func (s *session) attach(cmd *cobra.Command) *cobra.Command {
	s.flags.AddFlags(cmd.Flags())

	return cmd
}

// plane is a management plane as the user accesses it.
type plane struct {
	client.Client

	namespace string
	config    *rest.Config
}

func (s *session) open() (*plane, error) {
	cfg, err := s.flags.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("finding the management cluster: %w", err)
	}

	namespace, _, err := s.flags.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return nil, fmt.Errorf("finding the namespace: %w", err)
	}

	return openPlane(cfg, namespace)
}

func openPlane(cfg *rest.Config, namespace string) (*plane, error) {
	cfg.QPS, cfg.Burst = -1, 0

	scheme, err := app.Scheme()
	if err != nil {
		return nil, fmt.Errorf("building the scheme: %w", err)
	}

	c, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("opening a client to %s: %w", cfg.Host, err)
	}

	return &plane{Client: c, namespace: namespace, config: cfg}, nil
}
