package storage_test

import (
	"strings"
	"testing"

	"filippo.io/age"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/backup/storage"
	"github.com/talos-operator/talos-operator/internal/failure"
)

// TestPlaces: with a list of stores a namespace reaches those on it and no others, whatever credentials it brings, and
// however the endpoint is written.
func TestPlaces(t *testing.T) {
	t.Parallel()

	var places storage.Places
	if err := places.Set("red=https://s3.example.com/backups/red,red=s3://aws/red,blue=http://[::1]:9000/*,ops=*"); err != nil {
		t.Fatal(err)
	}

	for _, tc := range []struct {
		namespace, endpoint, bucket, prefix string
		allowed                             bool
	}{
		{"red", "https://s3.example.com", "backups", "red", true},
		{"red", "S3.Example.com:443", "backups", "red/etcd", true},
		{"red", "https://s3.example.com", "backups", "redder", false},
		{"red", "https://s3.example.com", "backups", "", false},
		{"red", "https://s3.example.com", "other", "red", false},
		{"red", "http://s3.example.com", "backups", "red", false},
		{"red", "https://s3.example.com:8443", "backups", "red", false},
		{"red", "https://s3.example.com.evil.example", "backups", "red", false},
		{"red", "https://s3.example.com@evil.example", "backups", "red", false},
		{"red", "", "aws", "red", true},
		{"red", "", "backups", "red", false},
		{"red", "https://evil.example", "aws", "red", false},
		{"blue", "http://[::1]:9000", "any", "where", true},
		{"blue", "https://s3.example.com", "backups", "red", false},
		{"ops", "https://any.example", "any", "", true},
		{"green", "", "aws", "red", false},
	} {
		s := &v1alpha1.BackupStorage{S3: &v1alpha1.S3Storage{Endpoint: tc.endpoint, Bucket: tc.bucket, Prefix: tc.prefix}}
		own := storage.Grants{{Namespace: "*", Bucket: "*"}}

		_, err := (&storage.Opener{Own: own, Places: places}).Open(t.Context(), tc.namespace, s)
		if (failure.Reason(err) != storage.ReasonStoreForbidden) != tc.allowed {
			t.Errorf("%+v: %v", tc, err)
		}

		// What the message says is what it takes.
		if _, flag, ok := strings.Cut(failure.Message(err), "--allow-stores="); ok {
			var more storage.Places
			if err := more.Set(flag); err != nil || !more.Allow(tc.namespace, tc.endpoint, tc.bucket, tc.prefix) {
				t.Errorf("%+v: the message says %s: %v", tc, flag, err)
			}
		}
	}

	if !(storage.Places{}).Allow("red", "", "backups", "") {
		t.Error("without a list a store is refused")
	}

	if got := places.String(); new(storage.Places).Set(got) != nil {
		t.Errorf("%s is no flag", got)
	}

	for _, text := range []string{
		"", "red", "=*", "red=", "red=backups", "red=ftp://h/b", "red=https://h", "red=https://h/", "red=s3://", "red=https://h/b/",
		"red=https://u:p@h/b", "red=https://h/b?x", "red=https://h/*/x",
	} {
		if err := new(storage.Places).Set(text); err == nil {
			t.Errorf("%q is a place", text)
		}
	}
}

// TestAllowedRecipients: with a list of keys no backup is encrypted to another one, or to none.
func TestAllowedRecipients(t *testing.T) {
	t.Parallel()

	var keys []string

	for range 3 {
		id, err := age.GenerateX25519Identity()
		if err != nil {
			t.Fatal(err)
		}

		keys = append(keys, id.Recipient().String())
	}

	var list storage.RecipientList
	if err := list.Set(keys[0] + "," + keys[1]); err != nil {
		t.Fatal(err)
	}

	c := reader(t, secret("public", map[string]string{"keys": "# ours\n" + keys[1] + "\n", "theirs": keys[0] + "\n" + keys[2] + "\n"}))
	from := func(key string) []v1alpha1.SecretKeyReference {
		return []v1alpha1.SecretKeyReference{ref("public", key)}
	}

	for name, tc := range map[string]struct {
		inline  []string
		from    []v1alpha1.SecretKeyReference
		allowed bool
	}{
		"on the list":          {keys[:2], nil, true},
		"with a comment":       {[]string{"# the vault\n" + keys[0]}, nil, true},
		"in a Secret":          {nil, from("keys"), true},
		"none":                 {nil, nil, false},
		"another":              {keys[2:], nil, false},
		"another beside it":    {keys, nil, false},
		"another in a Secret":  {keys[:1], from("theirs"), false},
		"another in one value": {[]string{keys[0] + "\n" + keys[2]}, nil, false},
	} {
		_, err := (&storage.Opener{Reader: c, Allowed: list}).Recipients(t.Context(), namespace, tc.inline, tc.from)
		if (err == nil) != tc.allowed || err != nil && failure.Reason(err) != storage.ReasonRecipientForbidden {
			t.Errorf("%s: %v", name, err)
		}

		if _, err := (&storage.Opener{Reader: c}).Recipients(t.Context(), namespace, tc.inline, tc.from); err != nil {
			t.Errorf("%s, without a list: %v", name, err)
		}
	}

	if err := new(storage.RecipientList).Set("age1nonsense"); err == nil {
		t.Error("it is a key")
	}
}

// TestPrefixesThatLeave: a prefix that names another place once its dots are resolved is refused, although it begins as one
// that is allowed: a gateway before a store may resolve them. So is what is more than a name.
func TestPrefixesThatLeave(t *testing.T) {
	t.Parallel()

	var places storage.Places
	if err := places.Set("red=https://s3.example.com/backups/red"); err != nil {
		t.Fatal(err)
	}

	o := &storage.Opener{Own: storage.Grants{{Namespace: "*", Bucket: "*"}}, Places: places}

	for _, prefix := range []string{
		"red/../blue", "red/..", "red/./x", "red//x", "red/x/", "red/x%2f..%2f..%2fblue", "red/\x1b[2J", "red/x\ny", "red/x\\..\\blue",
		"red/" + strings.Repeat("x", 1000),
	} {
		_, err := o.Open(t.Context(), "red", &v1alpha1.BackupStorage{S3: &v1alpha1.S3Storage{
			Endpoint: "https://s3.example.com", Bucket: "backups", Prefix: prefix,
		}})
		if failure.ClassOf(err) != failure.ClassTerminal || failure.Reason(err) == storage.ReasonStoreForbidden {
			t.Errorf("%.40q: %v", prefix, err)
		}
	}
}
