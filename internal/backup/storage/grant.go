package storage

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

// Set adds grants, separated by commas, as NAMESPACE=BUCKET or NAMESPACE=BUCKET/PREFIX each. It is part of pflag.Value.
func (g *Grants) Set(text string) error {
	for one := range strings.SplitSeq(text, ",") {
		namespace, where, ok := strings.Cut(one, "=")
		bucket, prefix, _ := strings.Cut(where, "/")

		if !ok || namespace == "" || bucket == "" || strings.Trim(where, "/") != where || bucket == everyone && prefix != "" {
			return fmt.Errorf("%q is not NAMESPACE=BUCKET or NAMESPACE=BUCKET/PREFIX", one)
		}

		*g = append(*g, Grant{Namespace: namespace, Bucket: bucket, Prefix: prefix})
	}

	return nil
}

// String is part of pflag.Value.
func (g *Grants) String() string {
	texts := make([]string, 0, len(*g))
	for _, one := range *g {
		texts = append(texts, one.String())
	}

	return strings.Join(texts, ",")
}

// Type is part of pflag.Value.
func (*Grants) Type() string { return "grants" }

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
