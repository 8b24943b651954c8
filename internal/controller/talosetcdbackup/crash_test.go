package talosetcdbackup_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/lab/s3"
	"github.com/talos-operator/talos-operator/test/harness"
)

// once is what one backup leaves in the bucket: snapshot, state, manifest and the record of its verification.
func (e *env) once(b *v1alpha1.TalosEtcdBackup) {
	e.Helper()

	got := e.inBucket()
	if len(got) != 4 {
		e.Errorf("in the bucket: %v", got)
	}

	for _, key := range got {
		if !strings.Contains(key, b.Status.BackupID) {
			e.Errorf("%s is not of the backup %s", key, b.Status.BackupID)
		}
	}
}

// TestCrashAfterEachWrite: the operator dies after each of its writes, without seeing the answer. Its successor ends up
// with one backup, and nothing of another.
func TestCrashAfterEachWrite(t *testing.T) {
	t.Parallel()

	for after := 1; ; after++ {
		e := newEnv(t, must(t, modelled))
		b := e.backup("b")

		first := e.Client
		first.DieAfter(after)

		e.until(b, "it is done, or dead", func() bool { return isDone(b) || first.Dead() })

		if !first.Dead() {
			t.Logf("a backup takes %d writes", after-1)

			if after < 5 {
				t.Error("it died nowhere")
			}

			return
		}

		e.restart()
		e.done(b)
		e.once(b)

		if t.Failed() {
			t.Fatalf("after write %d; status %s", after, harness.Show(b))
		}
	}
}

// TestCrashAtEachRequest: the operator dies while a request to the store is under way: before it arrives, or before its
// answer does.
func TestCrashAtEachRequest(t *testing.T) {
	for _, c := range []struct{ name, part string }{
		{"snapshot", ".snap.zst.age"},
		{"state", ".state.json.age"},
		{"manifest", ".manifest.json"},
		{"verification", ".verified.json"},
	} {
		for name, fault := range map[string]s3.Fault{"before": {Hang: true}, "after": {LoseAnswer: true}} {
			t.Run(c.name+" "+name, func(t *testing.T) {
				t.Parallel()

				e := newEnv(t, must(t, modelled))
				b := e.backup("b")
				first := e.Client

				var kill sync.Once

				e.proxy.Set(func(r *http.Request) s3.Fault {
					hit := s3.Fault{}

					if r.Method == http.MethodPut && strings.Contains(r.URL.RequestURI(), c.part) {
						kill.Do(func() {
							first.Die()

							hit = fault
						})
					}

					return hit
				})

				e.until(b, "it died", first.Dead)
				e.restart()
				e.done(b)
				e.once(b)
			})
		}
	}
}

// TestCrashInTheMiddleOfAnUpload: parts of a large snapshot are in the bucket when the operator dies. They are removed,
// and the next try is a backup of its own.
func TestCrashInTheMiddleOfAnUpload(t *testing.T) {
	e := newEnv(t, must(t, threesome))
	b := e.backup("b")
	first := e.Client

	e.atFirstPart(b, func(string) { first.Die() })
	e.until(b, "it died", first.Dead)
	e.restart()
	e.done(b)
	e.once(b)

	if b.Status.Tries < 2 {
		t.Errorf("status %s", harness.Show(b))
	}
}
