package backup_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/talos-operator/talos-operator/internal/backup"
)

// FuzzKeys: a file with age keys is read whole, or refused without a word of it: it may be a private key in the place
// of a public one.
func FuzzKeys(f *testing.F) {
	const (
		public  = "age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p"
		private = "AGE-SECRET-KEY-1GFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPQ4EGAEX"
	)

	f.Add("# a comment\n" + public + "\n")
	f.Add(private)
	f.Add(public + "\n" + private)
	f.Add(strings.ToUpper(public))
	f.Add("age1" + strings.Repeat("q", 5000))
	f.Add("")

	refusals := []string{
		"recipient 1 is no age public key (age1...)", "identity 1 is no age private key (AGE-SECRET-KEY-1...)",
	}

	f.Fuzz(func(t *testing.T, text string) {
		recipients, refused := backup.ParseRecipients([]string{text})
		if refused != nil && !strings.HasSuffix(refused.Error(), refusals[0]) {
			t.Errorf("the error has more than the number of the value: %v", refused)
		}

		for _, r := range recipients {
			shown := fmt.Sprint(r)

			again, err := backup.ParseRecipients([]string{shown})
			if err != nil || len(again) != 1 || fmt.Sprint(again[0]) != shown {
				t.Errorf("%q is read as %v: %v", shown, again, err)
			}
		}

		if _, err := backup.ParseIdentities([]string{text}); err != nil && !strings.HasSuffix(err.Error(), refusals[1]) {
			t.Errorf("the error has more than the number of the value: %v", err)
		}
	})
}
