// Package journal keeps the logs of an emulated machine: of its kernel and of each service.
package journal

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"
)

// keptLines is how many lines of each log a machine remembers.
const keptLines = 200

// Journal has the logs of one boot.
type Journal struct {
	out io.Writer

	mu      sync.Mutex
	booted  time.Time
	files   map[string]*logFile
	changed chan struct{}
}

type logFile struct {
	lines   []string
	dropped int
}

// KernelLog is the name under which the kernel's log is kept.
const KernelLog = "kernel"

// New returns the journal of a machine that has just begun to boot. What Writers are given is copied to out.
func New(out io.Writer) *Journal {
	j := &Journal{out: out, booted: time.Now(), files: map[string]*logFile{}, changed: make(chan struct{})}

	for _, line := range []string{
		"Linux version 6.18.24-talos (root@buildkitsandbox) (gcc 15.2.0, GNU ld 2.45) #1 SMP",
		"Command line: talos.platform=metal console=tty0 init_on_alloc=1 slab_nomerge pti=on",
		"x86/fpu: Supporting XSAVE feature 0x001: 'x87 floating point registers'",
		"smpboot: CPU0: Lab Virtual CPU",
		"EXT4-fs: mounted root (squashfs filesystem) readonly",
	} {
		j.Kernel(line)
	}

	return j
}

// Kernel adds a line to the kernel log, in the format of Dmesg.
func (j *Journal) Kernel(line string) {
	since := time.Since(j.booted).Seconds()
	stamp := time.Now().UTC().Format("2006-01-02T15:04:05.000000000Z")
	j.add(KernelLog, fmt.Sprintf("kern:    info: [%s]: [%9.6f] %s", stamp, since, line))
}

// Service adds a line to the log of a service.
func (j *Journal) Service(id, line string) {
	j.add(id, time.Now().UTC().Format("2006/01/02 15:04:05.000000")+" "+line)
}

func (j *Journal) add(id, line string) {
	j.mu.Lock()
	defer j.mu.Unlock()

	f := j.files[id]
	if f == nil {
		f = &logFile{}
		j.files[id] = f
	}

	f.lines = append(f.lines, line)
	if len(f.lines) > keptLines {
		f.lines = slices.Delete(f.lines, 0, 1)
		f.dropped++
	}

	close(j.changed)
	j.changed = make(chan struct{})
}

// Register makes a log exist that nothing was written to yet.
func (j *Journal) Register(id string) {
	j.mu.Lock()
	defer j.mu.Unlock()

	if j.files[id] == nil {
		j.files[id] = &logFile{}
	}
}

// IDs lists the logs of services.
func (j *Journal) IDs() []string {
	j.mu.Lock()
	defer j.mu.Unlock()

	return slices.DeleteFunc(slices.Sorted(maps.Keys(j.files)), func(id string) bool { return id == KernelLog })
}

// Read sends the lines of a log: all that are kept, or the last ones where tail is not negative, and with follow those
// that come until ctx ends. It reports whether there is such a log.
func (j *Journal) Read(ctx context.Context, id string, tail int, follow bool, send func([]byte) error) (bool, error) {
	pos := -1

	for {
		j.mu.Lock()

		f := j.files[id]
		if f == nil {
			j.mu.Unlock()

			return false, nil
		}

		if pos < 0 {
			pos = f.dropped
			if tail >= 0 {
				pos = f.dropped + max(0, len(f.lines)-tail)
			}
		}

		batch := slices.Clone(f.lines[max(0, pos-f.dropped):])
		pos = f.dropped + len(f.lines)
		changed := j.changed
		j.mu.Unlock()

		for _, line := range batch {
			if err := send([]byte(line + "\n")); err != nil {
				return true, err
			}
		}

		if !follow {
			return true, nil
		}

		select {
		case <-ctx.Done():
			return true, ctx.Err()
		case <-changed:
		}
	}
}

// Writer returns a writer whose lines become lines of a log.
func (j *Journal) Writer(id string) io.Writer { return &lineWriter{journal: j, id: id} }

type lineWriter struct {
	journal *Journal
	id      string

	mu   sync.Mutex
	rest []byte
}

// maxLine bounds one line of a log.
const maxLine = 2048

// Write implements io.Writer.
func (w *lineWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()

	w.rest = append(w.rest, p...)

	for {
		i := bytes.IndexByte(w.rest, '\n')
		if i < 0 {
			break
		}

		w.journal.add(w.id, string(w.rest[:min(i, maxLine)]))
		w.rest = w.rest[i+1:]
	}

	if len(w.rest) == 0 {
		w.rest = nil
	}

	if _, err := w.journal.out.Write(p); err != nil {
		return 0, fmt.Errorf("copying the log of %s: %w", w.id, err)
	}

	return len(p), nil
}
