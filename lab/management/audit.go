package management

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Write is one request that asked the API server for a change, whether or not it was granted.
type Write struct {
	Time time.Time
	User string
	// Verb is create, update, patch, delete or deletecollection.
	Verb string
	// Resource is plural, with its subresource: machines/status.
	Resource, Namespace, Name string
	// Code is the HTTP status.
	Code int
}

// String shows a write in one line.
func (w Write) String() string {
	return fmt.Sprintf("%s %s %s/%s: %d", w.Verb, w.Resource, w.Namespace, w.Name, w.Code)
}

func (p *Plane) auditLog() string { return filepath.Join(p.opts.Dir, "audit.log") }

// Writes returns the writes of a user since a moment, oldest first. The renewals of leases are left out: a leader that
// has nothing to do renews its lease all the same.
func (p *Plane) Writes(user string, since time.Time) ([]Write, error) {
	files, err := p.auditLogs(since)
	if err != nil {
		return nil, err
	}

	var writes []Write

	for _, file := range files {
		found, err := readWrites(file, user, since)
		if err != nil {
			return nil, err
		}

		writes = append(writes, found...)
	}

	return writes, nil
}

// auditLogs are the files that may hold requests since a moment, oldest first: a busy API server begins a new one now
// and then.
func (p *Plane) auditLogs(since time.Time) ([]string, error) {
	current := p.auditLog()

	// The names of earlier ones tell when they ended, so that they sort.
	earlier, err := filepath.Glob(strings.TrimSuffix(current, ".log") + "-*.log")
	if err != nil {
		return nil, fmt.Errorf("listing audit logs: %w", err)
	}

	slices.Sort(earlier)

	files := slices.DeleteFunc(earlier, func(file string) bool {
		info, err := os.Stat(file)

		return err != nil || info.ModTime().Before(since)
	})

	return append(files, current), nil
}

// disorder bounds how much later than its end a request may be logged: requests that end together are logged in any
// order.
const disorder = 10 * time.Second

// reads are verbs that change nothing.
var reads = []string{"get", "list", "watch"}

func readWrites(file, user string, since time.Time) ([]Write, error) {
	content, err := readSince(file, since.Add(-disorder))
	if err != nil {
		return nil, fmt.Errorf("reading the audit log: %w", err)
	}

	var writes []Write

	for line := range bytes.Lines(content) {
		// What has no end is being written.
		if !bytes.HasSuffix(line, []byte("\n")) || !bytes.Contains(line, []byte(user)) {
			continue
		}

		w, err := parseWrite(line)
		if err != nil {
			return nil, err
		}

		if w.User == user && !w.Time.Before(since) && w.Resource != "leases" && !slices.Contains(reads, w.Verb) {
			writes = append(writes, w)
		}
	}

	return writes, nil
}

// auditBlock is how much of an audit log is read, at once, for the line to begin at.
const auditBlock = 256 << 10

// readSince reads the end of an audit log: all lines from a time on, and some before. Most who ask want the last
// seconds of a long log, which many write to. A log that is not there is empty.
func readSince(file string, oldest time.Time) ([]byte, error) {
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}

	if err != nil {
		return nil, err
	}
	defer f.Close()

	info, err := f.Stat()
	if err != nil {
		return nil, err
	}

	at, err := beginning(f, info.Size(), oldest)
	if err != nil {
		return nil, err
	}

	content, err := io.ReadAll(io.NewSectionReader(f, at, info.Size()-at))
	if err != nil {
		return nil, err
	}

	return content, nil
}

// beginning is where a line begins that was logged before a time; 0 when there is none.
func beginning(f *os.File, size int64, oldest time.Time) (int64, error) {
	block := make([]byte, auditBlock)

	for at := size - auditBlock; at > 0; at -= auditBlock {
		n, err := f.ReadAt(block, at)
		if err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}

		// The block begins in the middle of a line.
		cut, rest, _ := bytes.Cut(block[:n], []byte("\n"))

		first, _, whole := bytes.Cut(rest, []byte("\n"))
		if !whole {
			continue
		}

		ended, err := endOf(first)
		if err != nil {
			return 0, err
		}

		if ended.Before(oldest) {
			return at + int64(len(cut)) + 1, nil
		}
	}

	return 0, nil
}

// endOf is when a request ended, which is when it was logged. A watch may have begun long before.
func endOf(line []byte) (time.Time, error) {
	var event struct {
		Ended time.Time `json:"stageTimestamp"`
	}

	if err := json.Unmarshal(line, &event); err != nil {
		return time.Time{}, fmt.Errorf("reading a line of the audit log: %w", err)
	}

	return event.Ended, nil
}

func parseWrite(line []byte) (Write, error) {
	var event struct {
		Verb      string    `json:"verb"`
		Received  time.Time `json:"requestReceivedTimestamp"`
		User      struct{ Username string }
		ObjectRef struct{ Resource, Subresource, Namespace, Name string }
		Response  struct{ Code int } `json:"responseStatus"`
	}

	if err := json.Unmarshal(line, &event); err != nil {
		return Write{}, fmt.Errorf("reading a line of the audit log: %w", err)
	}

	ref := event.ObjectRef

	return Write{
		Time: event.Received, User: event.User.Username, Verb: event.Verb,
		Resource: withSubresource(ref.Resource, ref.Subresource), Namespace: ref.Namespace, Name: ref.Name,
		Code: event.Response.Code,
	}, nil
}

// withSubresource is a resource with its subresource, if there is one: machines/status.
func withSubresource(resource, subresource string) string {
	if subresource == "" {
		return resource
	}

	return resource + "/" + subresource
}
