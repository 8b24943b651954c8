package process

import (
	"errors"
	"os/exec"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

type launchRequest struct {
	cmd    *exec.Cmd
	result chan<- error
}

// launcher is the one goroutine that forks. The kernel sends the parent-death signal when the *thread* that forked
// ends, not when the process does, and the Go runtime ends threads as it likes: without a thread of its own that
// lasts as long as the lab, children would be killed at random.
var launcher = sync.OnceValue(func() chan<- launchRequest {
	requests := make(chan launchRequest)

	go func() {
		runtime.LockOSThread()

		for r := range requests {
			r.result <- r.cmd.Start()
		}
	}()

	return requests
})

func launch(cmd *exec.Cmd) error {
	result := make(chan error, 1)
	launcher() <- launchRequest{cmd: cmd, result: result}

	return <-result
}

// waitExit blocks until the process has ended and leaves it as a zombie for the real wait.
func waitExit(pid int) { waitFor(pid, unix.WEXITED) }

// waitStopped blocks until every thread of the process is stopped, or the process has ended.
func waitStopped(pid int) { waitFor(pid, unix.WSTOPPED|unix.WEXITED) }

func waitFor(pid, states int) {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, states|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}
