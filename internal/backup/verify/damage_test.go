package verify_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"google.golang.org/protobuf/proto"

	"github.com/talos-operator/talos-operator/internal/backup"
	"github.com/talos-operator/talos-operator/internal/backup/verify"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/test/wait"
)

const pageSize = 4096

func onDisk(t testing.TB, content []byte) string {
	t.Helper()

	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}

	return file
}

// TestTruncated: a snapshot that was cut anywhere is never taken for a whole one, with and without a fresh checksum.
func TestTruncated(t *testing.T) {
	t.Parallel()

	whole := realSnapshot(t)
	db := database(whole)

	for _, size := range []int{
		0, 1, 31, 32, 33, 512, pageSize, pageSize + 32, 2 * pageSize, 3 * pageSize, 4 * pageSize, len(db) / 2 / pageSize * pageSize,
		len(db)/2/pageSize*pageSize + 512, len(db)/2 + 33, len(db) - pageSize, len(db) - 512, len(whole) - 1,
	} {
		forms := map[string][]byte{"t/cut.snap": whole[:size]}
		if size <= len(db) {
			forms["t/cut.snap.zst"] = compressed(t, whole[:size])
			forms["t/fresh.snap"] = trailed(db[:size])
		}

		for key, content := range forms {
			s, set := foreign(t, key, content)
			scratch := t.TempDir()

			_, err := verify.Run(t.Context(), s, set, verify.Options{Level: verify.Drill, Dir: scratch})
			if r := failure.Reason(err); r != verify.ReasonDatabase && r != backup.ReasonCorrupt || failure.ClassOf(err) != failure.ClassTerminal {
				t.Errorf("%s cut to %d bytes: %v", key, size, err)
			}

			isEmpty(t, scratch)
		}
	}

	r := request(t, whole)
	r.Source.Revision = 1 << 40
	s := directory(t)

	_, err := verify.Run(t.Context(), s, take(t, s, r), verify.Options{Level: verify.Database, Dir: t.TempDir()})
	if failure.Reason(err) != verify.ReasonDatabase || !strings.Contains(failure.Message(err), "older") {
		t.Errorf("older than the manifest says: %v", err)
	}
}

// cutBelowRoot cuts a database before its root page, and makes its meta pages say that this is all of it.
func cutBelowRoot(t *testing.T, db []byte) []byte {
	t.Helper()

	const meta, root, high, sum = 16, 16, 40, 56

	// What is mapped is a power of two: the root lies within it, behind the end of the file.
	const at = 9

	cut := bytes.Clone(db[:at*pageSize])

	for page := range 2 {
		m := cut[page*pageSize+meta:]
		binary.LittleEndian.PutUint64(m[root:], at+1)
		binary.LittleEndian.PutUint64(m[high:], at)

		h := fnv.New64a()
		h.Write(m[:sum])
		binary.LittleEndian.PutUint64(m[sum:], h.Sum64())
	}

	return cut
}

// TestDeadlyDatabase: the process that opens this one dies of SIGBUS, and it is not ours.
func TestDeadlyDatabase(t *testing.T) {
	t.Parallel()

	deadly := cutBelowRoot(t, database(realSnapshot(t)))

	for key, content := range map[string][]byte{"copied.db": deadly, "x.snap": trailed(deadly)} {
		s, set := foreign(t, key, content)
		scratch := t.TempDir()

		_, err := verify.Run(t.Context(), s, set, verify.Options{Level: verify.Database, Dir: scratch})
		if failure.Reason(err) != verify.ReasonDatabase || failure.ClassOf(err) != failure.ClassTerminal {
			t.Errorf("%s: %v", key, err)
		}

		if !strings.Contains(err.Error(), "SIGBUS") {
			t.Errorf("%s: the child did not die of it: %v", key, err)
		}

		if strings.Contains(failure.Message(err), "SIGBUS") || strings.Contains(failure.Message(err), "0x") {
			t.Errorf("%s: the message is not for people: %s", key, failure.Message(err))
		}

		isEmpty(t, scratch)
	}
}

