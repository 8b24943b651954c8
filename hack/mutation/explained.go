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

// explanation says why a mutant may survive.
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

// explanations are all of them.
type explanations struct {
	Words     []words        `json:"words"`
	Survivors []*explanation `json:"survivors"`

	mu sync.Mutex
}

func readExplained() (*explanations, error) {
	var out explanations
	if err := json.Unmarshal(explainedFile, &out); err != nil {
		return nil, fmt.Errorf("reading explained.json: %w", err)
	}

	return &out, nil
}

func (e *explanations) worded(file, function string) bool {
	return slices.Contains(e.Words, words{File: file, Func: function})
}

// why says why a mutant may survive; empty when nobody has said so.
func (e *explanations) why(m mutant) string {
	e.mu.Lock()
	defer e.mu.Unlock()

	for _, x := range e.Survivors {
		if x.File == m.File && x.Func == m.Func && x.Change == m.Change && x.Code == m.Code {
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
