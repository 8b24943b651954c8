package process_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/talos-operator/talos-operator/lab/process"
	"github.com/talos-operator/talos-operator/test/wait"
)

// sh starts a shell script and returns its output as it comes.
func sh(t *testing.T, script string, env ...string) (*process.Process, *bufio.Reader) {
	t.Helper()

	r, w := io.Pipe()

	p, err := process.Start("script", "/bin/sh", []string{"-c", script}, env, w)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		_ = r.Close()
		p.Kill()
	})

	return p, bufio.NewReader(r)
}

func line(t *testing.T, r *bufio.Reader) string {
	t.Helper()

	s, err := r.ReadString('\n')
	if err != nil {
		t.Fatalf("reading the output: %v", err)
	}

	return strings.TrimSpace(s)
}

// state is the process state letter of the kernel, or "" when the process is gone.
func state(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}

	_, rest, _ := strings.Cut(string(b), ") ")

	return rest[:1]
}

// ended waits for the end of a process, reaped or not.
func ended(t *testing.T, what string, pid int) {
	t.Helper()
	wait.For(t, what, func(context.Context) error {
		if s := state(pid); s != "" && s != "Z" {
			return fmt.Errorf("process %d is in state %s", pid, s)
		}

		return nil
	})
}

func TestStopLetsTheProcessEndCleanly(t *testing.T) {
	p, out := sh(t, `trap 'echo bye; exit 0' TERM; echo up; while :; do :; done`, "PATH="+os.Getenv("PATH"))

	if got := line(t, out); got != "up" {
		t.Fatalf("first line %q", got)
	}

	// A frozen process must still be able to end in order.
	if err := p.Freeze(true); err != nil {
		t.Fatal(err)
	}

	said := make(chan string, 1)
	go func() {
		s, _ := out.ReadString('\n')
		said <- s
	}()

	if err := p.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}

	if got := wait.Done(t, "its last word", said); got != "bye\n" {
		t.Errorf("the trap did not run, got %q", got)
	}

	if err := p.Err(); err != nil {
		t.Errorf("clean exit reported as %v", err)
	}

	if err := p.Stop(t.Context()); err != nil {
		t.Errorf("stopping again: %v", err)
	}
}

func TestStopKillsWhatDoesNotEnd(t *testing.T) {
	p, out := sh(t, `trap '' TERM; echo up; while :; do :; done`, "PATH="+os.Getenv("PATH"))
	line(t, out)

	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()

	if err := p.Stop(ctx); err == nil {
		t.Error("a kill was reported as a clean stop")
	}

	if s := state(p.PID()); s != "" {
		t.Errorf("process is still there, state %s", s)
	}

	if p.Err() == nil {
		t.Error("a killed process has no error")
	}
}

func TestKillTakesTheWholeGroup(t *testing.T) {
	p, out := sh(t, `/bin/sleep 1000 & echo $!; wait`)

	child, err := strconv.Atoi(line(t, out))
	if err != nil {
		t.Fatal(err)
	}

	p.Kill()

	select {
	case <-p.Done():
	default:
		t.Error("Kill returned before the end")
	}

	ended(t, "the grandchild ends", child)
}

func TestFreeze(t *testing.T) {
	p, _ := sh(t, `exec /bin/sleep 1000`)

	if err := p.Freeze(true); err != nil {
		t.Fatal(err)
	}

	if got := state(p.PID()); got != "T" {
		t.Errorf("the process is in state %s once it is frozen", got)
	}

	if !p.Frozen() {
		t.Error("not reported as frozen")
	}

	if err := p.Freeze(false); err != nil {
		t.Fatal(err)
	}

	wait.For(t, "the process continues", func(context.Context) error {
		if s := state(p.PID()); s != "S" {
			return fmt.Errorf("it is in state %s", s)
		}

		return nil
	})
}

func TestEnvironmentIsNotInherited(t *testing.T) {
	t.Setenv("ETCD_NAME", "leaked")

	_, out := sh(t, `echo "${ETCD_NAME:-none} ${GIVEN:-none}"`, "GIVEN=yes")

	if got := line(t, out); got != "none yes" {
		t.Errorf("got %q", got)
	}

	for _, kv := range process.BaseEnv() {
		if strings.HasPrefix(kv, "ETCD_") {
			t.Errorf("base environment has %s", kv)
		}
	}
}

func TestFailures(t *testing.T) {
	if _, err := process.Start("nothing", "/nonexistent", nil, nil, nil); err == nil {
		t.Error("a missing program started")
	}

	var out bytes.Buffer

	p, err := process.Start("failing", "/bin/sh", []string{"-c", "echo why; exit 3"}, nil, &out)
	if err != nil {
		t.Fatal(err)
	}

	wait.Done(t, "it ends", p.Done())

	if err := p.Err(); err == nil || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("error %v", err)
	}

	if out.String() != "why\n" {
		t.Errorf("output %q", out.String())
	}
}

// TestChildrenDieWithTheLab kills a process that has started a child, and looks for the child. The parent is this
// test binary in another role.
func TestChildrenDieWithTheLab(t *testing.T) {
	if file := os.Getenv("LAB_PARENT"); file != "" {
		p, err := process.Start("child", "/bin/sleep", []string{"1000"}, nil, nil)
		if err != nil {
			t.Fatal(err)
		}

		if err := os.WriteFile(file+".part", []byte(strconv.Itoa(p.PID())), 0o600); err != nil {
			t.Fatal(err)
		}

		if err := os.Rename(file+".part", file); err != nil {
			t.Fatal(err)
		}

		<-p.Done()

		return
	}

	file := filepath.Join(t.TempDir(), "pid")
	parent := exec.Command(os.Args[0], "-test.run=^TestChildrenDieWithTheLab$")
	parent.Env = append(os.Environ(), "LAB_PARENT="+file)

	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}

	var child int

	wait.For(t, "the child starts", func(context.Context) error {
		b, err := os.ReadFile(file)
		if err != nil {
			return err
		}

		child, err = strconv.Atoi(string(b))

		return err
	})

	if s := state(child); s == "" {
		t.Fatal("the child is not running")
	}

	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}

	_ = parent.Wait()

	ended(t, "the child ends with its parent", child)
}

func TestLazyGC(t *testing.T) {
	for own, want := range map[string]string{"": "GOGC=200", "400": "GOGC=400", "off": "GOGC=off"} {
		t.Setenv("GOGC", own)

		if got := process.LazyGC(); got != want {
			t.Errorf("with GOGC=%q a child has %s, want %s", own, got, want)
		}
	}
}
