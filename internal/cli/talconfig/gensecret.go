package talconfig

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/talos-operator/talos-operator/internal/clusterstate"
	model "github.com/talos-operator/talos-operator/internal/talconfig"
)

// secretFiles are the files that may have the PKI of the cluster, beside the talconfig.yaml.
var secretFiles = []string{"talsecret.yaml", "talsecret.sops.yaml", "talsecret.yml", "talsecret.sops.yml"}

// stdout as the name of a file.
const stdout = "-"

// privateFile is the mode of files with private keys.
const privateFile = 0o600

type gensecret struct {
	*environment

	out, from, version string
	force              bool
	// isNamed: --output was given.
	isNamed bool
}

func newGensecretCommand(env *environment) *cobra.Command {
	g := &gensecret{environment: env}

	cmd := &cobra.Command{
		Use:   "gensecret",
		Short: "Make the PKI of a new cluster",
		Long: `Make the PKI of a new cluster: certificate authorities, tokens and encryption keys, in the format of talosctl
gen secrets. The file is written with mode 0600, and never over a PKI that exists: machines of a cluster whose PKI was
lost can only be wiped. Encrypt it with sops before it goes into Git. Redirected into a file without --output, as in
gensecret > talsecret.yaml, the PKI goes there; into a pipe it goes with --output - only, because logs are pipes, too.

With --from-configfile the PKI is that of an existing cluster.`,
		Example: `  talos-operator talconfig gensecret
  talos-operator talconfig gensecret && sops encrypt --in-place talsecret.yaml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			g.isNamed = cmd.Flags().Changed("output")

			return g.run()
		},
	}
	cmd.Flags().StringVarP(&g.out, "output", "o", secretFiles[0], `file to write; "-" prints`)
	cmd.Flags().StringVarP(&g.from, "from-configfile", "f", "", "take the PKI from the machine config of a control plane")
	cmd.Flags().StringVar(&g.version, "talos-version", model.DefaultTalosVersion, "Talos version of the cluster")
	cmd.Flags().BoolVar(&g.force, "force", false, "keep a file that exists as FILE.old, and write a new one")

	return cmd
}

func (g *gensecret) run() error {
	if !g.isNamed {
		if err := g.redirect(); err != nil {
			return err
		}
	}

	bundle, err := g.bundle()
	if err != nil {
		return err
	}

	raw, err := bundle.Marshal()
	if err != nil {
		return err
	}

	if g.out == stdout {
		_, err := g.Out.Write(raw)

		return err
	}

	if err := g.keepExisting(); err != nil {
		return err
	}

	if err := writeSecrets(g.out, raw, g.force); err != nil {
		return err
	}

	fmt.Fprintf(g.Out, "Wrote %s. It has the private keys of the cluster: encrypt it with sops, and keep a copy.\n", g.out)

	return nil
}

// redirect finds out where the shell has sent the output. The shell has made or emptied the file of > already, and a
// message in it would be no PKI.
func (g *gensecret) redirect() error {
	file, ok := g.Out.(*os.File)
	if !ok {
		return nil
	}

	info, err := file.Stat()
	if err != nil {
		return fmt.Errorf("finding out where the output goes: %w", err)
	}

	switch mode := info.Mode(); {
	case mode.IsRegular():
	case mode&(fs.ModeNamedPipe|fs.ModeSocket) != 0:
		return fmt.Errorf("the output goes into a pipe, which may be a log: print the PKI there with --output -, or write "+
			"it to a file with --output %s", secretFiles[0])
	default:
		return nil
	}

	for _, name := range secretFiles {
		other, err := os.Lstat(name)
		if err == nil && !os.SameFile(info, other) && !g.force {
			return fmt.Errorf("%s exists: it may be the PKI of a running cluster, whose machines would not be reachable with "+
				"another one; nothing was written to the file of the redirection, which is empty now: remove it, or write beside "+
				"%s with --force", name, name)
		}
	}

	// The shell gives it the mode of any file.
	if err := file.Chmod(privateFile); err != nil {
		return fmt.Errorf("making the file of the redirection private: %w", err)
	}

	g.out = stdout

	return nil
}

// keepExisting refuses to write beside or over a PKI, and with force moves the file away first.
func (g *gensecret) keepExisting() error {
	dir := filepath.Dir(g.out)

	for _, name := range append([]string{filepath.Base(g.out)}, secretFiles...) {
		path := filepath.Join(dir, name)
		if exists(path) && !g.force {
			return fmt.Errorf("%s exists: it may be the PKI of a running cluster, whose machines would not be reachable with "+
				"another one; name another file with --output, or keep it as %s.old with --force", path, path)
		}
	}

	if !exists(g.out) {
		return nil
	}

	old := g.out + ".old"

	// Unlike a rename, a link never replaces a file.
	if err := os.Link(g.out, old); err != nil {
		return fmt.Errorf("keeping %s as %s: %w", g.out, old, err)
	}

	return nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)

	return !errors.Is(err, fs.ErrNotExist)
}

func (g *gensecret) bundle() (*clusterstate.Bundle, error) {
	if g.from == "" {
		return g.newBundle(g.version)
	}

	raw, err := readSmall(g.from)
	if err != nil {
		return nil, fmt.Errorf("reading --from-configfile: %w", err)
	}

	if raw, err = model.Decrypt(raw, g.keys); err != nil {
		return nil, fmt.Errorf("reading --from-configfile: %w", err)
	}

	return clusterstate.BundleFromConfig(raw)
}

func (e *environment) newBundle(version string) (*clusterstate.Bundle, error) {
	return clusterstate.NewBundle(clusterstate.Options{TalosVersion: version, Now: e.now()})
}

// readBundle reads the PKI: from the file that was named, or from the one that is beside the talconfig.yaml.
func (e *environment) readBundle(named, talconfig string) (*clusterstate.Bundle, error) {
	path := named

	if path == "" {
		var found []string

		for _, name := range secretFiles {
			if at := filepath.Join(filepath.Dir(talconfig), name); exists(at) {
				found = append(found, at)
			}
		}

		switch len(found) {
		case 0:
			return nil, fmt.Errorf("there is no PKI beside %s (%s): name it with --secret-file, or make that of a new cluster "+
				"with talos-operator talconfig gensecret", talconfig, secretFiles[0])
		case 1:
			path = found[0]
		default:
			return nil, fmt.Errorf("both %s and %s exist: name the one with the PKI of the cluster with --secret-file",
				found[0], found[1])
		}
	}

	raw, err := readSmall(path)
	if err != nil {
		return nil, fmt.Errorf("reading the PKI: %w", err)
	}

	if raw, err = model.Decrypt(raw, e.keys); err != nil {
		return nil, fmt.Errorf("reading the PKI from %s: %w", path, err)
	}

	bundle, err := clusterstate.ParseBundle(raw)
	if err != nil {
		return nil, fmt.Errorf("reading the PKI from %s: %w", path, err)
	}

	return bundle, nil
}
