package backup_test

import (
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/talos-operator/talos-operator/internal/backup"
	"github.com/talos-operator/talos-operator/internal/backup/signature"
	"github.com/talos-operator/talos-operator/internal/backup/store"
	"github.com/talos-operator/talos-operator/internal/failure"
)

// signer is the key of one of many clusters.
func signer(t testing.TB, cluster byte) *signature.Key {
	t.Helper()

	seed := make([]byte, ed25519.SeedSize)
	seed[0] = cluster

	k, err := signature.Derive(ed25519.NewKeyFromSeed(seed))
	if err != nil {
		t.Fatal(err)
	}

	return k
}

// signed takes a backup that is signed, and returns its manifest as it is stored.
func signed(t testing.TB, s store.Store, key *signature.Key, change ...func(*backup.Request)) backup.Set {
	t.Helper()

	r := request(madeSnapshot(2))
	r.AllowUnencrypted, r.Sign = true, key

	for _, c := range change {
		c(&r)
	}

	if _, err := backup.Take(t.Context(), s, r); err != nil {
		t.Fatal(err)
	}

	return found(t, s, r.Cluster.Name, r.ID)
}

func found(t testing.TB, s store.Store, cluster, id string) backup.Set {
	t.Helper()

	sets, err := backup.List(t.Context(), s, backup.Prefix(cluster))
	if err != nil {
		t.Fatal(err)
	}

	set := backup.Find(sets, id)
	if set == nil {
		t.Fatalf("no backup %s", id)
	}

	return *set
}

// authenticate reads a backup as everybody does.
func authenticate(t testing.TB, s store.Store, set backup.Set, keys ...signature.Public) (backup.Authenticity, error) {
	t.Helper()

	m, err := backup.ReadManifest(t.Context(), s, set)
	if err != nil {
		return "", err
	}

	return backup.Authenticate(m, keys...)
}

func TestAuthenticate(t *testing.T) {
	t.Parallel()

	s, ours, theirs := directory(t), signer(t, 1), signer(t, 2)
	set := signed(t, s, ours)
	old := signed(t, s, nil, func(r *backup.Request) { r.ID = backup.NewID(at.Add(time.Hour), "old") })

	m, err := backup.ReadManifest(t.Context(), s, set)
	if err != nil || m.Version != 2 || m.Signature == nil {
		t.Fatalf("%+v, %v", m, err)
	}

	if m, err := backup.ReadManifest(t.Context(), s, old); err != nil || m.Version != 1 || m.Signature != nil {
		t.Fatalf("%+v, %v", m, err)
	}

	for name, tc := range map[string]struct {
		set    backup.Set
		keys   []signature.Public
		want   backup.Authenticity
		reason string
	}{
		"with its key":                {set: set, keys: []signature.Public{ours.Public()}, want: backup.Authentic},
		"with one of two":             {set: set, keys: []signature.Public{theirs.Public(), ours.Public()}, want: backup.Authentic},
		"without a key":               {set: set, want: backup.Unchecked},
		"with another key":            {set: set, keys: []signature.Public{theirs.Public()}, reason: backup.ReasonNotAuthentic},
		"of an older version":         {set: old, keys: []signature.Public{ours.Public()}, want: backup.Unsigned},
		"of an older version, no key": {set: old, want: backup.Unsigned},
	} {
		if got, err := authenticate(t, s, tc.set, tc.keys...); got != tc.want || failure.Reason(err) != tc.reason {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}

	if got, err := backup.Authenticate(nil, ours.Public()); got != backup.Foreign || err != nil {
		t.Errorf("of another tool: %s, %v", got, err)
	}
}

func TestAccept(t *testing.T) {
	t.Parallel()

	for _, a := range []backup.Authenticity{backup.Authentic, backup.Unchecked, backup.Unsigned, backup.Foreign} {
		err := backup.Accept("x", a, false)
		if good := a == backup.Authentic; good != (err == nil) || good != (a.Warning() == "") {
			t.Errorf("%s: %v, %s", a, err, a.Warning())
		}

		if err != nil && failure.Reason(err) != backup.ReasonUnauthenticated {
			t.Errorf("%s: %v", a, err)
		}

		if err := backup.Accept("x", a, true); err != nil {
			t.Errorf("%s was accepted: %v", a, err)
		}
	}
}

// TestEachFieldIsSigned changes the fields of a signed manifest, one by one.
func TestEachFieldIsSigned(t *testing.T) {
	t.Parallel()

	s, key := directory(t), signer(t, 1)

	m, err := backup.ReadManifest(t.Context(), s, signed(t, s, key))
	if err != nil {
		t.Fatal(err)
	}

	seen := 0

	eachField(reflect.ValueOf(m).Elem(), "", func(name string, change func() func()) {
		if strings.HasPrefix(name, ".Signature") {
			return
		}

		undo := change()
		defer undo()

		seen++

		if m.SignedBy(key.Public()) {
			t.Errorf("%s can be changed", name)
		}

		if _, err := backup.Authenticate(m, key.Public()); failure.Reason(err) != backup.ReasonNotAuthentic {
			t.Errorf("%s is changed: %v", name, err)
		}
	})

	if seen < 30 || !m.SignedBy(key.Public()) {
		t.Errorf("%d fields were changed, and not back", seen)
	}

	m.Version, m.Signature = 1, nil
	if a, err := backup.Authenticate(m, key.Public()); a != backup.Unsigned || err != nil {
		t.Errorf("without the signature: %s, %v", a, err)
	}
}

// eachField calls each for the fields of a struct with a function that changes the field, and returns how to undo that.
func eachField(v reflect.Value, name string, each func(string, func() func())) {
	switch value := v.Interface().(type) {
	case time.Time:
		each(name, func() func() {
			v.Set(reflect.ValueOf(value.Add(time.Second)))

			return func() { v.Set(reflect.ValueOf(value)) }
		})

		return
	case *backup.Encryption:
		each(name, func() func() {
			v.Set(reflect.ValueOf(&backup.Encryption{Type: "age", Recipients: 7}))

			return func() { v.Set(reflect.ValueOf(value)) }
		})

		return
	}

	before := reflect.New(v.Type()).Elem()
	before.Set(v)

	set := func(to reflect.Value) {
		each(name, func() func() {
			v.Set(to)

			return func() { v.Set(before) }
		})
	}

	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			eachField(v.Field(i), name+"."+v.Type().Field(i).Name, each)
		}
	case reflect.String:
		set(reflect.ValueOf(v.String() + "0").Convert(v.Type()))
	case reflect.Int, reflect.Int64:
		set(reflect.ValueOf(v.Int() ^ 1).Convert(v.Type()))
	case reflect.Bool:
		set(reflect.ValueOf(!v.Bool()))
	default:
		each(name, func() func() { return func() {} })
	}
}