// TestFlippedBits: damage that came before the checksum is an error of the database, or shows in its hash.
func TestFlippedBits(t *testing.T) {
	t.Parallel()

	db := database(realSnapshot(t))
	clean := status(t, trailed(db)).Hash

	var refused int

	for i := range 24 {
		damaged := bytes.Clone(db)
		// In the header of a page, where structure is, and in its content.
		at := (i*7%(len(db)/pageSize))*pageSize + []int{0, 8, 10, 12, 20, 28, 2000, 4000}[i%8]
		damaged[at] ^= 1 << (i % 8)

		s, set := foreign(t, "x.snap", trailed(damaged))

		report, err := verify.Run(t.Context(), s, set, verify.Options{Level: verify.Database, Dir: t.TempDir()})

		switch {
		case err == nil:
			// The page may be free, or of the other meta page.
			t.Logf("byte %d: hash %s, was %s", at, report.Database.Hash, clean)
		case failure.Reason(err) == verify.ReasonLimits:
			refused++ // a length that is damaged may ask for more memory than there is
		case failure.Reason(err) != verify.ReasonDatabase:
			t.Errorf("byte %d: %v", at, err)
		default:
			refused++
		}
	}

	if refused < 6 {
		t.Errorf("%d of 24 were refused", refused)
	}
}

// edited is the real database after a change by a bolt library.
func edited(t *testing.T, edit func(*bolt.Tx) error) []byte {
	t.Helper()

	file := onDisk(t, database(realSnapshot(t)))

	db, err := bolt.Open(file, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}

	if err := errors.Join(db.Update(edit), db.Close()); err != nil {
		t.Fatal(err)
	}

	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}

	return trailed(content)
}

// TestOtherDatabases are whole for bolt, and no good for etcd.
func TestOtherDatabases(t *testing.T) {
	t.Parallel()

	put := func(bucket, key, value string) func(*bolt.Tx) error {
		return func(tx *bolt.Tx) error { return tx.Bucket([]byte(bucket)).Put([]byte(key), []byte(value)) }
	}
	drop := func(bucket string) func(*bolt.Tx) error {
		return func(tx *bolt.Tx) error { return tx.DeleteBucket([]byte(bucket)) }
	}
	revision := func(b byte) string { return string([]byte{b, 0, 0, 0, 0, 0, 9, 9, '_', 0, 0, 0, 0, 0, 0, 0, 0}) }

	for name, tc := range map[string]struct {
		edit   func(*bolt.Tx) error
		reason string
	}{
		"no keys":             {drop("key"), verify.ReasonDatabase},
		"no meta":             {drop("meta"), verify.ReasonDatabase},
		"short revision":      {put("key", "0", ""), verify.ReasonDatabase},
		"negative revision":   {put("key", revision(0xff), ""), verify.ReasonDatabase},
		"malformed value":     {put("key", revision(1), "\x0a\x7f"+plainText), verify.ReasonDatabase},
		"of a newer etcd":     {put("meta", "storageVersion", "3.19.0"), verify.ReasonDrill},
		"of another universe": {put("meta", "storageVersion", "\x1b[2J"), ""},
		"odd members":         {put("members", "zz", "{"), verify.ReasonDrill},
	} {
		s, set := foreign(t, "x.snap", edited(t, tc.edit))
		scratch := t.TempDir()

		_, err := verify.Run(t.Context(), s, set, verify.Options{Level: verify.Drill, Dir: scratch})
		if failure.Reason(err) != tc.reason {
			t.Errorf("%s: %v", name, err)
		}

		if err != nil && strings.Contains(err.Error(), plainText) {
			t.Errorf("%s quotes a value: %v", name, err)
		}

		isEmpty(t, scratch)
	}
}

