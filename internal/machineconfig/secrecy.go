package machineconfig

import (
	"maps"
	"slices"
	"strings"
)

// SplitSecrets takes patches apart into what may stand in the open, in a spec for example, and what may hold a secret.
// Those of the main document are taken apart field by field, as SharedPatches does. In doubt a patch is secret: what
// the library calls one, what is called like one, keys, long texts, and documents that are unknown here.
func SplitSecrets(patches []string) (open, secret []string) {
	var openPieces, secretPieces []piece

	for _, p := range piecesOf(patches) {
		if mayHoldSecret(p.text) {
			secretPieces = append(secretPieces, p)
		} else {
			openPieces = append(openPieces, p)
		}
	}

	return textsOf(openPieces), textsOf(secretPieces)
}

// longestOpen is the longest text that is taken for a setting; longer ones are files, manifests and certificates.
const longestOpen = 256

func mayHoldSecret(patch string) bool {
	docs, err := splitDocuments([]byte(patch))

	return err != nil || slices.ContainsFunc(docs, document.mayHoldSecret)
}

func (d document) mayHoldSecret() bool {
	if !d.isKnown() || d.hasOperations() || hasAlias(d.node) {
		return true
	}

	values, err := flatten(d.node)
	if err != nil {
		return true
	}

	for path, value := range values {
		if strings.HasSuffix(path, patchKey) {
			continue
		}

		if isSensitive(path) || len(value) > longestOpen || strings.Contains(value, "\n") ||
			show(value, true, false, longestOpen) != value && value != "" {
			return true
		}
	}

	// A patch need not be a document that the library can read by itself; what it names was checked above.
	typed, cfg := typedView(d)
	isSecret := parsed{typed: typed, cfg: cfg}.isSecret()

	return cfg != nil && slices.ContainsFunc(slices.Collect(maps.Keys(typed)), isSecret)
}
