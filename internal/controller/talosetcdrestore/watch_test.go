package talosetcdrestore_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/backup"
	"github.com/talos-operator/talos-operator/lab/apid"
	"github.com/talos-operator/talos-operator/test/harness"
)

// TestDeletedWhileANodeReads: a node that was sent the snapshot looks empty until it has read it. Until then the
// restore stays, so that no other one is sent.
func TestDeletedWhileANodeReads(t *testing.T) {
	t.Parallel()

	e := recovering(t, 1)
	e.backUp()
	e.fleet.Nodes[0].Faults().Add(apid.Rule{Method: "Bootstrap", Code: codes.Unavailable, Message: "gone"})

	r := e.restore("r")
	e.until(r, "the snapshot is sent", func() bool { return r.Status.SentAt != nil })

	e.Delete(r)

	e.waits(r, v1alpha1.ReasonRestoring, "to start from the snapshot or discard it")

	if held := e.held().State.Runtime.Restore; held == nil || held.Name != r.Name {
		t.Errorf("the cluster was given back while a node may be reading: %+v", held)
	}

	e.Clock.Sleep(31*time.Second + time.Duration(r.Status.Backup.Size/(8<<20))*time.Second)

	if _, err := e.pass(r); err != nil {
		t.Errorf("deleting: %v", err)
	}

	if err := e.Admin.Get(t.Context(), client.ObjectKeyFromObject(r), r); err == nil {
		t.Errorf("it is still there: %s", harness.Show(r))
	}

	if held := e.held().State.Runtime.Restore; held != nil {
		t.Errorf("the cluster is still held: %+v", held)
	}
}

// TestKilledAfterACopy: a whole copy that a killed operator could not record any more is not made again.
func TestKilledAfterACopy(t *testing.T) {
	t.Parallel()

	e := backedUp(t, 1)
	r := e.restore("r", discard)
	e.at(r, v1alpha1.RestoreSaving)

	id := backup.NewID(e.Clock.Now(), "killed")
	e.backUp(func(r *backup.Request) { r.ID = id })

	r.Status.SavingID = id
	e.UpdateStatus(r)

	before := e.fleet.Calls("EtcdSnapshot")
	e.until(r, "the copy is found", func() bool { return r.Status.LastSnapshot != "" })

	if filepath.Base(r.Status.LastSnapshot) != id || r.Status.SavingID != "" || e.fleet.Calls("EtcdSnapshot") != before {
		t.Errorf("%d snapshots; the status is %s", e.fleet.Calls("EtcdSnapshot")-before, harness.Show(r))
	}
}

// TestKilledInACopy: what a killed operator left of the copy of data that is about to be wiped is no copy, and half an
// upload is removed. Nothing is wiped before there is a whole one.
func TestKilledInACopy(t *testing.T) {
	t.Parallel()

	for name, tc := range map[string]struct {
		file   string
		stays  bool
		rename bool
	}{
		"half an upload":      {file: ".%s.snap.zst.age.ABCDEFGH.talos-operator-part"},
		"without a manifest":  {file: "%s.snap.zst.age", stays: true, rename: true},
		"an older whole copy": {file: "%s.db.zst.age", stays: true, rename: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			e := backedUp(t, 1)
			r := e.restore("r", discard)
			e.at(r, v1alpha1.RestoreSaving)

			// As it is when the operator is killed: the name is recorded, and something lies there.
			id := backup.NewID(e.Clock.Now(), "killed")
			left := filepath.Join(e.root, filepath.FromSlash(backup.Prefix(cluster)), fmt.Sprintf(tc.file, id))

			r.Status.SavingID = id
			e.UpdateStatus(r)

			if err := os.WriteFile(left, []byte("not a whole copy"), 0o600); err != nil {
				t.Fatal(err)
			}

			e.Clock.Sleep(6 * time.Minute)
			e.until(r, "the copy is made", func() bool { return r.Status.LastSnapshot != "" })

			if _, err := os.Stat(left); os.IsNotExist(err) == tc.stays {
				t.Errorf("what was left: %v", err)
			}

			if renamed := filepath.Base(r.Status.LastSnapshot) != id; renamed != tc.rename || r.Status.SavingID != "" {
				t.Errorf("the status is %s", harness.Show(r))
			}

			e.complete(r)
			e.holds(e.fleet.State, 0, early, late)
		})
	}
}