// script is a child that an attacker took over.
func script(t *testing.T, lines string) string {
	t.Helper()

	file := filepath.Join(t.TempDir(), "child.sh")
	if err := os.WriteFile(file, []byte("#!/bin/sh\n"+lines+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}

	return file
}

// TestHostileChild: whatever the child says or does, we do not believe it and do not die of it.
func TestHostileChild(t *testing.T) {
	t.Parallel()

	const (
		good       = `{"hash":"00000000","revision":1,"totalKeys":1,"totalSize":1}`
		kubernetes = `{"namespaces":0,"nodes":0,"encryptedSecrets":0,"plainSecrets":0}`
	)

	for name, tc := range map[string]struct{ lines, reason string }{
		"nothing":         {`true`, verify.ReasonDatabase},
		"no JSON":         {`echo hello`, verify.ReasonDatabase},
		"null":            {`echo null`, verify.ReasonDatabase},
		"empty":           {`echo '{}'`, verify.ReasonDatabase},
		"half":            {`echo '{"database":` + good + `}'`, verify.ReasonDatabase},
		"unknown field":   {`echo '{"database":` + good + `,"kubernetes":` + kubernetes + `,"x":1}'`, verify.ReasonDatabase},
		"twice":           {`echo '{"database":` + good + `,"kubernetes":` + kubernetes + `}{}'`, verify.ReasonDatabase},
		"negative":        {`echo '{"database":` + strings.Replace(good, `"revision":1`, `"revision":-1`, 1) + `,"kubernetes":` + kubernetes + `}'`, verify.ReasonDatabase},
		"fraction":        {`echo '{"database":` + strings.Replace(good, `"revision":1`, `"revision":1.5`, 1) + `,"kubernetes":` + kubernetes + `}'`, verify.ReasonDatabase},
		"escape sequence": {`echo '{"database":` + good + `,"kubernetes":` + strings.Replace(kubernetes, `"nodes":0`, `"nodes":1,"nodeNames":["\u001b[2J"]`, 1) + `}'`, verify.ReasonDatabase},
		"drill unasked":   {`echo '{"database":` + good + `,"kubernetes":` + kubernetes + `,"drill":{}}'`, verify.ReasonDatabase},
		"endless":         {`while :; do echo '                                                                      '; done`, verify.ReasonDatabase},
		"problem":         {`printf '{"problem":"\\u001b[2J bad"}'`, verify.ReasonDatabase},
		"exit":            {`echo '{"database":` + good + `,"kubernetes":` + kubernetes + `}'; exit 3`, verify.ReasonDatabase},
		"last words":      {`printf 'x\033[2J' >&2; exit 1`, verify.ReasonDatabase},
		"aborted":         {`kill -ABRT $$`, verify.ReasonDatabase},
		"bus error":       {`kill -BUS $$`, verify.ReasonDatabase},
		"killed":          {`kill -KILL $$`, verify.ReasonLimits},
	} {
		s, set := foreign(t, "x.snap", realSnapshot(t))
		scratch := t.TempDir()

		_, err := verify.Run(t.Context(), s, set, verify.Options{Level: verify.Database, Dir: scratch, Exe: script(t, tc.lines)})
		if failure.Reason(err) != tc.reason || strings.Contains(err.Error(), "\x1b") {
			t.Errorf("%s: %q", name, err)
		}

		isEmpty(t, scratch)
	}

	s, set := foreign(t, "x.snap", realSnapshot(t))

	_, err := verify.Run(t.Context(), s, set, verify.Options{Level: verify.Database, Dir: t.TempDir(), Exe: "/nonexistent"})
	if err == nil || failure.ClassOf(err) != failure.ClassTransient {
		t.Errorf("no binary: %v", err)
	}
}

// TestChildKnowsNothing: no credentials reach it, and its folder is private.
func TestChildKnowsNothing(t *testing.T) {
	t.Setenv("AWS_SECRET_ACCESS_KEY", plainText)

	out := filepath.Join(t.TempDir(), "seen")
	s, set := foreign(t, "x.snap", realSnapshot(t))

	_, err := verify.Run(t.Context(), s, set, verify.Options{
		Level: verify.Database, Dir: t.TempDir(),
		Exe: script(t, "{ /usr/bin/env; /bin/ls -ln . ..; echo \"$@\"; } >"+out),
	})
	if err == nil {
		t.Error("it found nothing and that was no error")
	}

	seen, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}

	if text := string(seen); strings.Contains(text, plainText) || !strings.Contains(text, "-rw------- ") || !strings.Contains(text, "drwx------ ") {
		t.Errorf("the child sees:\n%s", text)
	}
}

