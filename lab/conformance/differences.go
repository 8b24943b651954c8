package conformance

import (
	"fmt"
	"path"
	"slices"
	"sync"

	"go.yaml.in/yaml/v4"
)

// differences are the places where the lab is allowed not to answer as recorded, because the recordings were made on a
// platform that the lab does not emulate.
type differences struct {
	Calls     []*callDifference     `yaml:"calls"`
	Resources []*resourceDifference `yaml:"resources"`

	mu sync.Mutex
}

// callDifference allows another code for one call.
type callDifference struct {
	Method   string   `yaml:"method"`
	States   []string `yaml:"states"` // empty: all
	Recorded []string `yaml:"recorded"`
	Here     []string `yaml:"here"`
	// Power says that the call takes the node down: it is asked last, and the node must do what it says.
	Power  string `yaml:"power"`
	Reason string `yaml:"reason"`

	used bool
}

// resourceDifference allows other identifiers in some types.
type resourceDifference struct {
	Types  []string `yaml:"types"`
	States []string `yaml:"states"` // empty: all
	// More and Fewer are patterns of identifiers that only the lab, or only the recording, shows.
	More   []string `yaml:"more"`
	Fewer  []string `yaml:"fewer"`
	Reason string   `yaml:"reason"`

	used bool
}

func loadDifferences() (*differences, error) {
	data, err := files.ReadFile("differences.yaml")
	if err != nil {
		return nil, fmt.Errorf("reading the list of differences: %w", err)
	}

	d := &differences{}
	if err := yaml.Unmarshal(data, d); err != nil {
		return nil, fmt.Errorf("parsing the list of differences: %w", err)
	}

	return d, nil
}

// call returns the entry about a call in a state, if there is one.
func (d *differences) call(state, method, recorded string) *callDifference {
	for _, c := range d.Calls {
		if c.Method == method && applies(c.States, state) && slices.Contains(c.Recorded, recorded) {
			return c
		}
	}

	return nil
}

// allowsCall reports whether an entry covers the code that came instead of the recorded one.
func (d *differences) allowsCall(state, method, recorded, got string) bool {
	c := d.call(state, method, recorded)
	if c == nil || !slices.Contains(c.Here, got) {
		return false
	}

	d.mu.Lock()
	defer d.mu.Unlock()

	c.used = true

	return true
}

// allowsID reports whether an entry covers an identifier that only one side shows.
func (d *differences) allowsID(state, typ, id string, more bool) bool {
	d.mu.Lock()
	defer d.mu.Unlock()

	for _, r := range d.Resources {
		patterns := r.Fewer
		if more {
			patterns = r.More
		}

		if slices.Contains(r.Types, typ) && applies(r.States, state) && matchesAny(patterns, id) {
			r.used = true

			return true
		}
	}

	return false
}

// unused lists entries that nothing needed: a difference that is gone must leave the list.
func (d *differences) unused() []string {
	d.mu.Lock()
	defer d.mu.Unlock()

	var stale []string

	for _, c := range d.Calls {
		if !c.used {
			stale = append(stale, "call "+c.Method)
		}
	}

	for _, r := range d.Resources {
		if !r.used {
			stale = append(stale, fmt.Sprintf("resources %v", r.Types))
		}
	}

	return stale
}

func applies(states []string, state string) bool {
	return len(states) == 0 || slices.Contains(states, state)
}

func matchesAny(patterns []string, id string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		if pattern == "*" {
			return true
		}

		ok, err := path.Match(pattern, id)

		return err == nil && ok
	})
}
