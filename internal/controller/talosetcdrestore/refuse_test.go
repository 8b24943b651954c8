package talosetcdrestore_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"go.etcd.io/bbolt"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/backup"
	"github.com/talos-operator/talos-operator/internal/backup/storage"
	"github.com/talos-operator/talos-operator/internal/backup/verify"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/test/harness"
	"github.com/talos-operator/talos-operator/test/wait"
)

// untouched: the nodes were asked for nothing but what they know, and the cluster is everybody's.
func (e *env) untouched() {
	e.Helper()

	if now := e.fleet.Mutations(); now != e.fleet.mutations {
		e.Errorf("%d calls that change something, were %d", now, e.fleet.mutations)
	}

	held, err := e.States().Load(e.Context(), e.Key(cluster))
	if clusterstate.IsUnusable(err) {
		return
	}

	if err != nil || held.State.Runtime.Restore != nil {
		e.Errorf("the cluster is kept from others: %+v, %v", held.State.Runtime.Restore, err)
	}
}

func byKey(key string) func(*v1alpha1.TalosEtcdRestoreSpec) {
	return func(s *v1alpha1.TalosEtcdRestoreSpec) { s.Source.Key = key }
}

// path of an object in the folder of backups.
func (e *env) path(key string) string { return filepath.Join(e.root, filepath.FromSlash(key)) }

// object is the key of the only object with a suffix.
func (e *env) object(suffix string) string {
	e.Helper()

	var found []string

	for _, key := range e.objects() {
		if strings.HasSuffix(key, suffix) {
			found = append(found, key)
		}
	}

	if len(found) != 1 {
		e.Fatalf("%d objects end with %s: %v", len(found), suffix, e.objects())
	}

	return found[0]
}

func (e *env) remove(suffix string) {
	e.Helper()

	if err := os.Remove(e.path(e.object(suffix))); err != nil {
		e.Fatal(err)
	}
}

// rewrite changes what is stored.
func (e *env) rewrite(suffix string, edit func([]byte) []byte) {
	e.Helper()

	path := e.path(e.object(suffix))

	old, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, edit(old), 0o600)
	}

	if err != nil {
		e.Fatal(err)
	}
}

// put stores a file as another tool would.
func (e *env) put(key string, data []byte) {
	e.Helper()

	if _, err := e.store.Put(e.Context(), key, func(w io.Writer) error {
		_, err := w.Write(data)

		return err
	}); err != nil {
		e.Fatal(err)
	}
}

func half(b []byte) []byte { return b[:len(b)/2] }

func flipped(b []byte) []byte {
	b[len(b)/2] ^= 1

	return b
}

// written is the canned snapshot as an etcd of another version would have written it.
func (e *env) written(version string) []byte {
	e.Helper()

	data := e.canned()
	path := filepath.Join(e.TempDir(), "db")

	if err := os.WriteFile(path, data[:len(data)-sha256.Size], 0o600); err != nil {
		e.Fatal(err)
	}

	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		e.Fatal(err)
	}

	err = db.Update(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte("meta")).Put([]byte("storageVersion"), []byte(version))
	})
	if err != nil {
		e.Fatal(err)
	}

	if err := db.Close(); err != nil {
		e.Fatal(err)
	}

	out, err := os.ReadFile(path)
	if err != nil {
		e.Fatal(err)
	}

	sum := sha256.Sum256(out)

	return append(out, sum[:]...)
}

// of another cluster.
func of(e *env, st *clusterstate.State) func(*backup.Request) {
	return func(r *backup.Request) {
		data, err := st.Encode()
		if err != nil {
			e.Fatal(err)
		}

		r.Cluster.ID, r.Cluster.CAFingerprint = st.Bundle.ClusterID(), st.Bundle.CAFingerprint()
		r.Cluster.Name, r.State.Data = st.BundleConfig.ClusterName, data

		if r.Sign, err = st.Bundle.BackupKey(); err != nil {
			e.Fatal(err)
		}
	}
}

func from(data []byte) func(*backup.Request) {
	return func(r *backup.Request) {
		r.Snapshot = func(context.Context) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil }
	}
}

type edits = []func(*v1alpha1.TalosEtcdRestoreSpec)

// refusal is a restore that may not happen.
type refusal struct {
	// prepare makes the backups and whatever is wrong.
	prepare func(e *env) edits
	reason  string
	part    string
	// waits: it goes on by itself once what is missing is there.
	waits bool
	// stops: it is refused for good.
	stops bool
}

