package verify

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"strconv"
	"time"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"google.golang.org/protobuf/proto"
)

const (
	// openTimeout is the timeout for the file lock, which no other process should hold.
	openTimeout = 5 * time.Second
	// toldErrors is the maximum number of reported structural faults.
	toldErrors = 3
	// revisionSize is the size of a key in the bucket "key"; a tombstone has one byte more.
	revisionSize = 17
)

// inspect opens a database and reads all of it. It walks the database like `etcdutl snapshot status`, whose own errors
// quote keys and values. A single walk computes the hash and collects the Kubernetes objects.
func inspect(path string) (*findings, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("opening the database: %w", err)
	}

	db, err := bolt.Open(path, 0o400, &bolt.Options{ReadOnly: true, Timeout: openTimeout})
	if err != nil {
		return nil, problem("it is no bolt database: %v", err)
	}
	defer db.Close()

	f := &findings{}

	err = db.View(func(tx *bolt.Tx) error {
		// Reading data that is missing at the end of the file crashes the process.
		if tx.Size() > info.Size() {
			return problem("it ends after %d of %d bytes", info.Size(), tx.Size())
		}

		if err := checkStructure(tx); err != nil {
			return err
		}

		w := &walk{sum: crc32.MakeTable(crc32.Castagnoli), objects: newObjects()}
		if err := w.buckets(tx); err != nil {
			return err
		}

		f.Database, f.Kubernetes = w.result(tx), w.objects.result()
		_, f.Nameless = w.objects.live[""]

		return nil
	})
	if err != nil {
		return nil, err
	}

	return f, nil
}

// checkStructure runs bolt's own check of all pages. It reads the results to the end, because the check has a
// goroutine.
func checkStructure(tx *bolt.Tx) error {
	var (
		count int
		told  []error
	)

	for err := range tx.Check() {
		if count++; count <= toldErrors {
			told = append(told, err)
		}
	}

	if count > 0 {
		return problem("its structure has %d errors: %v", count, errors.Join(told...))
	}

	for _, name := range [][]byte{schema.Key.Name(), schema.Meta.Name()} {
		if tx.Bucket(name) == nil {
			return problem("it is no etcd database: the bucket %s is missing", name)
		}
	}

	return nil
}

// walk visits everything in the database.
type walk struct {
	sum      *crc32.Table
	hash     uint32
	revision int64
	objects  *objects
}

func (w *walk) write(b []byte) { w.hash = crc32.Update(w.hash, w.sum, b) }

func (w *walk) buckets(tx *bolt.Tx) error {
	return tx.ForEach(func(name []byte, b *bolt.Bucket) error {
		w.write(name)

		keys := bytes.Equal(name, schema.Key.Name())

		return b.ForEach(func(k, v []byte) error {
			w.write(k)
			w.write(v)

			if keys {
				return w.key(k, v)
			}

			return nil
		})
	})
}

// key handles one revision of a key. They are visited in the order in which they were written.
func (w *walk) key(k, v []byte) error {
	if !isRevision(k) {
		return problem("a revision in it is malformed")
	}

	w.revision = mvcc.BytesToRev(k).Main

	var kv mvccpb.KeyValue
	if err := proto.Unmarshal(v, &kv); err != nil {
		return problem("revision %d in it is malformed", w.revision)
	}

	if mvcc.IsTombstone(k) {
		w.objects.remove(string(kv.GetKey()))
	} else {
		w.objects.put(string(kv.GetKey()), kv.GetValue())
	}

	return nil
}

// isRevision reports whether etcd's own decoder, which panics, accepts the key: two non-negative numbers with a
// separator, and optionally the mark of a tombstone.
func isRevision(k []byte) bool {
	const sign = revisionSize / 2

	return (len(k) == revisionSize || len(k) == revisionSize+1 && mvcc.IsTombstone(k)) &&
		k[0] < 0x80 && k[sign] == '_' && k[sign+1] < 0x80
}

func (w *walk) result(tx *bolt.Tx) *DatabaseReport {
	d := &DatabaseReport{
		Hash: fmt.Sprintf("%08x", w.hash), Revision: w.revision, TotalKeys: w.objects.total(), TotalSize: tx.Size(),
		Members: members(tx),
	}

	if v := schema.ReadStorageVersionFromSnapshot(tx); v != nil {
		d.StorageVersion = v.String()
	}

	return d
}

// members returns the members that the database names. Invalid ones are omitted: they are no reason to doubt the rest.
func members(tx *bolt.Tx) []Member {
	b := tx.Bucket(schema.Members.Name())
	if b == nil {
		return nil
	}

	var list []Member

	_ = b.ForEach(func(k, v []byte) error { // the function returns no error
		var m struct {
			Name string `json:"name"`
		}

		id, err := strconv.ParseUint(string(k), 16, 64)
		if err != nil || json.Unmarshal(v, &m) != nil || len(list) == maxMembers {
			return nil
		}

		if !nameText.MatchString(m.Name) {
			m.Name = ""
		}

		list = append(list, Member{ID: strconv.FormatUint(id, 16), Name: m.Name})

		return nil
	})

	return list
}
