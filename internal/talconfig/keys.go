package talconfig

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"filippo.io/age"
)

// AgeKeys reads the private keys that sops would use: from SOPS_AGE_KEY, the file SOPS_AGE_KEY_FILE, and
// sops/age/keys.txt in the user's folder for configuration. None is no error.
func AgeKeys(getenv func(string) string) ([]age.Identity, error) {
	var out []age.Identity

	if text := getenv("SOPS_AGE_KEY"); text != "" {
		keys, err := age.ParseIdentities(strings.NewReader(text))
		if err != nil {
			return nil, errors.New("SOPS_AGE_KEY has no age key")
		}

		out = append(out, keys...)
	}

	path, named := getenv("SOPS_AGE_KEY_FILE"), true
	if path == "" {
		named = false

		dir, err := os.UserConfigDir()
		if err != nil {
			return out, nil
		}

		path = filepath.Join(dir, "sops", "age", "keys.txt")
	}

	file, err := os.Open(path)

	switch {
	case errors.Is(err, fs.ErrNotExist) && !named:
		return out, nil
	case err != nil:
		return nil, fmt.Errorf("reading age keys: %w", err)
	}
	defer file.Close()

	keys, err := age.ParseIdentities(file)
	if err != nil {
		return nil, fmt.Errorf("reading age keys: %s has no age keys, one a line", path)
	}

	return append(out, keys...), nil
}
