package backup

import (
	"fmt"
	"strings"

	"filippo.io/age"

	"github.com/talos-operator/talos-operator/internal/failure"
)

// ParseRecipients parses age public keys. One value may contain several, one per line, with comments, as in files for
// age.
func ParseRecipients(values []string) ([]age.Recipient, error) {
	var recipients []age.Recipient

	for i, value := range values {
		parsed, err := age.ParseRecipients(strings.NewReader(value))
		if err != nil {
			// A private key may have been given by mistake, so the error does not quote the value.
			return nil, failure.Terminal(ReasonRecipients,
				fmt.Sprintf("recipient %d is no age public key (age1...)", i+1), nil)
		}

		recipients = append(recipients, parsed...)
	}

	return recipients, nil
}

// ParseIdentities parses age private keys. One value may contain several, one per line, with comments, as age-keygen
// writes them.
func ParseIdentities(values []string) ([]age.Identity, error) {
	var identities []age.Identity

	for i, value := range values {
		parsed, err := age.ParseIdentities(strings.NewReader(value))
		if err != nil {
			// The cause would quote the key.
			return nil, failure.Terminal(ReasonIdentity,
				fmt.Sprintf("identity %d is no age private key (AGE-SECRET-KEY-1...)", i+1), nil)
		}

		identities = append(identities, parsed...)
	}

	return identities, nil
}
