package management

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
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

// longestRequest bounds how long after its arrival a request may be logged, which is when it ends: the API server gives
// up on one after 60 s.
const longestRequest = 2 * time.Minute

func readWrites(file, user string, since time.Time) ([]Write, error) {
	content, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading the audit log: %w", err)
	}

	var writes []Write

	// The newest come first here: most who ask want the last seconds of a long log. What has no end is being written.
	for end := bytes.LastIndexByte(content, '\n'); end >= 0; {
		begin := bytes.LastIndexByte(content[:end], '\n')
		line := content[begin+1 : end]
		end = begin

		if !bytes.Contains(line, []byte(user)) {
			continue
		}

		w, err := parseWrite(line)
		if err != nil {
			return nil, err
		}

		if w.Time.Before(since.Add(-longestRequest)) {
			break
		}

		if w.User == user && !w.Time.Before(since) && w.Resource != "leases" {
			writes = append(writes, w)
		}
	}

	slices.Reverse(writes)

	return writes, nil
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

	resource := event.ObjectRef.Resource
	if event.ObjectRef.Subresource != "" {
		resource = strings.Join([]string{resource, event.ObjectRef.Subresource}, "/")
	}

	return Write{
		Time: event.Received, User: event.User.Username, Verb: event.Verb, Resource: resource,
		Namespace: event.ObjectRef.Namespace, Name: event.ObjectRef.Name, Code: event.Response.Code,
	}, nil
}
