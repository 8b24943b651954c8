// Command stress runs the tests several times while other processes keep all processors busy, and tells which of them
// failed: a test that fails by chance, fails here.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/pflag"
)

func main() {
	burnIfAsked()

	failures, err := run(os.Args[1:], os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}

	if failures > 0 {
		os.Exit(1)
	}
}

// run returns how many tests have failed at least once.
func run(args []string, out io.Writer) (failures int, err error) {
	flags := pflag.NewFlagSet("stress", pflag.ContinueOnError)
	runs := flags.Int("runs", 5, "how often to run the command")
	burners := flags.Int("busy", runtime.NumCPU(), "how many processes keep a processor busy each")
	reports := flags.String("reports", "", "folder for what the command reports: each run is given one in it as REPORTS")

	if err := flags.Parse(args); err != nil {
		return 0, err
	}

	if flags.NArg() == 0 || *reports == "" {
		return 0, errors.New("usage: stress --runs N --reports FOLDER -- COMMAND [ARGUMENT...]")
	}

	stop, err := busy(*burners)
	if err != nil {
		return 0, err
	}
	defer stop()

	found := map[string]*failure{}

	for i := range *runs {
		dir := filepath.Join(*reports, strconv.Itoa(i+1))

		if err := one(dir, i+1, flags.Args(), out, found); err != nil {
			return 0, err
		}
	}

	report(out, *runs, found)

	return len(found), nil
}

// one runs the command once, and collects what failed.
func one(dir string, number int, command []string, out io.Writer, found map[string]*failure) error {
	// What an earlier run has left would count again.
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("emptying the folder of a run: %w", err)
	}

	began := time.Now()

	cmd := exec.Command(command[0], command[1:]...) // it ends by itself
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Env = append(os.Environ(), "REPORTS="+dir)

	failed := &exec.ExitError{}
	if err := cmd.Run(); err != nil && !errors.As(err, &failed) {
		return fmt.Errorf("running %s: %w", command[0], err)
	}

	before := len(found)

	if err := collect(dir, number, found); err != nil {
		return err
	}

	if cmd.ProcessState.ExitCode() != 0 && len(found) == before && !again(found, number) {
		found[fmt.Sprintf("run %d", number)] = &failure{runs: []int{number}, log: "the command failed, and no test did"}
	}

	_, _ = fmt.Fprintf(out, "run %d: %s, exit code %d\n", number, time.Since(began).Round(time.Second),
		cmd.ProcessState.ExitCode())

	return nil
}

// burner is the argument that makes a process of this program one that keeps a processor busy.
const burner = "burn"

func burnIfAsked() {
	for len(os.Args) == 2 && os.Args[1] == burner { // to do nothing, all the time, is the point
	}
}

// busy starts processes that do nothing but keep a processor busy each, until stop, or the death of this one.
func busy(n int) (stop func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program: %w", err)
	}

	ctx, cancel := context.WithCancel(context.Background())

	var burning []*exec.Cmd

	stop = func() {
		cancel()

		for _, cmd := range burning {
			_ = cmd.Wait() // it was killed
		}
	}

	// The kernel ends a child with the thread that started it.
	runtime.LockOSThread()

	for range n {
		cmd := exec.CommandContext(ctx, self, burner)
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}

		if err := cmd.Start(); err != nil {
			stop()

			return nil, fmt.Errorf("keeping a processor busy: %w", err)
		}

		burning = append(burning, cmd)
	}

	return stop, nil
}
