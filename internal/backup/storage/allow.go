package storage

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"filippo.io/age"

	"github.com/talos-operator/talos-operator/internal/backup"
)

// s3Scheme begins a place in a bucket of AWS, which has no endpoint.
const s3Scheme = "s3"

// Place is a bucket, or a part of one, that objects of a namespace may name.
type Place struct {
	// Namespace of the objects, or * for all.
	Namespace string
	// Endpoint is scheme and host, empty for AWS, or * for any.
	Endpoint string
	// Bucket, or * for all; Prefix of the keys in it, without slashes at its ends, or empty for all of them.
	Bucket, Prefix string
}

// Places are those that may be named. Without any, every place may.
type Places []Place

// Set adds places, separated by commas: NAMESPACE=https://HOST/BUCKET, NAMESPACE=s3://BUCKET for AWS, both with /PREFIX
// where only a part is meant, or NAMESPACE=* for any place. It is part of pflag.Value.
func (p *Places) Set(text string) error {
	for one := range strings.SplitSeq(text, ",") {
		namespace, where, _ := strings.Cut(one, "=")

		place, err := parsePlace(where)
		if err != nil || namespace == "" {
			return fmt.Errorf("%q is not NAMESPACE=https://HOST/BUCKET[/PREFIX], NAMESPACE=s3://BUCKET[/PREFIX] or "+
				"NAMESPACE=*", one)
		}

		place.Namespace = namespace
		*p = append(*p, place)
	}

	return nil
}

func parsePlace(where string) (Place, error) {
	if where == everyone {
		return Place{Endpoint: everyone, Bucket: everyone}, nil
	}

	u, err := url.Parse(where)
	if err != nil {
		return Place{}, err
	}

	path := strings.TrimPrefix(u.Path, "/")

	place := Place{Endpoint: origin(u)}
	if u.Scheme == s3Scheme {
		path = strings.Trim(u.Host+"/"+path, "/")
		place.Endpoint = ""
	}

	place.Bucket, place.Prefix, _ = strings.Cut(path, "/")

	known := slices.Contains([]string{s3Scheme, "http", "https"}, u.Scheme) && u.User == nil && u.RawQuery == ""
	if !known || u.Host == "" || place.Bucket == "" || strings.Trim(path, "/") != path ||
		place.Bucket == everyone && place.Prefix != "" {
		return Place{}, fmt.Errorf("%q is no place in a store", where)
	}

	return place, nil
}

// origin is scheme, host and port, in the form that two equal ones share.
func origin(u *url.URL) string {
	host := strings.ToLower(u.Hostname())
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}

	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}

	return u.Scheme + "://" + host + ":" + port
}

// String is part of pflag.Value.
func (p *Places) String() string {
	texts := make([]string, 0, len(*p))
	for _, one := range *p {
		texts = append(texts, one.String())
	}

	return strings.Join(texts, ",")
}

// Type is part of pflag.Value.
func (*Places) Type() string { return "places" }

// String is the place as a flag has it.
func (p Place) String() string {
	if p.Endpoint == everyone {
		return p.Namespace + "=" + everyone
	}

	endpoint := p.Endpoint + "/"
	if p.Endpoint == "" {
		endpoint = s3Scheme + "://"
	}

	return strings.TrimSuffix(p.Namespace+"="+endpoint+p.Bucket+"/"+p.Prefix, "/")
}

// Allow tells whether an object of a namespace may name keys of a prefix in a bucket at an endpoint, as a spec has it.
func (p Places) Allow(namespace, endpoint, bucket, prefix string) bool {
	place := placeOf(namespace, endpoint, bucket, prefix)

	return len(p) == 0 || slices.ContainsFunc(p, func(p Place) bool {
		return is(p.Namespace, namespace) && is(p.Endpoint, place.Endpoint) && is(p.Bucket, bucket) &&
			(p.Prefix == "" || prefix == p.Prefix || strings.HasPrefix(prefix, p.Prefix+"/"))
	})
}

// placeOf is the place that a spec names. Its endpoint may be a host alone, which means https.
func placeOf(namespace, endpoint, bucket, prefix string) Place {
	place := Place{Namespace: namespace, Bucket: bucket, Prefix: prefix}

	if endpoint == "" {
		return place
	}

	if !strings.Contains(endpoint, "://") {
		endpoint = "https://" + endpoint
	}

	// One that does not parse is no place of any list, and refused as a setting later where there is none.
	place.Endpoint = endpoint
	if u, err := url.Parse(endpoint); err == nil {
		place.Endpoint = origin(u)
	}

	return place
}

// RecipientList are the age public keys that backups may be encrypted to. Without any, every key may be.
type RecipientList []string

// Set adds keys, separated by commas. It is part of pflag.Value.
func (l *RecipientList) Set(text string) error {
	for one := range strings.SplitSeq(text, ",") {
		parsed, err := backup.ParseRecipients([]string{one})
		if err != nil {
			return err
		}

		*l = append(*l, texts(parsed)...)
	}

	return nil
}

// String is part of pflag.Value.
func (l *RecipientList) String() string { return strings.Join(*l, ",") }

// Type is part of pflag.Value.
func (*RecipientList) Type() string { return "recipients" }

// Refused is the first of the keys that is not on the list; empty when all of them are.
func (l RecipientList) Refused(parsed []age.Recipient) string {
	if len(l) == 0 {
		return ""
	}

	for _, key := range texts(parsed) {
		if !slices.Contains(l, key) {
			return key
		}
	}

	return ""
}

// texts are public keys as they are written.
func texts(recipients []age.Recipient) []string {
	out := make([]string, 0, len(recipients))
	for _, r := range recipients {
		out = append(out, fmt.Sprint(r))
	}

	return out
}
