package storage_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/backup"
	"github.com/talos-operator/talos-operator/internal/backup/storage"
	"github.com/talos-operator/talos-operator/internal/backup/store"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/lab/process"
	"github.com/talos-operator/talos-operator/lab/s3"
	"github.com/talos-operator/talos-operator/test/loopback"
)

const namespace = "ns"

func secret(name string, data map[string]string) *corev1.Secret {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: map[string][]byte{}}
	for k, v := range data {
		s.Data[k] = []byte(v)
	}

	return s
}

func reader(t *testing.T, objects ...client.Object) client.WithWatch {
	t.Helper()

	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}

	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
}

func ref(name, key string) v1alpha1.SecretKeyReference {
	return v1alpha1.SecretKeyReference{Name: name, Key: key}
}

func TestKeysOfBackups(t *testing.T) {
	t.Parallel()

	one, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}

	two, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}

	c := reader(t,
		secret("public", map[string]string{"keys": "# ours\n" + one.Recipient().String() + "\n" + two.Recipient().String() + "\n"}),
		secret("private", map[string]string{"key": "# created\n" + one.String() + "\n", "empty": " "}),
	)
	o := &storage.Opener{Reader: c}
	ctx := t.Context()

	got, err := o.Recipients(ctx, namespace, []string{one.Recipient().String()}, []v1alpha1.SecretKeyReference{ref("public", "keys")})
	if err != nil {
		t.Fatal(err)
	}

	if parsed, err := backup.ParseRecipients(got); err != nil || len(parsed) != 3 {
		t.Errorf("got %d recipients, %v", len(parsed), err)
	}

	ids, err := o.Identities(ctx, namespace, []v1alpha1.SecretKeyReference{ref("private", "key")})
	if err != nil || len(ids) != 1 {
		t.Errorf("got %d identities, %v", len(ids), err)
	}

	for name, tc := range map[string]struct {
		ask    func() error
		class  failure.Class
		reason string
		tells  string
	}{
		"missing Secret": {func() error {
			_, err := o.Recipients(ctx, namespace, nil, []v1alpha1.SecretKeyReference{ref("none", "keys")})

			return err
		}, failure.ClassWaiting, storage.ReasonSecret, "Secret none does not exist"},
		"other namespace": {func() error {
			_, err := o.Identities(ctx, "other", []v1alpha1.SecretKeyReference{ref("private", "key")})

			return err
		}, failure.ClassWaiting, storage.ReasonSecret, "Secret private does not exist"},
		"missing key": {func() error {
			_, err := o.Identities(ctx, namespace, []v1alpha1.SecretKeyReference{ref("private", "nothing")})

			return err
		}, failure.ClassWaiting, storage.ReasonSecret, "has no key nothing"},
		"empty key": {func() error {
			_, err := o.Identities(ctx, namespace, []v1alpha1.SecretKeyReference{ref("private", "empty")})

			return err
		}, failure.ClassWaiting, storage.ReasonSecret, "has no key empty, or it is empty"},
		"private key as recipient": {func() error {
			_, err := o.Recipients(ctx, namespace, nil, []v1alpha1.SecretKeyReference{ref("private", "key")})

			return err
		}, failure.ClassWaiting, backup.ReasonRecipients, "Secret private: key key"},
		"public key as identity": {func() error {
			_, err := o.Identities(ctx, namespace, []v1alpha1.SecretKeyReference{ref("public", "keys")})

			return err
		}, failure.ClassWaiting, backup.ReasonIdentity, "Secret public: key keys"},
	} {
		err := tc.ask()
		if failure.ClassOf(err) != tc.class || failure.Reason(err) != tc.reason || !strings.Contains(failure.Message(err), tc.tells) {
			t.Errorf("%s: class %v, reason %s: %v", name, failure.ClassOf(err), failure.Reason(err), err)
		}

		if err != nil && (strings.Contains(err.Error(), one.String()) || strings.Contains(err.Error(), "AGE-SECRET-KEY-1"+one.String()[16:20])) {
			t.Errorf("%s: the error tells the key", name)
		}
	}
}

