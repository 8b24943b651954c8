package conformance

import (
	"embed"
	"encoding/json"
	"fmt"
)

//go:embed testdata/*.json differences.yaml
var files embed.FS

// answer is what one call with one role answered.
type answer struct {
	Code    string `json:"code"`
	Message string `json:"message,omitempty"`
}

// calls maps a full method name to role to answer.
type calls map[string]map[string]answer

// recordedCalls returns what a real node in the given state answered.
func recordedCalls(state string) (calls, error) {
	data, err := files.ReadFile("testdata/rpc-" + state + ".json")
	if err != nil {
		return nil, fmt.Errorf("reading the recorded calls: %w", err)
	}

	var recorded calls

	if err := json.Unmarshal(data, &recorded); err != nil {
		return nil, fmt.Errorf("parsing the recorded calls of %s: %w", state, err)
	}

	return recorded, nil
}
