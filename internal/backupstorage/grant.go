package backupstorage

import (
	"fmt"
	"slices"
	"strings"
)

// everyone stands for every namespace, or every bucket.
const everyone = "*"

// Grant lets the objects of a namespace use the operator's own credentials for a bucket, or for a part of it.
type Grant struct {
	// Namespace of the objects, or * for all.
	Namespace string
	// Bucket, or * for all; Prefix of the keys in it, without slashes at its ends, or empty for all of them.
	Bucket, Prefix string
}

// Grants are those that hold. Without any, every bucket needs credentials of its own.
type Grants []Grant

// ParseGrants reads grants as flags have them: NAMESPACE=BUCKET or NAMESPACE=BUCKET/PREFIX each.
func ParseGrants(texts []string) (Grants, error) {
	var out Grants

	for _, text := range texts {
		namespace, where, ok := strings.Cut(text, "=")
		bucket, prefix, _ := strings.Cut(where, "/")

		if !ok || namespace == "" || bucket == "" || strings.Trim(where, "/") != where || bucket == everyone && prefix != "" {
			return nil, fmt.Errorf("%q is not NAMESPACE=BUCKET or NAMESPACE=BUCKET/PREFIX", text)
		}

		out = append(out, Grant{Namespace: namespace, Bucket: bucket, Prefix: prefix})
	}

	return out, nil
}

// String is the grant as a flag has it.
func (g Grant) String() string {
	if g.Prefix == "" {
		return g.Namespace + "=" + g.Bucket
	}

	return g.Namespace + "=" + g.Bucket + "/" + g.Prefix
}

// Allow tells whether an object of a namespace may use the operator's own credentials for keys of a prefix in a bucket.
func (g Grants) Allow(namespace, bucket, prefix string) bool {
	return slices.ContainsFunc(g, func(g Grant) bool {
		return is(g.Namespace, namespace) && is(g.Bucket, bucket) &&
			(g.Prefix == "" || prefix == g.Prefix || strings.HasPrefix(prefix, g.Prefix+"/"))
	})
}

// is: a name is the one that is allowed.
func is(allowed, name string) bool { return allowed == everyone || allowed == name }
