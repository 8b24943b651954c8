package talosetcdrestore_test

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/backup"
	"github.com/talos-operator/talos-operator/test/harness"
)

func unsigned(r *backup.Request) { r.Sign = nil }

func unauthenticated(s *v1alpha1.TalosEtcdRestoreSpec) { s.Source.AllowUnauthenticated = true }

// forged: a stranger who has the recipients' public key, and reads manifests, encrypts another PKI and another database
// and says that they are of our cluster.
func (e *env) forged(r *backup.Request) {
	st, err := harness.NewState(cluster, e.fleet.Endpoint())
	if err != nil {
		e.Fatal(err)
	}

	ours := r.Cluster
	of(e, st)(r)
	r.Cluster = ours
}

func (e *env) later(minutes int) func(*backup.Request) {
	return func(r *backup.Request) {
		r.ID = backup.NewID(e.Clock.Now().Add(-time.Hour+time.Duration(minutes)*time.Minute), r.Cluster.Namespace)
	}
}

// newest is the ID of a backup that is newer than all others.
func (e *env) newest() string { return backup.NewID(e.Clock.Now(), "x") }

// renamed copies a backup under a name that makes it the newest one.
func (e *env) renamed(m *backup.Manifest, id string, change bool) {
	e.Helper()

	for _, key := range e.objects() {
		if !strings.Contains(key, m.ID) {
			continue
		}

		content, err := os.ReadFile(e.path(key))
		if err != nil {
			e.Fatal(err)
		}

		if change && strings.HasSuffix(key, ".manifest.json") {
			content = bytes.ReplaceAll(content, []byte(m.ID), []byte(id))
		}

		e.put(strings.ReplaceAll(key, m.ID, id), content)
	}
}

// TestForgedIsPassedOver: who can write to the store cannot have the restore choose what they wrote.
func TestForgedIsPassedOver(t *testing.T) {
	t.Parallel()

	for name, forge := range map[string]func(*env, *backup.Manifest){
		"another PKI":                      func(e *env, _ *backup.Manifest) { e.backUp(e.forged, e.later(1)) },
		"without a signature":              func(e *env, _ *backup.Manifest) { e.backUp(unsigned, e.later(1)) },
		"an old one under a new name":      func(e *env, m *backup.Manifest) { e.renamed(m, e.newest(), false) },
		"an old one with a new name in it": func(e *env, m *backup.Manifest) { e.renamed(m, e.newest(), true) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			e := newEnv(t, must(t, modelled))
			good := e.backUp()
			forge(e, good)

			r := e.restore("r")
			e.refused(r, v1alpha1.ReasonDataWouldBeLost, "")

			if b := r.Status.Backup; b == nil || b.ID != good.ID || b.Authenticity != string(backup.Authentic) {
				t.Errorf("the backup is %+v, want %s", b, good.ID)
			}

			e.untouched()
		})
	}
}

// TestUnauthenticatedIsAccepted: an older version signed nothing, and a person may know better.
func TestUnauthenticatedIsAccepted(t *testing.T) {
	t.Parallel()

	e := newEnv(t, must(t, modelled))
	m := e.backUp(unsigned)

	r := e.restore("r", byKey(m.ID), unauthenticated)
	e.refused(r, v1alpha1.ReasonDataWouldBeLost, "")
	e.Condition(r, v1alpha1.ConditionBackupAuthenticated, metav1.ConditionFalse, backup.ReasonUnauthenticated,
		"anyone who can write to the store")

	if b := r.Status.Backup; b == nil || b.ID != m.ID || b.Authenticity != string(backup.Unsigned) {
		t.Errorf("the backup is %+v", b)
	}

	e.untouched()
}

// TestPKIIsAuthenticated: without a state Secret, the PKI of the backup becomes that of the cluster. No other PKI does.
func TestPKIIsAuthenticated(t *testing.T) {
	t.Parallel()

	e := recovering(t, 1)
	good := e.backUp()
	forged := e.backUp(e.forged, e.later(1))

	named := e.restore("named", byKey(forged.ID), unauthenticated)
	e.refused(named, backup.ReasonNotAuthentic, "not the verification key of the cluster")
	e.gone(named)

	// The parts of two backups: signed by one key, and the PKI in it is not that one's.
	mixed := e.backUp(e.later(2), func(r *backup.Request) {
		ours := r.State.Data
		e.forged(r)
		r.State.Data = ours
	})
	parts := e.restore("parts", byKey(mixed.ID), unauthenticated,
		func(s *v1alpha1.TalosEtcdRestoreSpec) { s.Source.VerificationKeys = nil })
	e.refused(parts, backup.ReasonNotAuthentic, "not signed with the key of the PKI that is in it")
	e.gone(parts)

	if e.held() != nil {
		t.Fatal("there is a state Secret")
	}

	r := e.restore("r")
	e.complete(r)

	if r.Status.Backup.ID != good.ID || e.held().State.Bundle.Fingerprint() != e.fleet.State.Bundle.Fingerprint() {
		t.Errorf("it is the PKI of another one: %s", harness.Show(r))
	}
}

