package verify

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/talos-operator/talos-operator/internal/backup"
	"github.com/talos-operator/talos-operator/internal/backup/child"
	"github.com/talos-operator/talos-operator/internal/backup/scratch"
	"github.com/talos-operator/talos-operator/internal/failure"
)

const (
	// maxFindings is more than a child prints, maxComplaint what is kept of its error output.
	maxFindings  = 1 << 20
	maxComplaint = 8 << 10

	baseMemory = 768 << 20

	// childEnv is set in a child process, which must not start another one.
	childEnv = "TALOS_OPERATOR_DATABASE_CHECK"
	// databaseName is the name of the plain database in a scratch directory.
	databaseName = "snapshot.db"
)

// findings is the output of a child, as one JSON object.
type findings struct {
	// Problem is what is wrong with the database; all other fields are then meaningless. It quotes none of its content.
	Problem    string            `json:"problem,omitempty"`
	Database   *DatabaseReport   `json:"database,omitempty"`
	Kubernetes *KubernetesReport `json:"kubernetes,omitempty"`
	Drill      *DrillReport      `json:"drill,omitempty"`
	// Nameless: a live key is empty. A snapshot with a raised revision has such a key; it counts as a key, and etcd never
	// returns it.
	Nameless bool `json:"nameless,omitempty"`
}

// check lets a child inspect the database.
func (r *run) check(ctx context.Context, dir *scratch.Folder, c *backup.Content) error {
	f, err := r.child(ctx, dir, c.PlainSize, ReasonDatabase)
	if err != nil {
		return err
	}

	if f.Database == nil || f.Kubernetes == nil || f.Drill != nil {
		return invalid(ReasonDatabase, "the check of the database ended without a result", nil)
	}

	r.report.Database, r.report.Kubernetes, r.nameless = f.Database, f.Kubernetes, f.Nameless

	if m := r.manifest; m != nil && f.Database.Revision < m.Etcd.Revision {
		return invalid(ReasonDatabase, "the database is older than its manifest says",
			fmt.Errorf("revision %d, the member had %d", f.Database.Revision, m.Etcd.Revision))
	}

	return nil
}

// drill starts an etcd from the database, and compares what it returns with the contents of the database.
func (r *run) drill(ctx context.Context, dir *scratch.Folder, c *backup.Content) error {
	args := []string{
		option(flagDrill, true), option(flagRevision, r.report.Database.Revision), option(flagCopied, !c.Checksummed),
	}

	f, err := r.child(ctx, dir, c.PlainSize, ReasonDrill, args...)
	if err != nil {
		return err
	}

	d := f.Drill
	if d == nil || f.Database != nil || f.Kubernetes != nil {
		return invalid(ReasonDrill, "the drill ended without a result", nil)
	}

	db, k := r.report.Database, r.report.Kubernetes

	shown := db.TotalKeys
	if r.nameless {
		shown--
	}

	switch {
	case d.Revision < db.Revision:
		return invalid(ReasonDrill, "the etcd of the drill has an older revision than the database", nil)
	case d.Keys != shown:
		return invalid(ReasonDrill, "the etcd of the drill has other keys than the database",
			fmt.Errorf("%d instead of %d", d.Keys, shown))
	case d.Namespaces != k.Namespaces, d.EncryptedSecrets != k.EncryptedSecrets, d.PlainSecrets != k.PlainSecrets:
		return invalid(ReasonDrill, "the etcd of the drill has other namespaces or Secrets than the database", nil)
	}

	r.report.Drill = d

	return nil
}

func option[T any](name string, value T) string { return fmt.Sprintf("--%s=%v", name, value) }

func invalid(reason, message string, err error) error { return failure.Terminal(reason, message, err) }