func TestDirectory(t *testing.T) {
	t.Parallel()

	root, outside := t.TempDir(), t.TempDir()
	ctx := t.Context()

	ours, theirs := filepath.Join(root, namespace), filepath.Join(root, "other")

	for _, err := range []error{
		os.Mkdir(ours, 0o700), os.Mkdir(theirs, 0o700), os.Symlink(outside, filepath.Join(ours, "out")),
		os.Symlink("../other", filepath.Join(ours, "theirs")), os.WriteFile(filepath.Join(ours, "file"), nil, 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}

	dir := func(path string) *v1alpha1.BackupStorage {
		return &v1alpha1.BackupStorage{Directory: &v1alpha1.DirectoryStorage{Path: path}}
	}
	o := &storage.Opener{Root: root}

	for _, path := range []string{"", "a/b"} {
		s, err := o.Open(ctx, namespace, dir(path))
		if err != nil {
			t.Fatal(err)
		}

		if err := s.Check(ctx, 0); err != nil || !strings.HasSuffix(s.Location(), filepath.Join("/", namespace, path)) {
			t.Errorf("%q: %s: %v", path, s.Location(), err)
		}
	}

	for name, tc := range map[string]struct {
		opener *storage.Opener
		path   string
		class  failure.Class
	}{
		"no directory given": {&storage.Opener{}, "a", failure.ClassTerminal},
		"not mounted":        {&storage.Opener{Root: filepath.Join(root, "none")}, "", failure.ClassTransient},
		"parent":             {o, "../x", failure.ClassTerminal},
		"absolute":           {o, outside, failure.ClassTerminal},
		"link that leaves":   {o, "out", failure.ClassTerminal},
		"below such a link":  {o, "out/x", failure.ClassTerminal},
		"other namespace":    {o, "../other", failure.ClassTerminal},
		"link to it":         {o, "theirs", failure.ClassTerminal},
		"file":               {o, "file", failure.ClassTerminal},
	} {
		_, err := tc.opener.Open(ctx, namespace, dir(tc.path))
		if err == nil || failure.ClassOf(err) != tc.class || failure.Reason(err) == "" {
			t.Errorf("%s: class %v, reason %s: %v", name, failure.ClassOf(err), failure.Reason(err), err)
		}
	}

	for _, place := range []string{outside, theirs} {
		if left, err := os.ReadDir(place); err != nil || len(left) > 0 {
			t.Errorf("something was made in %s: %v, %v", place, left, err)
		}
	}

	for _, s := range []*v1alpha1.BackupStorage{nil, {}, {S3: &v1alpha1.S3Storage{}, Directory: &v1alpha1.DirectoryStorage{}}} {
		if _, err := o.Open(ctx, namespace, s); failure.Reason(err) != store.ReasonInvalid {
			t.Errorf("%v: %v", s, err)
		}
	}
}

// TestCredentialsOfABucket: what is missing is told by name, new ones are used without opening the store again, and a
// restart of the API server does not end an upload.
func TestCredentialsOfABucket(t *testing.T) {
	t.Parallel()

	assets, err := process.Assets()
	if err != nil {
		t.Fatal(err)
	}

	server, err := s3.Start(t.Context(), s3.Options{
		Binary: filepath.Join(assets, "versitygw"), Dir: t.TempDir(), Address: loopback.Address(t),
	})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(server.Kill)

	if err := server.CreateBucket(t.Context(), "backups", false); err != nil {
		t.Fatal(err)
	}

	keys := secret("keys", map[string]string{storage.AccessKeyID: "wrong-key", storage.SecretAccessKey: "wrong-secret"})
	c := reader(t, keys, secret("ca", map[string]string{"ca.crt": string(server.CA()), "bad": "text"}))

	var broken error

	o := (&storage.Opener{Reader: interceptor.NewClient(c, interceptor.Funcs{
		Get: func(ctx context.Context, w client.WithWatch, k client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if broken != nil {
				return broken
			}

			return w.Get(ctx, k, obj, opts...)
		},
	})}).WithStall(10 * time.Minute)

	ca := ref("ca", "ca.crt")
	where := &v1alpha1.BackupStorage{S3: &v1alpha1.S3Storage{
		Endpoint: server.Endpoint(), Bucket: "backups", Prefix: "p", CAFrom: &ca,
		CredentialsRef: &v1alpha1.ObjectReference{Name: "keys"},
	}}
	ctx := t.Context()

	now := time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
	storage.SetClock(t, func() time.Time { return now })

	s, err := o.Open(ctx, namespace, where)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()

	if err := s.Check(ctx, 0); failure.Reason(err) != store.ReasonForbidden || strings.Contains(err.Error(), "wrong-secret") {
		t.Errorf("wrong credentials: %v", err)
	}

	keys.Data = map[string][]byte{storage.AccessKeyID: []byte(server.AccessKey + "\n"), storage.SecretAccessKey: []byte(server.SecretKey)}
	if err := c.Update(ctx, keys); err != nil {
		t.Fatal(err)
	}

	now = now.Add(6 * time.Second)

	if _, err := s.Put(ctx, "x", func(w io.Writer) error { _, err := w.Write([]byte("x")); return err }); err != nil {
		t.Errorf("after the rotation: %v", err)
	}

	broken, now = errors.New("connection refused"), now.Add(6*time.Second)

	if _, err := s.Stat(ctx, "x"); err != nil {
		t.Errorf("while the API server is away: %v", err)
	}

	broken, now = apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "keys", nil), now.Add(6*time.Second)

	if _, err := s.Stat(ctx, "x"); failure.Reason(err) != storage.ReasonSecretForbidden {
		t.Errorf("when the Secret may not be read: %v", err)
	}

	broken = nil

	keys.Data = map[string][]byte{storage.AccessKeyID: []byte("a")}
	if err := c.Update(ctx, keys); err != nil {
		t.Fatal(err)
	}

	if _, err := s.Stat(ctx, "x"); failure.Reason(err) != store.ReasonCredentials || failure.Message(err) != "Secret keys has no key secretAccessKey, or it is empty" {
		t.Errorf("without a key, in use: %v", err)
	}

	if _, err := o.Open(ctx, namespace, where); failure.Reason(err) != store.ReasonCredentials {
		t.Errorf("without a key: %v", err)
	}

	where.S3.CredentialsRef.Name = "gone"
	if _, err := o.Open(ctx, namespace, where); failure.Reason(err) != storage.ReasonSecret || failure.Message(err) != "Secret gone does not exist" {
		t.Errorf("without the Secret: %v", err)
	}

	bad := ref("ca", "bad")
	where.S3.CAFrom, where.S3.CredentialsRef.Name = &bad, "ca"
	where.S3.CredentialsRef = nil
	o.Own = storage.Grants{{Namespace: namespace, Bucket: "*"}}

	if _, err := o.Open(ctx, namespace, where); failure.Reason(err) != store.ReasonInvalid {
		t.Errorf("with a CA that is none: %v", err)
	}
}

