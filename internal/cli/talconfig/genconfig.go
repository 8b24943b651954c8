package talconfig

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/talos-operator/talos-operator/internal/cli/exit"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/machineconfig"
	model "github.com/talos-operator/talos-operator/internal/talconfig"
	"github.com/talos-operator/talos-operator/internal/talconfig/render"
)

type fleetFile = *model.Fleet

// Names of files in the output folder.
const (
	defaultOutDir   = "./clusterconfig"
	talosconfigName = "talosconfig"
	gitignoreName   = ".gitignore"
)

// codeChanges is the exit code of a dry run that would change files.
const codeChanges = 2

type genconfig struct {
	*environment
	source

	outDir, secretFile, mode                         string
	dryRun, noGitignore, noNodes, compat, force, off bool
	ttl                                              time.Duration
}

func newGenconfigCommand(env *environment) *cobra.Command {
	g := &genconfig{environment: env}

	cmd := &cobra.Command{
		Use:   "genconfig",
		Short: "Generate the machine configs and the talosconfig",
		Long: `Generate the machine config of each node of a talconfig.yaml, a talosconfig, and a .gitignore that keeps both
out of Git. Either all files are rendered and valid, or none is written. Files are written with mode 0600, and only
if they changed; the talosconfig is kept while its certificate is valid for another four months.

The PKI is never made here: a missing or mistyped file must not give machines a PKI that they do not have. Files of
another PKI are not overwritten without --force.

--dry-run prints which fields would change, without secrets, and ends with code 2 if any would.`,
		Example: `  talos-operator talconfig genconfig
  talos-operator talconfig genconfig -s talsecret.sops.yaml --dry-run`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return g.run(cmd.Context()) },
	}
	g.addPath(cmd)
	g.addEnv(cmd, "e")
	addMode(cmd, &g.mode)
	cmd.Flags().StringVarP(&g.outDir, "out-dir", "o", defaultOutDir, "folder to write to")
	cmd.Flags().StringVarP(&g.secretFile, "secret-file", "s", "",
		"file with the PKI (default: the one of talsecret.yaml, talsecret.sops.yaml, … beside the talconfig.yaml)")
	cmd.Flags().BoolVarP(&g.dryRun, "dry-run", "n", false, "print what would change, and write nothing")
	cmd.Flags().BoolVar(&g.off, "offline-mode", false, "has no effect: no image factory is asked in any case")
	cmd.Flags().BoolVar(&g.noGitignore, "no-gitignore", false, "write no .gitignore")
	cmd.Flags().BoolVar(&g.noNodes, "disable-nodes-section", false, "write no nodes into the talosconfig")
	cmd.Flags().DurationVar(&g.ttl, "crt-ttl", clusterstate.CredentialTTL,
		"validity of a new certificate in the talosconfig")
	cmd.Flags().BoolVar(&g.compat, "compat", false, "apply patches in the order of talhelper: those of all nodes last")
	cmd.Flags().BoolVar(&g.force, "force", false, "overwrite machine configs of another PKI")

	return cmd
}

// output is a file that is to be written.
type output struct {
	path    string
	content []byte
	// old is its present content, nil if there is none.
	old []byte
	// isConfig is set for a machine config.
	isConfig bool
}

func (o output) isChanged() bool { return !bytes.Equal(o.old, o.content) }

// garbage is the share of the memory in use, in percent, that may become garbage before it is collected: the process
// ends soon, and needs some 100 KiB a node.
const garbage = 400

func (g *genconfig) run(ctx context.Context) error {
	if err := checkMode(g.mode); err != nil {
		return err
	}

	if g.getenv("GOGC") == "" {
		defer debug.SetGCPercent(debug.SetGCPercent(garbage))
	}

	fleet, err := g.load(g.source, false)
	if err != nil {
		return err
	}

	bundle, err := g.readBundle(g.secretFile, g.path)
	if err != nil {
		return err
	}

	files, err := g.render(fleet, render.Options{
		Secrets: bundle.Secrets(), Mode: render.Mode(g.mode), Compat: g.compat,
	})
	if err != nil {
		return err
	}

	outputs, err := g.outputs(fleet, bundle, files)
	if err != nil {
		return err
	}

	g.warn(files, outputs)

	if g.dryRun {
		return g.printChanges(outputs)
	}

	if err := done(ctx); err != nil {
		return err
	}

	return g.write(outputs)
}

// outputs collects all files in memory, so that either all or none are written.
func (g *genconfig) outputs(fleet fleetFile, bundle *clusterstate.Bundle, files []render.File) ([]output, error) {
	outputs := make([]output, 0, len(files)+2)
	names := make([]string, 0, len(files)+1)

	for _, file := range files {
		outputs = append(outputs, output{path: filepath.Join(g.outDir, file.Name), content: file.Content, isConfig: true})
		names = append(names, file.Name)
	}

	outputs = append(outputs, output{path: filepath.Join(g.outDir, talosconfigName)})
	names = append(names, talosconfigName)

	if !g.noGitignore {
		outputs = append(outputs, output{path: filepath.Join(g.outDir, gitignoreName)})
	}

	for i := range outputs {
		old, err := os.ReadFile(outputs[i].path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}

		outputs[i].old = old

		switch filepath.Base(outputs[i].path) {
		case talosconfigName:
			if outputs[i].content, err = g.talosconfig(fleet, bundle, old); err != nil {
				return nil, err
			}
		case gitignoreName:
			outputs[i].content = ignore(old, names)
		default:
			if err := g.checkPKI(outputs[i], bundle); err != nil {
				return nil, err
			}
		}
	}

	return outputs, nil
}