// TestDrillDisagrees: an etcd that shows something else than the database fails the drill.
func TestDrillDisagrees(t *testing.T) {
	t.Parallel()

	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}

	db := status(t, realSnapshot(t))
	drill := func(revision, keys, namespaces, encrypted, plain int64) string {
		return fmt.Sprintf(`{"drill":{"revision":%d,"keys":%d,"namespaces":%d,"encryptedSecrets":%d,"plainSecrets":%d,"startedIn":"1s"}}`,
			revision, keys, namespaces, encrypted, plain)
	}

	for want, said := range map[string]string{
		"":                drill(db.Revision, db.TotalKeys, 2, 151, 1),
		"older revision":  drill(db.Revision-1, db.TotalKeys, 2, 151, 1),
		"other keys":      drill(db.Revision, db.TotalKeys-1, 2, 151, 1),
		"other namespace": drill(db.Revision, db.TotalKeys, 1, 151, 1),
		"or Secrets":      drill(db.Revision, db.TotalKeys, 2, 150, 2),
		"no etcd starts":  `{"problem":"bad"}`,
		"without":         `{}`,
		"something else":  `{"drill":{"revision":"1"}}`,
	} {
		s, set := foreign(t, "x.snap", realSnapshot(t))

		_, err := verify.Run(t.Context(), s, set, verify.Options{
			Level: verify.Drill, Dir: t.TempDir(),
			Exe: script(t, `case "$*" in *--drill*) echo '`+said+`';; *) exec `+exe+` "$@";; esac`),
		})

		if want == "" && err == nil {
			continue
		}

		if failure.Reason(err) != verify.ReasonDrill || !strings.Contains(failure.Message(err), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// TestHangingChild: a child that hangs is killed with all that it started.
func TestHangingChild(t *testing.T) {
	t.Parallel()

	t.Run("timeout", func(t *testing.T) {
		t.Parallel()

		// A child that had no time to begin proves nothing: it gets more.
		for timeout := time.Second; ; timeout *= 4 {
			pid, err := hang(t.Context(), t, timeout, func(string) {})
			if failure.Reason(err) != verify.ReasonLimits {
				t.Errorf("it ended with %v", err)
			}

			if gone(t, pid) {
				return
			}
		}
	})
	t.Run("cancelled", func(t *testing.T) {
		t.Parallel()

		ctx, cancel := context.WithCancel(t.Context())

		pid, err := hang(ctx, t, time.Hour, func(pid string) {
			defer cancel()

			_ = wait.Until(t.Context(), "the child begins", func(context.Context) error {
				_, err := os.Stat(pid)

				return err
			})
		})
		if !errors.Is(err, context.Canceled) || !gone(t, pid) {
			t.Errorf("it ended with %v", err)
		}
	})
}

// hang reads a backup with a child that hangs, while something else is done, and returns the file with the ID of
// the process that the child has started.
func hang(ctx context.Context, t *testing.T, timeout time.Duration, meanwhile func(pid string)) (string, error) {
	t.Helper()

	pid := filepath.Join(t.TempDir(), "pid")
	s, set := foreign(t, "x.snap", realSnapshot(t))
	scratch := t.TempDir()
	o := verify.Options{
		Level: verify.Database, Dir: scratch, Timeout: timeout,
		Exe: script(t, "trap '' TERM INT HUP; /bin/sleep 3600 & echo $! >"+pid+".part; /bin/mv "+pid+".part "+pid+"; wait"),
	}
	ended := make(chan error, 1)

	go meanwhile(pid)

	go func() {
		_, err := verify.Run(ctx, s, set, o)
		ended <- err
	}()

	err := wait.Done(t, "the look into the backup ends", ended)
	isEmpty(t, scratch)

	return pid, err
}

// gone waits for the end of the process whose ID is in a file; there may be none.
func gone(t *testing.T, pid string) bool {
	t.Helper()

	content, err := os.ReadFile(pid)
	if errors.Is(err, fs.ErrNotExist) {
		return false
	}

	if err != nil {
		t.Fatal(err)
	}

	n, err := strconv.Atoi(strings.TrimSpace(string(content)))
	if err != nil {
		t.Fatal(err)
	}

	wait.For(t, "what the child has started is gone", func(context.Context) error {
		if running(n) {
			return fmt.Errorf("process %d still runs", n)
		}

		return nil
	})

	return true
}

// running says whether a process runs; one that was not waited for does not.
func running(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))

	return err == nil && !strings.Contains(string(stat), ") Z ") && syscall.Kill(pid, 0) == nil
}

