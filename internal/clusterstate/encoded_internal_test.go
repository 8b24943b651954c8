package clusterstate

import (
	"maps"
	"testing"
	"time"
)

// TestIsEncodedAs: what was read and not changed needs no write; every change does, and so does another bundle.
func TestIsEncodedAs(t *testing.T) {
	made := func() *State {
		b, err := NewBundle(Options{TalosVersion: "v1.13.9", Now: time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)})
		if err != nil {
			t.Fatal(err)
		}

		return NewState(b, BundleConfig{ClusterName: "c"}, "uid")
	}

	data, err := made().Encode()
	if err != nil {
		t.Fatal(err)
	}

	read := func() *State {
		s, err := Decode(data)
		if err != nil {
			t.Fatal(err)
		}

		return s
	}

	if !read().IsEncodedAs(data) {
		t.Error("an unchanged state is not what it was read from")
	}

	for name, change := range map[string]func(*State){
		"runtime": func(s *State) { s.Runtime.Machines = map[string]Machine{"m": {}} },
		"config":  func(s *State) { s.Config = []byte("x") },
		"version": func(s *State) { s.ObservedKubeVersion = "v1.36.2" },
		"bundle":  func(s *State) { s.Bundle = made().Bundle },
		"none":    func(s *State) { s.Bundle = nil },
	} {
		s := read()
		change(s)

		if s.IsEncodedAs(data) {
			t.Errorf("%s: a change goes unnoticed", name)
		}
	}

	more := maps.Clone(data)
	more["extra"] = nil

	if read().IsEncodedAs(more) {
		t.Error("a key too much goes unnoticed")
	}
}
