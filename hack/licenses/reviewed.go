package main

// reviewed are the licences of modules whose LICENSE files were read, because they name more than what is linked, or
// are in words of their own. The reason stands beside each.
var reviewed = map[string][]string{
	// LICENSE.docs, under CC-BY-SA-4.0, is that of its documentation, which no program contains.
	"github.com/opencontainers/go-digest": {"Apache-2.0"},
}