// TestFolders: what one namespace stores, another one neither reads nor deletes, by whatever path.
func TestFolders(t *testing.T) {
	t.Parallel()

	o := &storage.Opener{Root: t.TempDir()}
	dir := &v1alpha1.BackupStorage{Directory: &v1alpha1.DirectoryStorage{Path: "etcd"}}

	open := func(ns string) store.Store {
		t.Helper()

		s, err := o.Open(t.Context(), ns, dir)
		if err != nil {
			t.Fatal(err)
		}

		return s
	}

	const key = "talos-operator-etcd-backups/prod/20261122T030007Z-1f2e3d4c.snap"

	if _, err := open("red").Put(t.Context(), key, func(w io.Writer) error {
		_, err := w.Write([]byte("etcd of red"))

		return err
	}); err != nil {
		t.Fatal(err)
	}

	if _, _, err := open("blue").Get(t.Context(), key); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("blue reads what red has stored: %v", err)
	}

	_ = open("blue").Delete(t.Context(), key)

	r, _, err := open("red").Get(t.Context(), key)
	if err != nil {
		t.Fatalf("blue has deleted what red has stored: %v", err)
	}

	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

// TestOwnCredentials: the operator's own credentials serve only whom the operator was started for.
func TestOwnCredentials(t *testing.T) {
	t.Parallel()

	var grants storage.Grants

	for _, text := range []string{"red=backups/red,*=shared", "ops=*"} {
		if err := grants.Set(text); err != nil {
			t.Fatal(err)
		}
	}

	if got := grants.String(); got != "red=backups/red,*=shared,ops=*" {
		t.Errorf("they print as %s", got)
	}

	for _, tc := range []struct {
		namespace, bucket, prefix string
		allowed                   bool
	}{
		{"red", "backups", "red", true},
		{"red", "backups", "red/etcd", true},
		{"red", "backups", "redder", false},
		{"red", "backups", "", false},
		{"red", "backups", "blue", false},
		{"blue", "backups", "red", false},
		{"blue", "shared", "any", true},
		{"ops", "backups", "", true},
	} {
		o := &storage.Opener{Own: grants}

		_, err := o.Open(t.Context(), tc.namespace, &v1alpha1.BackupStorage{S3: &v1alpha1.S3Storage{
			Endpoint: "https://s3.example.com", Bucket: tc.bucket, Prefix: tc.prefix,
		}})
		if (err == nil) != tc.allowed || err != nil && (failure.Reason(err) != storage.ReasonOwnIdentity ||
			failure.ClassOf(err) != failure.ClassTerminal || !strings.Contains(failure.Message(err), "--allow-own-credentials="+tc.namespace+"="+tc.bucket)) {
			t.Errorf("%+v: %v", tc, err)
		}
	}

	if (storage.Grants{}).Allow("red", "backups", "red") {
		t.Error("they may be used without a grant")
	}

	for _, text := range []string{"", "red", "=backups", "red=", "red=/x", "red=backups/", "red=backups//", "red=*/x"} {
		if err := new(storage.Grants).Set(text); err == nil {
			t.Errorf("%q is a grant", text)
		}
	}
}
