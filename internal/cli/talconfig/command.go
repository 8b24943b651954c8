// Package talconfig contains the commands for a talconfig.yaml. They need no management cluster, and ask no node: they
// read files, and write files or print.
package talconfig

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"filippo.io/age"
	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"

	"github.com/talos-operator/talos-operator/internal/cli/exit"
	model "github.com/talos-operator/talos-operator/internal/talconfig"
)

// environment is what the commands know of where they run.
type environment struct {
	genericiooptions.IOStreams

	now     func() time.Time
	environ func() []string
	getenv  func(string) string
}

// NewCommand returns the command with all others below it.
func NewCommand(streams genericiooptions.IOStreams) *cobra.Command {
	env := &environment{IOStreams: streams, now: clock.RealClock{}.Now, environ: os.Environ, getenv: os.Getenv}

	cmd := &cobra.Command{
		Use:   "talconfig",
		Short: "Check talconfig.yaml, and generate machine configs from it",
		Long: `Check talconfig.yaml, the file of talhelper, and generate machine configs from it. The commands and their flags
have the names that talhelper gives them; docs/talhelper.md lists what differs, and why. No management cluster
is needed, and no node is asked.`,
	}
	cmd.AddCommand(
		newGenconfigCommand(env), newGensecretCommand(env), newGenurlCommand(env), newGencommandCommand(env),
		newValidateCommand(env), newImportCommand(env), newApplyCommand(env),
	)

	return cmd
}

// source are the flags that say which talconfig.yaml is read.
type source struct {
	path     string
	envFiles []string
}

const defaultPath = "talconfig.yaml"

func (s *source) addPath(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&s.path, "config-file", "c", defaultPath, "the talconfig.yaml")
}

func (s *source) addEnv(cmd *cobra.Command, shorthand string) {
	cmd.Flags().StringSliceVarP(&s.envFiles, "env-file", shorthand, nil,
		"files with variables (default: talenv.yaml, talenv.sops.yaml, … beside the talconfig.yaml)")
}

func (e *environment) load(s source, noSubstitute bool) (*model.Fleet, error) {
	fleet, err := model.Load(model.Options{
		Path: s.path, EnvFiles: s.envFiles, NoSubstitute: noSubstitute, Environ: e.environ(), Keys: e.keys,
	})

	var problems model.Problems
	if !errors.As(err, &problems) {
		return fleet, err
	}

	for _, problem := range problems {
		fmt.Fprintln(e.ErrOut, problem.String())
	}

	return nil, fmt.Errorf("%s has %s, listed above; nothing was written", s.path, count(len(problems), "problem"))
}

func (e *environment) keys() ([]age.Identity, error) { return model.AgeKeys(e.getenv) }

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}

	return fmt.Sprintf("%d %ss", n, noun)
}

// writePrivate replaces a file atomically: a reader sees the old or the new one, and a symbolic link is not followed.
// The file can be written again, so nothing waits for the disk.
func writePrivate(path string, content []byte) (err error) {
	temp, err := os.CreateTemp(filepath.Dir(path), ".talconfig-*") // with mode 0600
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}

	defer func() {
		if err != nil {
			_ = os.Remove(temp.Name())
		}
	}()

	_, werr := temp.Write(content)
	if err := errors.Join(werr, temp.Close()); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}

	if err := os.Rename(temp.Name(), path); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}

	return nil
}

// writeSecrets writes a file that cannot be made again: it is on the disk when this returns. Without replace, a file
// that appeared meanwhile stays.
func writeSecrets(path string, content []byte, replace bool) error {
	temp, err := os.CreateTemp(filepath.Dir(path), ".talconfig-*") // with mode 0600
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	defer func() { _ = os.Remove(temp.Name()) }()

	_, werr := temp.Write(content)
	if err := errors.Join(werr, temp.Sync(), temp.Close()); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}

	put := os.Link // unlike a rename, it never replaces a file
	if replace {
		put = os.Rename
	}

	if err := put(temp.Name(), path); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}

	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}

	return errors.Join(dir.Sync(), dir.Close())
}

func newValidateCommand(env *environment) *cobra.Command {
	cmd := &cobra.Command{Use: "validate", Short: "Check files without changing anything"}

	var noSubstitute bool

	var s source

	talconfig := &cobra.Command{
		Use:   "talconfig [FILE]",
		Short: "Check a talconfig.yaml, with all files that it names",
		Long: `Check a talconfig.yaml as genconfig does: keys, values, groups, patches and files that it names. Each problem
is one line on stderr, with the line and the path of the field.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				s.path = args[0]
			}

			return env.validateTalconfig(s, noSubstitute)
		},
	}
	talconfig.Flags().BoolVar(&noSubstitute, "no-substitute", false, "leave variables as they are")
	s.path = defaultPath
	s.addEnv(talconfig, "e")

	var mode string

	nodeconfig := &cobra.Command{
		Use:   "nodeconfig FILE...",
		Short: "Check machine configs",
		Args:  cobra.MinimumNArgs(1),
		RunE:  func(_ *cobra.Command, args []string) error { return env.validateNodeconfigs(args, mode) },
	}
	addMode(nodeconfig, &mode)

	cmd.AddCommand(talconfig, nodeconfig)

	return cmd
}

// readSmall reads a file that a person wrote.
func readSmall(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()

	return io.ReadAll(io.LimitReader(file, 64<<20))
}

// done ends a command early if it was interrupted.
func done(ctx context.Context) error {
	if ctx.Err() != nil {
		return &exit.Error{Code: exit.Failed, Err: errors.New("interrupted")}
	}

	return nil
}
