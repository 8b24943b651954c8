// Package session opens the management cluster with the rights of the user, and reads the objects of one cluster.
package session

import (
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/internal/app"
)

// Session contains what every command needs: the connection, the user's permissions, and the output.
type Session struct {
	genericiooptions.IOStreams

	Flags *genericclioptions.ConfigFlags
}

// New returns a session whose connection flags are not set yet.
func New(streams genericiooptions.IOStreams) *Session {
	flags := genericclioptions.NewConfigFlags(true)
	// These flags would only clutter the help: caching discovery is not worthwhile for a handful of kinds.
	flags.CacheDir, flags.DisableCompression = nil, nil

	return &Session{IOStreams: streams, Flags: flags}
}

// Attach adds the connection flags to a command, with completion of namespaces left to kubectl.
func (s *Session) Attach(cmd *cobra.Command) *cobra.Command {
	s.Flags.AddFlags(cmd.Flags())

	return cmd
}

// Plane is a management plane as the user accesses it.
type Plane struct {
	client.Client

	Namespace string
	Config    *rest.Config
}

// Open connects to the management cluster that the flags name.
func (s *Session) Open() (*Plane, error) {
	cfg, err := s.Flags.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("finding the management cluster: %w", err)
	}

	namespace, _, err := s.Flags.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return nil, fmt.Errorf("finding the namespace: %w", err)
	}

	return OpenPlane(cfg, namespace)
}

// OpenPlane connects to a management cluster.
func OpenPlane(cfg *rest.Config, namespace string) (*Plane, error) {
	cfg.QPS, cfg.Burst = -1, 0

	scheme, err := app.Scheme()
	if err != nil {
		return nil, fmt.Errorf("building the scheme: %w", err)
	}

	c, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("opening a client to %s: %w", cfg.Host, err)
	}

	return &Plane{Client: c, Namespace: namespace, Config: cfg}, nil
}
