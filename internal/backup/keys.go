package backup

import (
	"fmt"
	"strings"

	"filippo.io/age"

	"github.com/talos-operator/talos-operator/internal/failure"
)

// ParseRecipients reads age public keys. One value may hold several, one a line, with comments, as files for age do.
func ParseRecipients(values []string) ([]age.Recipient, error) {
	var recipients []age.Recipient

	for i, value := range values {
		parsed, err := age.ParseRecipients(strings.NewReader(value))
		if err != nil {
			// Somebody may have put a private key here: nothing of it is repeated.
			return nil, failure.Terminal(ReasonRecipients,
				fmt.Sprintf("recipient %d is no age public key (age1...)", i+1), nil)
		}

		recipients = append(recipients, parsed...)
	}

	return recipients, nil
}

// ParseIdentities reads age private keys. One value may hold several, one a line, with comments, as age-keygen writes
// them.
func ParseIdentities(values []string) ([]age.Identity, error) {
	var identities []age.Identity

	for i, value := range values {
		parsed, err := age.ParseIdentities(strings.NewReader(value))
		if err != nil {
			// The cause would quote it.
			return nil, failure.Terminal(ReasonIdentity,
				fmt.Sprintf("identity %d is no age private key (AGE-SECRET-KEY-1...)", i+1), nil)
		}

		identities = append(identities, parsed...)
	}

	return identities, nil
}
