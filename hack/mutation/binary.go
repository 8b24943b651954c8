package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// selector is the variable of the environment that selects a mutant.
const selector = "TALOS_OPERATOR_MUTANT"

// runtimeFile is compiled into the mutated package.
const runtimeFile = `package %s

import "os"

var selectedMutant = os.Getenv("` + selector + `")

func mutant(id string) bool { return selectedMutant == id }

func mutantNumber[T ~int | ~int32 | ~int64 | ~uint64](id string, v T) T {
	if mutant(id) {
		return v + 1
	}

	return v
}

func mutantLabel[T ~int](id string, v T) T {
	if mutant(id) {
		return v + 1<<20
	}

	return v
}

func mutantText[T ~string](id string, v T) T {
	if mutant(id) {
		return v + "\x00"
	}

	return v
}
`

// binary is a test binary with all mutants of a package.
type binary struct {
	target  target
	folder  string
	path    string
	mutants []mutant
}

// build compiles the tests of a package with all its mutants.
func build(ctx context.Context, t target, known *explanations) (*binary, error) {
	folder, err := os.MkdirTemp("", "mutation")
	if err != nil {
		return nil, fmt.Errorf("making a folder: %w", err)
	}

	b := &binary{target: t, folder: folder, path: filepath.Join(folder, "mutated.test")}
	if err := b.compile(ctx, known); err != nil {
		b.remove()

		return nil, err
	}

	return b, nil
}

func (b *binary) remove() { _ = os.RemoveAll(b.folder) }

func (b *binary) compile(ctx context.Context, known *explanations) error {
	p, err := load(ctx, b.target)
	if err != nil {
		return err
	}

	overlay := map[string]string{}

	for name, file := range p.files {
		text, mutants := p.mutate(file, known)
		b.mutants = append(b.mutants, mutants...)
		overlay[name] = filepath.Join(b.folder, filepath.Base(name))

		if err := os.WriteFile(overlay[name], text, 0o600); err != nil {
			return fmt.Errorf("writing a mutated file: %w", err)
		}
	}

	slices.SortFunc(b.mutants, func(a, b mutant) int {
		return cmp.Or(strings.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), strings.Compare(a.id, b.id))
	})

	extra := filepath.Join(p.dir, "mutant_overlay.go")
	overlay[extra] = filepath.Join(b.folder, "mutant_overlay.go")

	if err := os.WriteFile(overlay[extra], fmt.Appendf(nil, runtimeFile, p.name), 0o600); err != nil {
		return fmt.Errorf("writing the selection of mutants: %w", err)
	}

	list, err := json.Marshal(map[string]any{"Replace": overlay})
	if err != nil {
		return fmt.Errorf("encoding the overlay: %w", err)
	}

	file := filepath.Join(b.folder, "overlay.json")
	if err := os.WriteFile(file, list, 0o600); err != nil {
		return fmt.Errorf("writing the overlay: %w", err)
	}

	out, err := exec.CommandContext(ctx, "go", "test", "-vet=off", "-overlay", file, "-c", "-o", b.path,
		"./"+b.target.dir).CombinedOutput()
	if err != nil {
		return fmt.Errorf("compiling the mutants: %w\n%s", err, out)
	}

	return nil
}

// baseline runs the tests without any mutant, which have to pass, and returns the processor time that they use.
func (b *binary) baseline(ctx context.Context) (time.Duration, error) {
	var used time.Duration

	for _, args := range b.target.rounds {
		killed, cpu, out, err := b.run(ctx, "none", args, 0)
		if err != nil {
			return 0, err
		}

		if killed {
			return 0, fmt.Errorf("the tests fail without a mutant:\n%s", out)
		}

		used += cpu
	}

	return used, nil
}

// kills tells whether the tests notice a mutant.
func (b *binary) kills(ctx context.Context, m mutant, baseline time.Duration) (bool, error) {
	// What never ends is noticed, too. The limit is one of processor time: on a busy computer, tests that notice nothing
	// would otherwise seem never to end.
	limit := 10*baseline + 5*time.Second

	for _, args := range b.target.rounds {
		killed, _, _, err := b.run(ctx, m.id, args, limit)
		if killed || err != nil {
			return killed, err
		}
	}

	return false, nil
}

// run runs the tests with one mutant, for at most the given processor time unless that is 0. It returns whether they
// failed, the processor time that they used, and their output.
func (b *binary) run(
	ctx context.Context, id string, args []string, limit time.Duration,
) (bool, time.Duration, []byte, error) {
	limited := "ulimit -t unlimited"
	if limit > 0 {
		limited = fmt.Sprintf("ulimit -t %d", int(limit.Seconds()))
	}

	command := []string{"-c", limited + ` && exec "$0" "$@"`, b.path, "-test.run", b.target.tests, "-test.failfast"}
	cmd := exec.CommandContext(ctx, "sh", append(command, args...)...)
	cmd.Dir = b.target.dir
	cmd.Env = append(os.Environ(), selector+"="+id, "GOMEMLIMIT=1GiB", "GOGC=400")

	var out bytes.Buffer

	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()

	var exit *exec.ExitError

	switch {
	case ctx.Err() != nil:
		return false, 0, nil, ctx.Err()
	case err != nil && !errors.As(err, &exit):
		return false, 0, nil, fmt.Errorf("running the tests: %w", err)
	}

	return err != nil, cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), out.Bytes(), nil
}