// TestForgedInTheStore: what a stranger does who can write to the store and has no key of the cluster.
func TestForgedInTheStore(t *testing.T) {
	t.Parallel()

	key := signer(t, 1)
	later := backup.NewID(at.Add(time.Hour), "later")

	for name, tc := range map[string]struct {
		forge  func(*testing.T, store.Store, backup.Set) backup.Set
		reason string
		want   backup.Authenticity
	}{
		"another PKI": {func(t *testing.T, s store.Store, _ backup.Set) backup.Set {
			return signed(t, s, signer(t, 2), func(r *backup.Request) { r.ID = later })
		}, backup.ReasonNotAuthentic, ""},
		"without a signature": {func(t *testing.T, s store.Store, _ backup.Set) backup.Set {
			return signed(t, s, nil, func(r *backup.Request) { r.ID = later })
		}, "", backup.Unsigned},
		"an old one under a new name": {func(t *testing.T, s store.Store, set backup.Set) backup.Set {
			rename(t, s, set, "c1", later, false)

			return found(t, s, "c1", later)
		}, backup.ReasonManifest, ""},
		"an old one with a new name in it": {func(t *testing.T, s store.Store, set backup.Set) backup.Set {
			rename(t, s, set, "c1", later, true)

			return found(t, s, "c1", later)
		}, backup.ReasonNotAuthentic, ""},
		"in the folder of another cluster": {func(t *testing.T, s store.Store, set backup.Set) backup.Set {
			rename(t, s, set, "c2", set.ID, false)

			return found(t, s, "c2", set.ID)
		}, backup.ReasonManifest, ""},
		"in the folder of another cluster, with its name": {func(t *testing.T, s store.Store, set backup.Set) backup.Set {
			rename(t, s, set, "c2", set.ID, true)

			return found(t, s, "c2", set.ID)
		}, backup.ReasonNotAuthentic, ""},
		"the signature is removed": {func(t *testing.T, s store.Store, set backup.Set) backup.Set {
			edit(t, s, set, func(m *backup.Manifest) { m.Signature = nil })

			return set
		}, backup.ReasonManifest, ""},
		"and the version lowered": {func(t *testing.T, s store.Store, set backup.Set) backup.Set {
			edit(t, s, set, func(m *backup.Manifest) { m.Signature, m.Version = nil, 1 })

			return set
		}, "", backup.Unsigned},
		"only the version lowered": {func(t *testing.T, s store.Store, set backup.Set) backup.Set {
			edit(t, s, set, func(m *backup.Manifest) { m.Version = 1 })

			return set
		}, backup.ReasonManifest, ""},
		"the key replaced": {func(t *testing.T, s store.Store, set backup.Set) backup.Set {
			edit(t, s, set, func(m *backup.Manifest) { m.Signature.Key = signer(t, 2).Public() })

			return set
		}, backup.ReasonNotAuthentic, ""},
		"of another type": {func(t *testing.T, s store.Store, set backup.Set) backup.Set {
			edit(t, s, set, func(m *backup.Manifest) { m.Signature.Type = "none" })

			return set
		}, backup.ReasonManifest, ""},
		"not touched": {func(_ *testing.T, _ store.Store, set backup.Set) backup.Set { return set }, "", backup.Authentic},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			s := directory(t)
			set := tc.forge(t, s, signed(t, s, key))

			if got, err := authenticate(t, s, set, key.Public()); got != tc.want || failure.Reason(err) != tc.reason {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}

// edit changes a stored manifest.
func edit(t *testing.T, s store.Store, set backup.Set, change func(*backup.Manifest)) {
	t.Helper()

	m := &backup.Manifest{}
	if err := json.Unmarshal(get(t, s, set.Manifest.Key), m); err != nil {
		t.Fatal(err)
	}

	change(m)

	b, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}

	overwrite(t, s, set.Manifest.Key, b)
}

// rename copies a backup to another name, and with change into its manifest, too.
func rename(t *testing.T, s store.Store, set backup.Set, cluster, id string, change bool) {
	t.Helper()

	for _, o := range []*store.Object{set.Snapshot, set.State, set.Manifest} {
		content := get(t, s, o.Key)

		if o == set.Manifest && change {
			text := strings.ReplaceAll(string(content), set.ID, id)
			content = []byte(strings.Replace(text, `"name": "c1"`, `"name": "`+cluster+`"`, 1))
		}

		key := backup.Prefix(cluster) + strings.Replace(path.Base(o.Key), set.ID, id, 1)
		if key != o.Key {
			write(t, s, key, content)
		}
	}
}

// TestRandomManifests: whatever a manifest says, it is authentic after it was stored and read, and has one digest.
func TestRandomManifests(t *testing.T) {
	t.Parallel()

	random, key := rand.New(rand.NewPCG(1, 2)), signer(t, 1)

	for i := range 300 {
		s := directory(t)
		set := signed(t, s, key, func(r *backup.Request) { randomize(random, r, i) })

		m, err := backup.ReadManifest(t.Context(), s, set)
		if err != nil {
			t.Fatal(err)
		}

		if a, err := backup.Authenticate(m, key.Public()); a != backup.Authentic || err != nil {
			t.Fatalf("%d: %s, %v: %+v", i, a, err, m)
		}

		// Another text of the same manifest says the same.
		dense, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}

		again, err := backup.ParseManifest(dense)
		if err != nil || !again.SignedBy(key.Public()) {
			t.Fatalf("%d: %v: %s", i, err, dense)
		}

		one, err := m.Digest()
		if err != nil {
			t.Fatal(err)
		}

		if other, err := again.Digest(); err != nil || one != other {
			t.Fatalf("%d: two digests, %v", i, err)
		}
	}
}