// child runs the operator's binary on the database, and reads its findings. Any failure of the child is an error with
// the given reason, because the database can crash the process that opens it.
func (r *run) child(
	ctx context.Context, dir *scratch.Folder, size int64, reason string, args ...string,
) (*findings, error) {
	limited, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()

	memory := r.Limits.Memory
	if memory <= 0 {
		memory = baseMemory + size/4
	}

	args = append([]string{
		CommandName, option(flagMemory, memory), option(flagCPU, 4*int64(r.Timeout/time.Second)+1),
		option(flagFile, size+walSpace),
	}, args...)

	out, complaint := &bounded{limit: maxFindings}, &bounded{limit: maxComplaint, forgiving: true}

	work, err := child.Start(limited, child.Command{
		Exe: r.Exe, Args: append(args, databaseName), Dir: dir.Path, Stdout: out, Stderr: complaint,
		Env: []string{childEnv + "=1", "GOMEMLIMIT=" + strconv.FormatInt(memory/4*3, 10)},
	})
	if err != nil {
		return nil, fmt.Errorf("starting the check of the database: %w", err)
	}

	err = work.Wait()

	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("checking the database: %w", ctx.Err())
	case limited.Err() != nil:
		return nil, failure.Transient(ReasonLimits, "the check of the database took too long", nil)
	case err != nil:
		return nil, crashed(err, complaint.content, reason)
	}

	return parseFindings(out.content, reason)
}

// noMemory matches the errors with which Go reports that the system provides no more memory or threads.
var noMemory = regexp.MustCompile(
	`out of memory|cannot allocate memory|could not map pages|failed to create new OS thread`)

// crashed explains why a child failed.
func crashed(err error, complaint []byte, reason string) error {
	words := lastWords(complaint)

	var exit *exec.ExitError
	if errors.As(err, &exit) {
		status, _ := exit.Sys().(syscall.WaitStatus)
		if status.Signaled() && status.Signal() == syscall.SIGKILL || noMemory.MatchString(words) {
			return failure.Transient(ReasonLimits, "the check of the database took more memory or time than it may",
				fmt.Errorf("%w: %s", err, words))
		}
	}

	return invalid(reason, failed(reason)+": the process that opened it died", fmt.Errorf("%w: %s", err, words))
}

func failed(reason string) string {
	if reason == ReasonDrill {
		return "no etcd starts from the backup"
	}

	return "the database is damaged"
}

// lastWords returns the beginning of the error output of a crashed process, in one line. Go reports the cause first.
func lastWords(complaint []byte) string {
	text, _, _ := strings.Cut(string(complaint), "\ngoroutine ")
	text, _, _ = strings.Cut(text, "\nruntime stack:")

	return printable(strings.Join(strings.Fields(text), " "), 400)
}

func printable(text string, limit int) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}

		return r
	}, text)

	return text[:min(len(text), limit)]
}

// parseFindings parses the output of a child, which a malicious database could control.
func parseFindings(content []byte, reason string) (*findings, error) {
	f := &findings{}

	err := strictly(content, f)
	if err == nil {
		err = errors.Join(f.Database.validate(), f.Kubernetes.validate(), f.Drill.validate())
	}

	if err != nil {
		return nil, invalid(reason, "the check of the database printed something else than its result", err)
	}

	if f.Problem != "" {
		return nil, invalid(reason, failed(reason), errors.New(printable(f.Problem, 400)))
	}

	return f, nil
}

// errTooMuch ends the output of a child that prints endlessly.
var errTooMuch = errors.New("it prints too much")

// bounded is a buffer with a limit. A forgiving one drops what exceeds the limit. It implements only Write: a
// bytes.Buffer would be filled through its ReadFrom.
type bounded struct {
	content   []byte
	limit     int
	forgiving bool
}

// Write implements io.Writer.
func (b *bounded) Write(p []byte) (int, error) {
	room := b.limit - len(b.content)
	if len(p) > room && !b.forgiving {
		return 0, errTooMuch
	}

	b.content = append(b.content, p[:min(len(p), room)]...)

	return len(p), nil
}
