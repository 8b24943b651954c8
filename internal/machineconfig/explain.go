package machineconfig

import (
	"maps"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config"
)

// Layer is a part of what decides a config, with its input: that of the layers before it, and its own.
type Layer struct {
	// Name is how Origin.Layer calls it.
	Name string
	// Input of the render. Its patches are ignored.
	Input Input
}

// Origin says which layer set a field of a config.
type Origin struct {
	// Field, as Change.Field writes it.
	Field string
	// Value is a short rendering; secrets are replaced, unless they were asked for.
	Value string
	// Layer is the name of the last one that changed the value, or of a patch: cluster[0], from Secret s, key k (group).
	Layer string
}

// Explain tells for each field of a rendered config which layer set it, sorted by field. The last layer is what is
// rendered; its patches follow it in their order. An item of a list counts as set by the layer that changed what is at
// its place. hidden are further fields whose values are secret. The error is one of Render.
func Explain(layers []Layer, hidden []string, withSecrets bool) ([]Origin, error) {
	e := explanation{origins: map[string]map[string]string{}}

	var base config.Provider

	for _, l := range layers {
		var err error
		if base, err = generateBase(l.Input); err != nil {
			return nil, err
		}

		if err := e.follow(l.Name, &draft{known: base}); err != nil {
			return nil, err
		}
	}

	in := layers[len(layers)-1].Input

	patches, err := parsePatches(in.Patches)
	if err != nil {
		return nil, newScrubber(in).patchError(err)
	}

	check := keepsKubePrism(in, base)

	d, err := applyEach(base, patches, func(p patch, d *draft) error {
		if err := check(p, d); err != nil {
			return err
		}

		return e.follow(strings.TrimPrefix(p.name(), "from "), d)
	})
	if err != nil {
		return nil, newScrubber(in).patchError(err)
	}

	return e.list(slices.Concat(hiddenOf(in, d), hidden), withSecrets), nil
}

// explanation follows a config from layer to layer.
type explanation struct {
	views map[string]parsed
	// origins are the layers by document and path.
	origins map[string]map[string]string
}

// follow attributes to a layer what it changed.
func (e *explanation) follow(layer string, d *draft) error {
	raw, err := d.bytes()
	if err != nil {
		return err
	}

	now, err := viewsOf(raw)
	if err != nil {
		return err
	}

	for id, doc := range now {
		values := doc.comparable(doc)
		before := e.views[id].comparable(e.views[id])
		origins := map[string]string{}

		for path, value := range values {
			origins[path] = layer
			if old, had := before[path]; had && old == value {
				origins[path] = e.origins[id][path]
			}
		}

		e.origins[id] = origins
	}

	e.views = now

	return nil
}

func (e *explanation) list(hidden []string, withSecrets bool) []Origin {
	var out []Origin

	render := shower(show)
	if withSecrets {
		render = showAll
	}

	for _, id := range slices.Sorted(maps.Keys(e.views)) {
		doc := e.views[id]
		values, secret := doc.comparable(doc), doc.secrets(id, hidden)

		for _, path := range slices.Sorted(maps.Keys(values)) {
			out = append(out, Origin{
				Field: Change{Document: id, Path: path}.Field(),
				Value: render(values[path], true, secret(path), longestOf(path)), Layer: e.origins[id][path],
			})
		}
	}

	return out
}
