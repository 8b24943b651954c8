package machineconfig

import "slices"

// changeMain finds the edits of the main document. All of the smallest ones at once are enough for most configs; where
// they are not, each is tried by itself and grows until it does what it should.
func (s *derivation) changeMain() error {
	have, want := s.have[""], s.live[""]
	if have.node == nil || want.node == nil {
		s.failed = append(s.failed, "machine")

		return nil
	}

	wanted := have.edits(want)
	if len(wanted) == 0 {
		return nil
	}

	found := wanted

	if next, err := s.apply(wanted); err != nil || len(s.left(next)) > 0 {
		found = s.search()
	}

	if len(s.failed) > 0 {
		return nil
	}

	text, err := patchText(found)
	if err == nil {
		s.patches = append(s.patches, text)
	}

	return err
}

func (s *derivation) apply(edits []edit) ([]byte, error) {
	text, err := patchText(edits)
	if err != nil {
		return nil, err
	}

	return tryPatch(s.now, text)
}

// left lists what still differs; what cannot be read differs as a whole.
func (s *derivation) left(config []byte) []edit {
	trees, err := treesOf(config)
	if err != nil || trees[""].node == nil {
		return []edit{{}}
	}

	return trees[""].edits(s.live[""])
}

// search finds edits one by one.
func (s *derivation) search() []edit {
	var found, failed []edit

	for {
		left := s.left(s.now)

		at := slices.IndexFunc(left, func(e edit) bool {
			return !slices.ContainsFunc(failed, func(f edit) bool { return f.covers(e) })
		})
		if at < 0 {
			return found
		}

		grown, ok := s.grow(left[at], left)
		if !ok {
			failed = append(failed, left[at])
			s.failed = append(s.failed, left[at].field())

			continue
		}

		found = append(slices.DeleteFunc(found, grown.covers), grown)
	}
}

// grow tries an edit, then replaces the field, then what is above it, as far up as the operator owns nothing there: a
// patch must not repeat the PKI to change what stands beside it.
func (s *derivation) grow(e edit, left []edit) (edit, bool) {
	owned, err := ownedFields(s.now)
	if err != nil {
		return e, false
	}

	candidates := []edit{e}

	for depth := len(e.path); depth > 0; depth-- {
		path := e.path[:depth]
		above := replacing(path, valueAt(s.live[""].best(), path))

		isOwned := func(field string) bool { return isUnder(field, above.field()) }
		if depth < len(e.path) && slices.ContainsFunc(owned, isOwned) {
			break
		}

		candidates = append(candidates, above)
	}

	for _, candidate := range candidates {
		next, err := s.apply([]edit{candidate})
		if err != nil || !progress(candidate, left, s.left(next)) {
			continue
		}

		s.now = next

		return candidate, true
	}

	return e, false
}

// progress is true when the edit left nothing to do in its field and broke nothing elsewhere.
func progress(e edit, before, after []edit) bool {
	return !slices.ContainsFunc(after, func(a edit) bool {
		return e.covers(a) || !slices.ContainsFunc(before, func(b edit) bool { return slices.Equal(a.path, b.path) })
	})
}

func ownedFields(config []byte) ([]string, error) {
	d, err := draftOf(config)
	if err != nil {
		return nil, err
	}

	g, err := guardOf(d.known)

	return g.names, err
}
