package main

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
)

//go:embed explained.json
var explainedFile []byte

// explanation says why one mutant may survive. Two mutants of a function with the same code need two of them.
type explanation struct {
	File   string `json:"file"`
	Func   string `json:"func"`
	Change string `json:"change"`
	Code   string `json:"code"`
	Why    string `json:"why"`

	used bool
}

// words are a function that decides nothing: it words messages. It is not mutated.
type words struct {
	File string `json:"file"`
	Func string `json:"func"`
}

// explanations are those of one package.
type explanations struct {
	Words     []words        `json:"words"`
	Survivors []*explanation `json:"survivors"`

	mu sync.Mutex
}

// readExplained returns the explanations by the folder of their package.
func readExplained() (map[string]*explanations, error) {
	var out map[string]*explanations
	if err := json.Unmarshal(explainedFile, &out); err != nil {
		return nil, fmt.Errorf("reading explained.json: %w", err)
	}

	for _, t := range targets {
		if out[t.dir] == nil {
			out[t.dir] = &explanations{}
		}
	}

	return out, nil
}

func (e *explanations) worded(file, function string) bool {
	return slices.Contains(e.Words, words{File: file, Func: function})
}

// why says why a mutant may survive; empty if no explanation is left for it.
func (e *explanations) why(m mutant) string {
	e.mu.Lock()
	defer e.mu.Unlock()

	for _, x := range e.Survivors {
		if !x.used && x.File == m.File && x.Func == m.Func && x.Change == m.Change && x.Code == m.Code {
			x.used = true

			return x.Why
		}
	}

	return ""
}

// unused are the explanations of what does not survive.
func (e *explanations) unused() []string {
	var out []string

	for _, x := range e.Survivors {
		if !x.used {
			out = append(out, fmt.Sprintf("%s %s: %s %s", x.File, x.Func, x.Change, x.Code))
		}
	}

	return out
}
