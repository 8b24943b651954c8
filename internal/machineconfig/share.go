package machineconfig

import (
	"maps"
	"slices"

	"go.yaml.in/yaml/v4"
)

// SharedPatches tells what all nodes have in common from what each has alone: shared belongs to the cluster or group,
// own to the machine, and shared applies first. The patches of a node come from DerivePatches. Those of the main
// document are taken apart field by field, all others are compared as a whole. Of a single node, it is unknown what is
// common, so all of its patches are its own. Nodes without patches of their own are not in the map.
//
// As the patches may hold secrets, so may the result: it belongs into Secrets.
func SharedPatches(perNode map[string][]string) (shared []string, own map[string][]string) {
	nodes := slices.Sorted(maps.Keys(perNode))
	pieces := make(map[string][]piece, len(nodes))
	owners := map[string]map[string]bool{}

	for _, node := range nodes {
		pieces[node] = piecesOf(perNode[node])

		for _, p := range pieces[node] {
			if owners[p.text] == nil {
				owners[p.text] = map[string]bool{}
			}

			owners[p.text][node] = true
		}
	}

	own = map[string][]string{}

	for i, node := range nodes {
		var common, alone []piece

		for _, p := range pieces[node] {
			if len(nodes) > 1 && len(owners[p.text]) == len(nodes) {
				common = append(common, p)
			} else {
				alone = append(alone, p)
			}
		}

		// All nodes have the same ones.
		if i == 0 {
			shared = textsOf(common)
		}

		if texts := textsOf(alone); len(texts) > 0 {
			own[node] = texts
		}
	}

	return shared, own
}

// piece is a patch that is not worth taking apart further. Its text tells it from others.
type piece struct {
	text string
	// edit is set for a piece of the main document.
	edit *edit
}

func piecesOf(patches []string) []piece {
	var (
		out   []piece
		mains int
	)

	for _, text := range patches {
		docs := mainDocuments(text)
		if docs == nil {
			out = append(out, piece{text: text})

			continue
		}

		mains++

		for _, e := range readEdits(docs) {
			one, err := patchText([]edit{e})
			if err != nil {
				return wholePieces(patches)
			}

			out = append(out, piece{text: one, edit: &e})
		}
	}

	// One that builds on another cannot be taken apart. DerivePatches writes one only.
	if mains > 1 {
		return wholePieces(patches)
	}

	return out
}

func wholePieces(patches []string) []piece {
	out := make([]piece, 0, len(patches))
	for _, text := range patches {
		out = append(out, piece{text: text})
	}

	return out
}

// mainDocuments is nil for a patch that changes anything but the main document.
func mainDocuments(text string) []document {
	docs, err := splitDocuments([]byte(text))
	if err != nil || slices.ContainsFunc(docs, func(d document) bool {
		return !d.isMain() || d.hasOperations() || hasAlias(d.node)
	}) {
		return nil
	}

	return docs
}

// textsOf puts the edits of the main document into one patch again.
func textsOf(pieces []piece) []string {
	var (
		out   []string
		edits []edit
	)

	for _, p := range pieces {
		if p.edit != nil {
			edits = append(edits, *p.edit)
		} else {
			out = append(out, p.text)
		}
	}

	if text, err := patchText(edits); err == nil && text != "" {
		out = append(out, text)
	}

	return out
}

// auditPolicy is replaced as a whole where everything else is merged, so it must not be taken apart.
var auditPolicy = []string{"cluster", "apiServer", "auditPolicy"}

// readEdits takes a patch of the main document apart, down to single fields. What is removed and set in one patch stays
// together.
func readEdits(docs []document) []edit {
	var out []edit

	indexOf := func(path []string) int {
		return slices.IndexFunc(out, func(e edit) bool { return slices.Equal(e.path, path) })
	}

	isWhole := func(path []string) bool { return indexOf(path) >= 0 || slices.Equal(path, auditPolicy) }

	for _, doc := range docs {
		walkPatch(doc.node, nil, isWhole, func(e edit) {
			if at := indexOf(e.path); at >= 0 {
				out[at].set = e.set
			} else {
				out = append(out, e)
			}
		})
	}

	return out
}

func walkPatch(node *yaml.Node, path []string, isWhole func([]string) bool, found func(edit)) {
	for i := 0; i+1 < len(node.Content); i += 2 {
		value := node.Content[i+1]
		at := append(slices.Clone(path), node.Content[i].Value)

		switch {
		case scalarOf(value, patchKey) == patchDelete:
			found(edit{path: at, remove: true})
		case value.Kind == yaml.SequenceNode && slices.ContainsFunc(value.Content, isDeletion):
			found(edit{path: at, drop: value.Content})
		case value.Kind == yaml.MappingNode && len(value.Content) > 0 && !isWhole(at):
			walkPatch(value, at, isWhole, found)
		default:
			found(edit{path: at, set: value})
		}
	}
}

func isDeletion(node *yaml.Node) bool { return scalarOf(node, patchKey) == patchDelete }