// eatMemory is a child that takes all that it can get, under the limits of a real one.
func eatMemory() {
	if len(os.Args) < 2 || os.Args[1] != "eat" {
		return
	}

	if err := verify.LimitMemory(os.Args[2:]); err != nil {
		panic(err)
	}

	var eaten [][]byte
	for range 64 {
		eaten = append(eaten, bytes.Repeat([]byte{1}, 64<<20))
	}

	fmt.Println(len(eaten)) // 4 GiB
	os.Exit(0)
}

// withoutRace is this program, without the race detector, which needs far more memory, and dies of other words.
func withoutRace(t *testing.T) string {
	t.Helper()

	if !raced {
		exe, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}

		return exe
	}

	exe := filepath.Join(t.TempDir(), "verify.test")
	if out, err := exec.CommandContext(t.Context(), "go", "test", "-c", "-o", exe, ".").CombinedOutput(); err != nil {
		t.Fatalf("building the child: %v\n%s", err, out)
	}

	return exe
}

// TestMemory: neither a child that eats memory nor a database that needs more than it may say that the backup is bad.
func TestMemory(t *testing.T) {
	t.Parallel()

	exe := withoutRace(t)

	many := edited(t, func(tx *bolt.Tx) error {
		for i := range 100_000 {
			rev := mvcc.RevToBytes(mvcc.Revision{Main: int64(1000 + i)}, mvcc.NewRevBytes())

			kv, err := proto.Marshal(&mvccpb.KeyValue{Key: fmt.Appendf(nil, "/registry/configmaps/default/many-%060d", i)})
			if err == nil {
				err = tx.Bucket([]byte("key")).Put(rev, kv)
			}

			if err != nil {
				return err
			}
		}

		return nil
	})

	for name, o := range map[string]verify.Options{
		"eats":     {Exe: script(t, "exec "+exe+` eat "$@"`), Limits: verify.Limits{Memory: 512 << 20}},
		"too much": {Exe: exe, Limits: verify.Limits{Memory: 1 << 20}},
		"":         {Exe: exe},
	} {
		s, set := foreign(t, "x.snap", many)
		o.Level, o.Dir = verify.Database, t.TempDir()

		_, err := verify.Run(t.Context(), s, set, o)
		if limited := failure.Reason(err) == verify.ReasonLimits && failure.ClassOf(err) == failure.ClassTransient; limited != (name != "") {
			t.Errorf("%s: %v", name, err)
		}

		isEmpty(t, o.Dir)
	}
}
