package storage_test

import (
	"strings"
	"testing"

	"github.com/talos-operator/talos-operator/internal/backup/storage"
)

// FuzzPlaces: what is shown of a list is the list, a namespace that a list does not name may use nothing, and a place
// with a prefix permits no key beside it.
func FuzzPlaces(f *testing.F) {
	f.Add("team-a=https://s3.example.com/backups/a", "team-a", "s3.example.com", "backups", "a/b")
	f.Add("*=s3://bucket,b=*", "b", "", "bucket", "")
	f.Add("a=http://[::1]:9000/x", "a", "http://[::1]:9000", "x", "../y")
	f.Add("a=https://S3.Example.com:443/x/y/z", "a", "https://s3.example.com", "x", "y/z")
	f.Add("a=https://u:p@h/b,=*,a=s3:///b,a=https://h/b?c", "a", "h", "b", "")

	f.Fuzz(func(t *testing.T, list, namespace, endpoint, bucket, prefix string) {
		var places, again storage.Places

		if places.Set(list) != nil {
			return
		}

		if err := again.Set(places.String()); err != nil || again.String() != places.String() {
			t.Fatalf("%q is shown as %q, which is read as %q: %v", list, places.String(), again.String(), err)
		}

		if !places.Allow(namespace, endpoint, bucket, prefix) {
			return
		}

		for _, p := range places {
			inside := p.Prefix == "" || strings.HasPrefix(prefix+"/", p.Prefix+"/")
			if inside && (p.Namespace == "*" || p.Namespace == namespace) && (p.Bucket == "*" || p.Bucket == bucket) {
				return
			}
		}

		t.Errorf("%q permits %q to use %q in %q at %q", list, namespace, prefix, bucket, endpoint)
	})
}