// TestPKIIsReplacedMeanwhile: what was chosen is checked once more when its PKI is taken over. The choice is recorded
// by the checksum of the snapshot, which a forgery can have, too.
func TestPKIIsReplacedMeanwhile(t *testing.T) {
	t.Parallel()

	for name, tc := range map[string]struct {
		edit   func(*env) func(*backup.Request)
		reason string
	}{
		"another PKI":         {func(e *env) func(*backup.Request) { return e.forged }, backup.ReasonNotAuthentic},
		"without a signature": {func(*env) func(*backup.Request) { return unsigned }, backup.ReasonUnauthenticated},
		"another PKI inside": {func(e *env) func(*backup.Request) {
			return func(r *backup.Request) { e.forged(r); r.Sign = e.signer() }
		}, backup.ReasonNotAuthentic},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			e := recovering(t, 1)
			forged := e.backUp(tc.edit(e))

			r := e.restore("r")
			r.Status.Step = v1alpha1.RestorePreflight
			r.Status.Backup = &v1alpha1.RestoredBackup{
				ID: forged.ID, SHA256: forged.Snapshot.PlainSHA256, Authenticity: string(backup.Authentic),
			}
			e.UpdateStatus(r)
			e.refused(r, tc.reason, "")

			if e.held() != nil {
				t.Error("the PKI of somebody else was taken over")
			}
		})
	}
}

// TestPlantedCopy: a stranger who knows what the copy of the data that is about to be wiped is going to be called puts
// something there. That is no copy: nothing is wiped before there is one of ours.
func TestPlantedCopy(t *testing.T) {
	t.Parallel()

	for name, edit := range map[string]func(*env) func(*backup.Request){
		"another PKI":         func(e *env) func(*backup.Request) { return e.forged },
		"without a signature": func(*env) func(*backup.Request) { return unsigned },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			e := backedUp(t, 1)
			r := e.restore("r", discard)
			e.at(r, v1alpha1.RestoreSaving)

			id := backup.NewID(e.Clock.Now(), "planted")
			e.backUp(edit(e), func(r *backup.Request) { r.ID = id })

			r.Status.SavingID = id
			e.UpdateStatus(r)

			before := e.fleet.Calls("EtcdSnapshot")
			e.until(r, "the copy is made", func() bool { return r.Status.LastSnapshot != "" })

			if strings.HasSuffix(r.Status.LastSnapshot, id) || e.fleet.Calls("EtcdSnapshot") == before {
				t.Errorf("what was planted counts as the copy: %s", harness.Show(r))
			}
		})
	}
}

// TestRememberedKeys: what this management plane still knows of a cluster checks its backups without a person: the
// state Secret of the one that is read, the status of a control plane whose Secret is gone, and a TalosEtcdBackup.
func TestRememberedKeys(t *testing.T) {
	t.Parallel()

	keyless := func(s *v1alpha1.TalosEtcdRestoreSpec) { s.Source.VerificationKeys = nil }

	for name, tt := range map[string]struct {
		without []string
		prepare func(*env, *backup.Manifest) edits
	}{
		"the state of the one that is looked into": {nil, func(e *env, _ *backup.Manifest) edits {
			cp := &v1alpha1.TalosControlPlane{}
			e.Get(cp, cluster)
			e.Create(&v1alpha1.TalosControlPlane{
				ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: "look"}, Spec: cp.Spec,
			})

			return edits{keyless, func(s *v1alpha1.TalosEtcdRestoreSpec) {
				s.ControlPlaneRef.Name, s.Source.Cluster, s.Isolate = "look", cluster, true
			}}
		}},
		"the status of the control plane": {[]string{"state"}, func(e *env, _ *backup.Manifest) edits {
			cp := &v1alpha1.TalosControlPlane{}
			e.Get(cp, cluster)
			cp.Status.BackupVerificationKey = e.signer().Public().String()
			e.UpdateStatus(cp)

			return edits{keyless}
		}},
		"a TalosEtcdBackup": {[]string{"state"}, func(e *env, m *backup.Manifest) edits {
			e.taken("b", backup.Prefix(cluster)+m.ID+".manifest.json")

			b := &v1alpha1.TalosEtcdBackup{}
			e.Get(b, "b")
			b.Status.VerificationKey = e.signer().Public().String()
			e.UpdateStatus(b)

			return edits{byRef("b")}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			e := newEnv(t, must(t, modelled), tt.without...)
			good := e.backUp()
			e.backUp(e.forged, e.later(1))

			r := e.restore("r", tt.prepare(e, good)...)
			e.until(r, "a backup is chosen", func() bool { return r.Status.Backup != nil })

			if b := r.Status.Backup; b.ID != good.ID || b.Authenticity != string(backup.Authentic) {
				t.Errorf("the backup is %+v, want %s", b, good.ID)
			}
		})
	}
}
