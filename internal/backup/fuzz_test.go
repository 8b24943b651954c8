package backup_test

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"filippo.io/age"
	"github.com/klauspost/compress/zstd"

	"github.com/talos-operator/talos-operator/internal/backup"
	"github.com/talos-operator/talos-operator/internal/failure"
)

// FuzzReadState feeds anything to the reader of state Secrets: a Secret or an error, which quotes nothing of it.
func FuzzReadState(f *testing.F) {
	good, err := json.Marshal(request(nil).State)
	if err != nil {
		f.Fatal(err)
	}

	f.Add([]byte(strings.Replace(string(good), `{`, `{"apiVersion":"v1","kind":"Secret",`, 1)))
	f.Add([]byte(`{"apiVersion":"v1","kind":"Secret","data":{"a":"aHVzaCBodXNo"}}`))
	f.Add([]byte(`{"apiVersion":"v1","kind":"Secret","data":{"a":"hush hush"}}`))
	f.Add([]byte(`{"apiVersion":"v1","kind":"Secret","data":{"a":"aHVzaA=="}}{}`))
	f.Add([]byte(`{"apiVersion":"v1","kind":"Secret","stringData":{"a":"hush"}}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		s := directory(t)
		overwrite(t, s, "state.json", content)

		secret, err := backup.ReadState(t.Context(), s, backup.Read{Key: "state.json"})
		if err == nil && (secret.Kind != "Secret" || len(secret.Data) == 0) {
			t.Errorf("accepted %+v", secret)
		}

		if err != nil && (failure.Reason(err) == "" || strings.Contains(err.Error(), "hush")) {
			t.Errorf("unclassified, or it quotes: %v", err)
		}
	})
}

// FuzzReadEncrypted feeds anything that was encrypted for us to the layers below: there it is a stranger's file.
func FuzzReadEncrypted(f *testing.F) {
	id, err := age.GenerateX25519Identity()
	if err != nil {
		f.Fatal(err)
	}

	z, err := zstd.NewWriter(nil)
	if err != nil {
		f.Fatal(err)
	}

	snapshot := madeSnapshot(3)
	f.Add(snapshot, 0)
	f.Add(z.EncodeAll(snapshot, nil), 0)
	f.Add(z.EncodeAll(snapshot, nil), 300)
	f.Add(z.EncodeAll(z.EncodeAll(snapshot, nil), nil), 0)
	f.Add([]byte("age-encryption.org/v1\n-> X25519 x\n"), 0)
	f.Fuzz(func(t *testing.T, content []byte, cut int) {
		var b bytes.Buffer

		w, err := age.Encrypt(&b, id.Recipient())
		if err != nil {
			t.Fatal(err)
		}

		w.Write(content)
		w.Close()

		stored := b.Bytes()
		stored = stored[:len(stored)-min(max(cut, 0), len(stored))]

		s := directory(t)
		overwrite(t, s, "f.snap.age", stored)

		var out bytes.Buffer

		c, err := backup.ReadSnapshot(t.Context(), s,
			backup.Read{Key: "f.snap.age", Limit: 1 << 20, Identities: []age.Identity{id}}, io.Writer(&out))
		if err == nil && (c.PlainSize != int64(out.Len()) || c.PlainSize > 1<<20 || cut > 0 && c.Encrypted) {
			t.Errorf("%+v, %d bytes", c, out.Len())
		}
	})
}
