package backup

import (
	"context"
	"fmt"
	"io"

	"filippo.io/age"

	"github.com/talos-operator/talos-operator/internal/backup/store"
	"github.com/talos-operator/talos-operator/internal/failure"
)

// suffixDatabase is the suffix of a database that was copied from a node. It is listed like files of other tools and,
// like them, never deleted.
const suffixDatabase = ".db"

// RecipientsOf returns the public keys of identities, to encrypt data that is to be decrypted with them. Identities
// that do not reveal a public key are omitted.
func RecipientsOf(identities []age.Identity) []string {
	var out []string

	for _, identity := range identities {
		switch i := identity.(type) {
		case *age.X25519Identity:
			out = append(out, i.Recipient().String())
		case *age.HybridIdentity:
			out = append(out, i.Recipient().String())
		}
	}

	return out
}

// SaveDatabase stores the database of an etcd that does not run: compressed, and encrypted if there are recipients. It
// has no manifest and is restored by its key. It returns the object. Only the fields of the request that concern the
// stream are used: ID, Cluster, Snapshot, Recipients, AllowUnencrypted and Stall.
func SaveDatabase(ctx context.Context, s store.Store, r Request) (store.Object, error) {
	recipients, err := ParseRecipients(r.Recipients)
	if err != nil {
		return store.Object{}, err
	}

	if len(recipients) == 0 && !r.AllowUnencrypted {
		return store.Object{}, failure.Terminal(ReasonUnencrypted, "there is no recipient to encrypt the copy of the "+
			"database for", nil)
	}

	key := folder(r.Cluster.Name) + r.ID + suffixDatabase + suffixZstd
	if len(recipients) > 0 {
		key += suffixAge
	}

	o, err := s.Put(ctx, key, func(w io.Writer) error {
		e, err := newEncoder(w, CompressionZstd, recipients)
		if err != nil {
			return err
		}

		size := int64(0)

		err = pump(ctx, r.Snapshot, r.stall(), func(p []byte) error {
			size += int64(len(p))
			_, err := e.Write(p)

			return err
		})
		if cerr := e.Close(); err == nil {
			err = cerr
		}

		if err == nil && (size == 0 || size%sectorSize != 0) {
			err = failure.Transient(ReasonTruncated, "the node sent an incomplete database",
				fmt.Errorf("%d bytes are not a multiple of the sector size", size))
		}

		return err
	})
	if err != nil {
		return o, fmt.Errorf("storing the database: %w", err)
	}

	return o, nil
}