var refusals = map[string]refusal{
	"etcd has quorum": {
		prepare: func(e *env) edits { e.backUp(); return nil },
		reason:  v1alpha1.ReasonDataWouldBeLost, part: "it has quorum", stops: true,
	},
	"another identity": {
		prepare: func(e *env) edits {
			e.backUp()

			id, err := age.GenerateX25519Identity()
			if err != nil {
				e.Fatal(err)
			}

			e.CreateSecret("other", map[string]string{"identity": id.String()})

			return edits{discard, func(s *v1alpha1.TalosEtcdRestoreSpec) { s.IdentitiesFrom[0].Name = "other" }}
		},
		reason: backup.ReasonIdentity, part: "not encrypted for the given",
	},
	"no identity": {
		prepare: func(e *env) edits {
			e.backUp()

			return edits{discard, func(s *v1alpha1.TalosEtcdRestoreSpec) { s.IdentitiesFrom = nil }}
		},
		reason: backup.ReasonIdentity,
	},
	"no Secret of identities": {
		prepare: func(e *env) edits {
			e.backUp()

			return edits{discard, func(s *v1alpha1.TalosEtcdRestoreSpec) { s.IdentitiesFrom[0].Name = "gone" }}
		},
		reason: storage.ReasonSecret, part: "gone", waits: true,
	},
	"no identity in the Secret": {
		prepare: func(e *env) edits {
			e.backUp()
			e.CreateSecret("odd", map[string]string{"identity": "hunter2"})

			return edits{discard, func(s *v1alpha1.TalosEtcdRestoreSpec) { s.IdentitiesFrom[0].Name = "odd" }}
		},
		reason: backup.ReasonIdentity, part: "no age private key", waits: true,
	},
	"another cluster ID": {
		prepare: func(e *env) edits {
			e.backUp(func(r *backup.Request) { r.Cluster.ID = "b3RoZXI=" })

			return edits{discard}
		},
		reason: verify.ReasonState, part: "another cluster",
	},
	"another CA": {
		prepare: func(e *env) edits {
			e.backUp(func(r *backup.Request) { r.Cluster.CAFingerprint = strings.Repeat("0", 64) })

			return edits{discard}
		},
		reason: verify.ReasonState, part: "another CA",
	},
	"another cluster of the name": {
		prepare: func(e *env) edits {
			st, err := harness.NewState(cluster, e.fleet.Endpoint())
			if err != nil {
				e.Fatal(err)
			}

			e.backUp(of(e, st))

			return edits{discard}
		},
		reason: backup.ReasonNotAuthentic, part: "not the verification key of the cluster",
	},
	"another cluster of the name, without a signature": {
		prepare: func(e *env) edits {
			st, err := harness.NewState(cluster, e.fleet.Endpoint())
			if err != nil {
				e.Fatal(err)
			}

			m := e.backUp(of(e, st), unsigned)

			return edits{discard, byKey(m.ID), unauthenticated}
		},
		reason: v1alpha1.ReasonBackupMismatch, part: "another cluster",
	},
	"no signature": {
		prepare: func(e *env) edits { e.backUp(unsigned); return edits{discard} },
		reason:  backup.ReasonUnauthenticated, part: "source.allowUnauthenticated",
	},
	"no signature, and it is named": {
		prepare: func(e *env) edits { return edits{discard, byKey(e.backUp(unsigned).ID)} },
		reason:  backup.ReasonUnauthenticated, part: "anyone who can write to the store",
	},
	"signed with another key, and it is accepted": {
		prepare: func(e *env) edits {
			return edits{discard, byKey(e.backUp(e.forged).ID), unauthenticated}
		},
		reason: backup.ReasonNotAuthentic, part: "not the verification key of the cluster",
	},
	"changed, and it is accepted": {
		prepare: func(e *env) edits {
			m := e.backUp()
			e.rewrite(".manifest.json", func(b []byte) []byte {
				return bytes.Replace(b, []byte(`"node": "cp-0"`), []byte(`"node": "cp-1"`), 1)
			})

			return edits{discard, byKey(m.ID), unauthenticated}
		},
		reason: backup.ReasonNotAuthentic, part: "not what was signed",
	},
	"a newer Talos": {
		prepare: func(e *env) edits {
			e.backUp(func(r *backup.Request) { r.TalosVersion = "v1.14.0" })

			return edits{discard}
		},
		reason: v1alpha1.ReasonBackupMismatch, part: "with Talos v1.14.0",
	},
	"a newer etcd": {
		prepare: func(e *env) edits {
			e.backUp(from(e.written("3.9.0")))

			return edits{discard}
		},
		reason: v1alpha1.ReasonBackupMismatch, part: "written by etcd 3.9.0",
	},
	"no backup": {
		prepare: func(*env) edits { return edits{discard} },
		reason:  v1alpha1.ReasonBackupNotFound, part: "no complete backup of c", waits: true,
	},
	"no backup of the name": {
		prepare: func(e *env) edits {
			e.backUp()

			return edits{discard, byKey("20200101T000000Z-00000000")}
		},
		reason: v1alpha1.ReasonBackupNotFound, waits: true,
	},
	"none before": {
		prepare: func(e *env) edits {
			e.backUp()

			return edits{discard, func(s *v1alpha1.TalosEtcdRestoreSpec) {
				at := metav1.NewTime(e.Clock.Now().Add(-2 * time.Hour))
				s.Source.Before = &at
			}}
		},
		reason: v1alpha1.ReasonBackupNotFound, waits: true,
	},
	"the manifest is missing": {
		prepare: func(e *env) edits {
			e.backUp()
			e.remove(".manifest.json")

			return edits{discard}
		},
		reason: v1alpha1.ReasonBackupNotFound, waits: true,
	},
	"the manifest of the named one is missing": {
		prepare: func(e *env) edits {
			m := e.backUp()
			e.remove(".manifest.json")

			return edits{discard, byKey(m.ID)}
		},
		reason: backup.ReasonIncomplete,
	},
	"the state is missing": {
		prepare: func(e *env) edits {
			e.backUp()
			e.remove(".state.json.age")

			return edits{discard}
		},
		reason: v1alpha1.ReasonBackupNotFound, waits: true,
	},
	"the state of the named one is missing": {
		prepare: func(e *env) edits {
			m := e.backUp()
			e.remove(".state.json.age")

			return edits{discard, byKey(m.ID)}
		},
		reason: backup.ReasonIncomplete,
	},
	"the snapshot of the named one is missing": {
		prepare: func(e *env) edits {
			m := e.backUp()
			e.remove(".snap.zst.age")

			return edits{discard, byKey(m.ID)}
		},
		reason: backup.ReasonIncomplete,
	},
	"a truncated snapshot": {
		prepare: func(e *env) edits { e.backUp(); e.rewrite(".snap.zst.age", half); return edits{discard} },
		reason:  backup.ReasonCorrupt,
	},
	"a flipped bit": {
		prepare: func(e *env) edits { e.backUp(); e.rewrite(".snap.zst.age", flipped); return edits{discard} },
		reason:  backup.ReasonCorrupt,
	},
	"a flipped bit in the state": {
		prepare: func(e *env) edits { e.backUp(); e.rewrite(".state.json.age", flipped); return edits{discard} },
		reason:  backup.ReasonCorrupt,
	},
	"a broken manifest": {
		prepare: func(e *env) edits { e.backUp(); e.rewrite(".manifest.json", half); return edits{discard} },
		reason:  backup.ReasonManifest,
	},
	"a file of another tool": {
		prepare: func(e *env) edits {
			e.put("theirs/db.snap", e.canned())
			return edits{discard, byKey("theirs/db.snap")}
		},
		reason: backup.ReasonForeign, part: "allowForeign",
	},
	"a file of another tool, cut off": {
		prepare: func(e *env) edits {
			e.put("theirs/db.snap", half(e.canned()))

			return edits{discard, byKey("theirs/db.snap"), foreign}
		},
		reason: backup.ReasonCorrupt,
	},
	"a file of another tool of a newer etcd": {
		prepare: func(e *env) edits {
			e.put("theirs/db.snap", e.written("3.9.0"))

			return edits{discard, byKey("theirs/db.snap"), foreign}
		},
		reason: v1alpha1.ReasonBackupMismatch, part: "written by etcd 3.9.0",
	},
	"a copied database": {
		prepare: func(e *env) edits {
			e.put("theirs/db", e.canned()[:len(e.canned())-sha256.Size])

			return edits{discard, byKey("theirs/db"), foreign}
		},
		reason: v1alpha1.ReasonBackupNotFound, waits: true,
	},
	"a copied database with a name that tells": {
		prepare: func(e *env) edits {
			e.put("theirs/x.db", e.canned()[:len(e.canned())-sha256.Size])

			return edits{discard, byKey("theirs/x.db"), foreign}
		},
		reason: backup.ReasonTruncated, part: "allowMissingChecksum",
	},
	"a file of another tool that is allowed": {
		prepare: func(e *env) edits {
			e.put("theirs/db.snap", e.canned())
			return edits{byKey("theirs/db.snap"), foreign}
		},
		reason: v1alpha1.ReasonDataWouldBeLost, stops: true,
	},
	"a copied database that is allowed": {
		prepare: func(e *env) edits {
			e.put("theirs/x.db", e.canned()[:len(e.canned())-sha256.Size])

			return edits{byKey("theirs/x.db"), foreign, unsummed}
		},
		reason: v1alpha1.ReasonDataWouldBeLost, stops: true,
	},
	"no such TalosEtcdBackup": {
		prepare: func(*env) edits { return edits{discard, byRef("gone")} },
		reason:  v1alpha1.ReasonBackupNotFound, part: "gone", waits: true,
	},
	"a TalosEtcdBackup that is not complete": {
		prepare: func(e *env) edits { e.taken("b", ""); return edits{discard, byRef("b")} },
		reason:  v1alpha1.ReasonBackupNotFound, part: "to be complete", waits: true,
	},
	"isolate into a cluster that has a PKI": {
		prepare: func(e *env) edits {
			e.backUp()

			return edits{discard, func(s *v1alpha1.TalosEtcdRestoreSpec) { s.Isolate = true }}
		},
		reason: v1alpha1.ReasonBackupMismatch, part: "has a PKI already",
	},
	"a state Secret that cannot be read": {
		prepare: func(e *env) edits {
			e.backUp()
			harness.Change(e.Env, e.held().Secret(), func(s *corev1.Secret) { s.Data[clusterstate.KeySecretBundle] = []byte("?") })

			return edits{discard}
		},
		reason: v1alpha1.ReasonStateSecretInvalid, part: "was not changed",
	},
	"somebody works on a node": {
		prepare: func(e *env) edits {
			e.backUp()

			held := e.held()
			held.State.Runtime.Disruption = &clusterstate.Disruption{Machine: "cp-0", Act: "Reboot", Since: e.Clock.Now()}

			if err := e.States().Update(e.Context(), held); err != nil {
				e.Fatal(err)
			}

			return nil
		},
		reason: v1alpha1.ReasonDisruptionInProgress, part: "cp-0", waits: true,
	},
	"no control plane": {
		prepare: func(e *env) edits {
			return edits{func(s *v1alpha1.TalosEtcdRestoreSpec) { s.ControlPlaneRef.Name = "later" }}
		},
		reason: v1alpha1.ReasonWaitingForControlPlane, waits: true,
	},
}

