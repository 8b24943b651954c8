// Command mutation changes the code that makes decisions about nodes in many small ways, and tells which changes the
// tests do not notice: the random histories and the properties, and for some packages the tables. It prints JSON lines:
// one for each survivor, and at the end the score.
//
// All changes of a package are compiled into one test binary, and a variable of the environment selects one of them, so
// that each costs a run of the tests and no build. The changed files stand in for the real ones by an overlay of the
// build; nothing in the working tree changes.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"sync"
	"time"

	"github.com/spf13/pflag"
)

// target is a package with code that is mutated.
type target struct {
	dir string
	// files that are mutated; all of the package when there are none.
	files []string
	// tests that have to notice, and nothing but them: where histories are independent of the code, tables are left out.
	tests string
	// rounds are the arguments of a first, short run, and of longer ones for what has survived it.
	rounds [][]string
}

// A failure of a history is enough: to store it is of no use, and to find a shorter one takes up to half a minute.
const unstored, unshrunk = "-rapid.nofailfile", "-rapid.shrinktime=0s"

var targets = []target{
	{
		dir: "internal/safety", files: []string{
			"backup.go", "bootstrap.go", "disruption.go", "etcd.go", "evidence.go", "fence.go", "stale.go",
		}, tests: "^(TestHistories|TestProperties.*)$",
		rounds: [][]string{{"-histories", "300"}, {"-histories", "4000"}},
	},
	{
		dir: "internal/decide/restore", files: []string{"again.go", "decide.go", "doc.go", "ready.go", "unlisted.go"},
		tests:  "^(TestHistories|TestProperties.*)$",
		rounds: [][]string{{"-histories", "300"}, {"-histories", "4000"}},
	},
	{
		dir: "internal/decide/change", files: []string{
			"compare.go", "doc.go", "lost.go", "next.go", "reboot.go", "rollback.go", "settle.go", "talos.go", "trial.go",
		}, tests: "^Test",
		rounds: [][]string{
			{unstored, unshrunk, "-rapid.checks=3"},
			{unstored, unshrunk, "-rapid.checks=100"},
			{unstored, unshrunk, "-rapid.checks=3000", "-rapid.steps=60"},
		},
	},
	{
		dir: "internal/decide/upgrade", tests: "^Test",
		rounds: [][]string{
			{unstored, unshrunk, "-rapid.checks=3"},
			{unstored, unshrunk, "-rapid.checks=50"},
			{unstored, unshrunk, "-rapid.checks=1000"},
		},
	},
}

type options struct {
	only    string
	match   string
	workers int
	minimum float64
	quick   bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()

	ok, err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}

	if err != nil || !ok {
		os.Exit(1) // the process ends
	}
}

// run is true when the score is high enough and every survivor is explained.
func run(ctx context.Context, args []string, out, progress io.Writer) (bool, error) {
	var o options

	flags := pflag.NewFlagSet("mutation", pflag.ContinueOnError)
	flags.StringVar(&o.only, "package", "", "mutate this folder alone")
	flags.StringVar(&o.match, "match", "", "try only mutants whose description contains this")
	flags.IntVar(&o.workers, "workers", runtime.NumCPU(), "how many mutants to try at once")
	flags.Float64Var(&o.minimum, "minimum", 0.9, "the lowest score that passes")

	flags.BoolVar(&o.quick, "quick", false, "leave out the longest run: what survives may be noticed by it")

	if err := flags.Parse(args); err != nil {
		return false, err
	}

	known, err := readExplained()
	if err != nil {
		return false, err
	}

	began, s := time.Now(), summary{Packages: map[string]*count{}}

	for _, t := range targets {
		if o.only != "" && o.only != t.dir {
			continue
		}

		if o.quick {
			t.rounds = t.rounds[:len(t.rounds)-1]
		}

		if err := s.try(ctx, t, o, known[t.dir], out, progress); err != nil {
			return false, fmt.Errorf("mutating %s: %w", t.dir, err)
		}
	}

	s.Seconds = int(time.Since(began).Seconds())

	return s.end(o.minimum, out)
}

// count counts mutants.
type count struct {
	Mutants  int `json:"mutants"`
	Killed   int `json:"killed"`
	Survived int `json:"survived"`
}

// summary is the last line of the output.
type summary struct {
	Score float64 `json:"mutation_score"`
	count
	Explained   int               `json:"explained"`
	Unexplained int               `json:"unexplained"`
	Stale       []string          `json:"stale_explanations,omitempty"`
	Seconds     int               `json:"seconds"`
	Packages    map[string]*count `json:"packages"`
}

// try tries all mutants of a package.
func (s *summary) try(ctx context.Context, t target, o options, known *explanations, out, progress io.Writer) error {
	b, err := build(ctx, t, known)
	if err != nil {
		return err
	}
	defer b.remove()

	baseline, err := b.baseline(ctx)
	if err != nil {
		return err
	}

	fmt.Fprintf(progress, "%s: %d mutants; the tests use %s of processor time\n", t.dir, len(b.mutants),
		baseline.Round(time.Millisecond))

	c := &count{}
	s.Packages[t.dir] = c

	results := b.tryAll(ctx, o, baseline)
	for r := range results {
		s.add(r.killed)
		c.add(r.killed)

		if c.Mutants%50 == 0 {
			fmt.Fprintf(progress, "%s: %d tried, %d survive\n", t.dir, c.Mutants, c.Survived)
		}

		if r.killed {
			continue
		}

		line := survivor{mutant: r.mutant, Package: t.dir, Why: known.why(r.mutant)}
		if line.Why == "" {
			s.Unexplained++
		} else {
			s.Explained++
		}

		if err := json.NewEncoder(out).Encode(line); err != nil {
			return fmt.Errorf("writing: %w", err)
		}
	}

	// An explanation of what no longer survives is wrong.
	if o.match == "" {
		for _, stale := range known.unused() {
			s.Stale = append(s.Stale, t.dir+"/"+stale)
		}
	}

	return ctx.Err()
}

// survivor is a line of the output.
type survivor struct {
	Package string `json:"package"`
	mutant
	Why string `json:"explained,omitempty"`
}

func (c *count) add(killed bool) {
	c.Mutants++

	if killed {
		c.Killed++
	} else {
		c.Survived++
	}
}

func (s *summary) end(minimum float64, out io.Writer) (bool, error) {
	if s.Mutants == 0 {
		return false, errors.New("there are no such mutants")
	}

	s.Score = float64(s.Killed) / float64(s.Mutants)

	if err := json.NewEncoder(out).Encode(s); err != nil {
		return false, fmt.Errorf("writing: %w", err)
	}

	return s.Score >= minimum && s.Unexplained == 0 && len(s.Stale) == 0, nil
}

type result struct {
	mutant mutant
	killed bool
}

// tryAll tries mutants at once.
func (b *binary) tryAll(ctx context.Context, o options, baseline time.Duration) <-chan result {
	todo, done := make(chan mutant), make(chan result)

	var wg sync.WaitGroup

	for range max(o.workers, 1) {
		wg.Go(func() {
			for m := range todo {
				// What could not be tried was not noticed.
				killed, err := b.kills(ctx, m, baseline)
				if ctx.Err() == nil {
					done <- result{mutant: m, killed: killed && err == nil}
				}
			}
		})
	}

	go func() {
		defer close(done)
		defer wg.Wait()
		defer close(todo)

		for _, m := range b.mutants {
			if ctx.Err() != nil {
				return
			}

			if m.matches(o.match) {
				todo <- m
			}
		}
	}()

	return done
}