// checkPKI refuses to replace the machine config of a cluster by that of another one.
func (g *genconfig) checkPKI(o output, bundle *clusterstate.Bundle) error {
	if len(o.old) == 0 || g.force {
		return nil
	}

	have, err := machineconfig.IdentityOf(o.old)
	if err == nil && have.SameCluster(bundle.Identity()) {
		return nil
	}

	return fmt.Errorf("%s is of another PKI, or is no machine config: a machine that runs with it would not be reachable "+
		"with the new one; check --secret-file, write to another folder with --out-dir, or overwrite it with --force", o.path)
}

func (g *genconfig) talosconfig(fleet fleetFile, bundle *clusterstate.Bundle, old []byte) ([]byte, error) {
	params := clusterstate.TalosconfigParams{ClusterName: fleet.Config.ClusterName, TTL: g.ttl}

	for i := range fleet.Nodes {
		addresses := fleet.Nodes[i].Addresses()
		if fleet.Nodes[i].ControlPlane {
			params.Endpoints = append(params.Endpoints, addresses[0])
		}

		if !g.noNodes {
			params.Nodes = append(params.Nodes, addresses[0])
		}
	}

	if bundle.TalosconfigCurrent(old, params, g.now()) {
		return old, nil
	}

	fresh, err := bundle.Talosconfig(params, g.now())
	if err != nil {
		return nil, err
	}

	if len(old) > 0 && !g.force && !sameAccess(old, fresh) {
		return nil, fmt.Errorf("%s gives access to another cluster, which would be lost; check --secret-file, write to "+
			"another folder with --out-dir, or overwrite it with --force", filepath.Join(g.outDir, talosconfigName))
	}

	return fresh, nil
}

// sameAccess tells whether all contexts of a talosconfig are of the CA of another one.
func sameAccess(old, fresh []byte) bool {
	have, err := clusterstate.ReadTalosconfig(old)
	if err != nil {
		return false
	}

	want, err := clusterstate.ReadTalosconfig(fresh)
	if err != nil {
		return false
	}

	for _, c := range have.Contexts {
		if c == nil || c.CA != want.Contexts[want.Context].CA {
			return false
		}
	}

	return true
}

// ignore adds the names that a .gitignore lacks.
func ignore(old []byte, names []string) []byte {
	have := map[string]bool{}
	for line := range strings.Lines(string(old)) {
		have[strings.TrimSpace(line)] = true
	}

	out := bytes.NewBuffer(slices.Clone(old))
	if len(old) > 0 && !bytes.HasSuffix(old, []byte("\n")) {
		out.WriteByte('\n')
	}

	for _, name := range names {
		if !have[name] && !have["/"+name] && !have["*"] {
			out.WriteString(name + "\n")
		}
	}

	return out.Bytes()
}

// warn prints what the machinery library says, and which files belong to no node any more.
func (g *genconfig) warn(files []render.File, outputs []output) {
	for _, file := range files {
		for _, warning := range file.Warnings {
			fmt.Fprintf(g.ErrOut, "Warning: %s: %s\n", file.Hostname, warning)
		}
	}

	known := map[string]bool{}
	for _, o := range outputs {
		known[o.path] = true
	}

	left, _ := filepath.Glob(filepath.Join(g.outDir, "*.yaml"))
	for _, path := range left {
		if !known[path] {
			fmt.Fprintf(g.ErrOut, "Warning: %s belongs to no node of the talconfig.yaml; remove it if it is not needed\n", path)
		}
	}
}

func (g *genconfig) printChanges(outputs []output) error {
	changed := 0

	for _, o := range outputs {
		if !o.isChanged() {
			continue
		}

		changed++

		switch {
		case len(o.old) == 0:
			fmt.Fprintf(g.Out, "+++ %s (new)\n", o.path)
		case o.isConfig:
			if err := g.printDifference(o); err != nil {
				return err
			}
		default:
			fmt.Fprintf(g.Out, "+++ %s (changed)\n", o.path)
		}
	}

	fmt.Fprintf(g.Out, "%s would change, %s would not.\n", count(changed, "file"), count(len(outputs)-changed, "file"))

	if changed > 0 {
		return &exit.Error{Code: codeChanges}
	}

	return nil
}

// printDifference compares what both files mean. Values that may be secret are replaced.
func (g *genconfig) printDifference(o output) error {
	difference, err := machineconfig.Diff(o.old, o.content)
	if err != nil {
		fmt.Fprintf(g.Out, "+++ %s (replaces what is no machine config)\n", o.path)

		return nil
	}

	fmt.Fprintf(g.Out, "--- %s\n+++ %s\n", o.path, o.path)

	for _, change := range difference.Changes {
		if change.Old != "" {
			fmt.Fprintf(g.Out, "-%s: %s\n", change.Field(), change.Old)
		}

		if change.New != "" {
			fmt.Fprintf(g.Out, "+%s: %s\n", change.Field(), change.New)
		}
	}

	return nil
}

// folderMode of folders with private keys.
const folderMode = 0o700

func (g *genconfig) write(outputs []output) error {
	var group errgroup.Group

	group.SetLimit(runtime.GOMAXPROCS(0))

	written := 0
	folders := map[string]bool{}

	for _, o := range outputs {
		if !o.isChanged() {
			continue
		}

		written++

		if dir := filepath.Dir(o.path); !folders[dir] {
			if err := os.MkdirAll(dir, folderMode); err != nil {
				return fmt.Errorf("making folder %s: %w", dir, err)
			}

			folders[dir] = true
		}

		group.Go(func() error { return writePrivate(o.path, o.content) })
	}

	if err := group.Wait(); err != nil {
		return err
	}

	fmt.Fprintf(g.Out, "Wrote %s to %s, %s unchanged.\n", count(written, "file"), g.outDir,
		count(len(outputs)-written, "file"))

	return nil
}