func randomize(random *rand.Rand, r *backup.Request, i int) {
	text := func() string {
		const allowed = "09AZaz .:_+/()-"

		b := make([]byte, random.IntN(40))
		for i := range b {
			b[i] = allowed[random.IntN(len(allowed))]
		}

		return string(b)
	}
	now := at.Add(time.Duration(random.Int64N(int64(1000 * 24 * time.Hour))))

	r.ID = backup.NewID(now, fmt.Sprint(i))
	r.Now = func() time.Time { return now.In(time.FixedZone("x", random.IntN(7200))) }
	r.Cluster.Name, r.Cluster.ID, r.Cluster.CAFingerprint = fmt.Sprintf("c%d", random.IntN(9)), text(), text()
	r.TalosVersion, r.KubernetesVersion, r.Tool = text(), text(), text()
	r.Source = backup.Member{
		Node: text(), ID: text(), Version: text(), StorageVersion: text(), Leader: random.IntN(2) == 0, Revision: random.Int64(),
	}
	r.Snapshot = opener(madeSnapshot(1 + random.IntN(3)))

	if random.IntN(2) == 0 {
		r.Compression = backup.CompressionNone
	}
}

// TestSignatureStaysTheSame: what is signed today has to be authentic with every later version of this program.
func TestSignatureStaysTheSame(t *testing.T) {
	t.Parallel()

	m, err := backup.ParseManifest([]byte(goldenManifest))
	if err != nil {
		t.Fatal(err)
	}

	if !m.SignedBy(signer(t, 1).Public()) {
		t.Error("a manifest that was signed by an earlier version is not authentic any more")
	}
}
