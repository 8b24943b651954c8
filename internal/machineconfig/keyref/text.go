package keyref

import (
	"regexp"
	"strconv"
	"strings"
)

// Userinfo is what stands before the host of a URL, with what separates it from both: credentials.
var Userinfo = regexp.MustCompile(`://[^/@\s]*@`)

// WithoutUser returns an address without the credentials that it may hold, for people.
func WithoutUser(text string) string {
	if at := strings.LastIndex(text, "@"); at >= 0 {
		return "…" + text[at:]
	}

	return text
}

var plainKey = regexp.MustCompile(`^[A-Za-z0-9_$-]+$`)

// JoinPath appends a key of a mapping to the path of a field, as differences write it. prefix may be empty.
func JoinPath(prefix, key string) string {
	switch {
	case !plainKey.MatchString(key):
		return prefix + "[" + strconv.Quote(key) + "]"
	case prefix == "":
		return key
	default:
		return prefix + "." + key
	}
}
