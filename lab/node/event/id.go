package event

import (
	"cmp"
	"crypto/rand"
	"encoding/base32"
	"encoding/binary"
	"errors"
	"sync/atomic"
	"time"
)

// idEncoding is the alphabet of a Talos event ID: lower case base32hex without padding.
var idEncoding = base32.NewEncoding("0123456789abcdefghijklmnopqrstuv").WithPadding(base32.NoPadding)

// ErrInvalidID says that a text is no event ID.
var ErrInvalidID = errors.New("xid: invalid ID")

// ID identifies one event: seconds, a part that is the same for a whole boot, and a counter. IDs of one boot
// sort by the order of their events, which is what tail_id relies on.
type ID [12]byte

// Generator makes the IDs of one boot.
type Generator struct {
	node    [5]byte
	counter atomic.Uint32
}

// NewGenerator returns a generator with a random start.
func NewGenerator() *Generator {
	g := &Generator{}

	var seed [8]byte

	_, _ = rand.Read(seed[:]) // crypto/rand.Read never fails
	copy(g.node[:], seed[:5])
	g.counter.Store(binary.BigEndian.Uint32([]byte{0, 0, seed[5], seed[6]}))

	return g
}

// New returns the next ID.
func (g *Generator) New(now time.Time) ID {
	var id ID

	binary.BigEndian.PutUint32(id[:4], uint32(now.Unix()))
	copy(id[4:9], g.node[:])

	var count [4]byte

	binary.BigEndian.PutUint32(count[:], g.counter.Add(1))
	copy(id[9:], count[1:])

	return id
}

// ParseID reads an ID in its text form.
func ParseID(text string) (ID, error) {
	var id ID

	if len(text) != idEncoding.EncodedLen(len(id)) {
		return id, ErrInvalidID
	}

	if _, err := idEncoding.Decode(id[:], []byte(text)); err != nil {
		return id, ErrInvalidID
	}

	return id, nil
}

// String returns the text form.
func (id ID) String() string { return idEncoding.EncodeToString(id[:]) }

// Compare orders IDs as text does.
func (id ID) Compare(other ID) int { return cmp.Compare(string(id[:]), string(other[:])) }

// Time returns the second in which the ID was made.
func (id ID) Time() time.Time {
	return time.Unix(int64(binary.BigEndian.Uint32(id[:4])), 0)
}