func foreign(s *v1alpha1.TalosEtcdRestoreSpec)  { s.AllowForeign = true }
func unsummed(s *v1alpha1.TalosEtcdRestoreSpec) { s.AllowMissingChecksum = true }

func byRef(name string) func(*v1alpha1.TalosEtcdRestoreSpec) {
	return func(s *v1alpha1.TalosEtcdRestoreSpec) {
		s.Source = v1alpha1.RestoreSource{BackupRef: &v1alpha1.ObjectReference{Name: name}}
	}
}

// taken makes a TalosEtcdBackup; it is complete when it has a key.
func (e *env) taken(name, key string) {
	e.Helper()

	b := &v1alpha1.TalosEtcdBackup{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: name},
		Spec: v1alpha1.TalosEtcdBackupSpec{
			ControlPlaneRef:  v1alpha1.ObjectReference{Name: cluster},
			Storage:          v1alpha1.BackupStorage{Directory: &v1alpha1.DirectoryStorage{}},
			AllowUnencrypted: true,
		},
	}
	e.Create(b)

	if key == "" {
		return
	}

	now := metav1.NewTime(wait.Now())
	b.Status.CompletedAt, b.Status.Key = &now, key

	e.UpdateStatus(b)
}

// TestRefused: what may not be restored is refused with its own reason, before any node is touched, and the cluster
// stays everybody's.
func TestRefused(t *testing.T) {
	t.Parallel()

	for name, tt := range refusals {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			e := newEnv(t, must(t, modelled))
			r := e.restore("r", tt.prepare(e)...)

			if tt.waits {
				e.waits(r, tt.reason, tt.part)
			} else {
				e.refused(r, tt.reason, tt.part)
			}

			if (r.Status.Step == v1alpha1.RestoreStopped) != tt.stops || len(r.Status.Nodes) > 0 || r.Status.Machine != "" {
				t.Errorf("the status is %s", harness.Show(r))
			}

			// It stays so, quietly.
			api.NoWrites(t, e.Namespace, func() {
				res, err := e.pass(r)
				if again := res.RequeueAfter > 0; err != nil || again == tt.stops {
					t.Errorf("another pass: %+v, %v", res, err)
				}
			})

			e.untouched()
			e.keepsSecrets("hunter2")
			e.gone(r)
		})
	}
}

// gone: a restore that is deleted leaves nothing behind.
func (e *env) gone(r *v1alpha1.TalosEtcdRestore) {
	e.Helper()

	e.Delete(r)

	if _, err := e.pass(r); err != nil {
		e.Errorf("deleting: %v", err)
	}

	if err := e.Admin.Get(e.Context(), client.ObjectKeyFromObject(r), r); err == nil {
		e.Errorf("it is still there: %v", r.Finalizers)
	}
}
