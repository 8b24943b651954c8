package quorum

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"time"

	"github.com/siderolabs/crypto/x509"

	"github.com/talos-operator/talos-operator/lab/node/disk"
)

// View is one cluster of a Model from outside, at a moment.
type View struct {
	ID uint64
	// Authority is the fingerprint of the CA of etcd: clusters with the same one belong to one PKI.
	Authority string
	Members   []MemberView
	// Writes are the values that the cluster has acknowledged.
	Writes []string
}

// MemberView is one line of a member list, and what is true of that member.
type MemberView struct {
	ID      uint64
	Name    string
	Learner bool
	// Dir is where the member keeps its data, Data says that they are still there.
	Dir  string
	Data bool
	// Serving: it runs and can be reached. Since is when that began or ended.
	Serving bool
	Since   time.Time
}

// Founding is the first moment of a new cluster.
type Founding struct {
	Cluster uint64
	// Dir is where its first member keeps its data.
	Dir string
	// Others are the clusters of the same PKI that there were before.
	Others []View
}

// Clusters lists all clusters that there ever were.
func (m *Model) Clusters() []View {
	m.mu.Lock()
	defer m.mu.Unlock()

	list := make([]View, 0, len(m.clusters))
	for _, c := range m.clusters {
		list = append(list, c.view())
	}

	return list
}

// Founded calls a function with every cluster that is founded from now on, and with what there was before it, until
// cancel is called.
func (m *Model) Founded(fn func(Founding)) (cancel func()) {
	m.mu.Lock()
	defer m.mu.Unlock()

	id := m.nextID
	m.nextID++
	m.founded[id] = fn

	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()

		delete(m.founded, id)
	}
}

// Lag keeps the member at an address so many entries behind the others, until it is zero.
func (m *Model) Lag(address string, entries uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()

	m.lags[address] = entries
	for _, c := range m.clusters { // no member has less than nothing
		c.index += entries
	}
}

// Write writes a value to a cluster. It is kept where the answer is true, and is not where it is false.
func (m *Model) Write(cluster uint64, value string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()

	c := m.clusters[cluster]
	if c == nil || !c.hasQuorum() {
		return false
	}

	c.index++
	c.writes = append(c.writes, value)

	return true
}

// listOf returns the clusters of one PKI; the caller holds the lock.
func (m *Model) listOf(authority string) []View {
	var list []View

	for _, c := range m.clusters {
		if c.authority == authority {
			list = append(list, c.view())
		}
	}

	return list
}

func (c *modelCluster) view() View {
	v := View{ID: c.id, Authority: c.authority, Writes: slices.Clone(c.writes)}

	for _, e := range c.members {
		v.Members = append(v.Members, MemberView{
			ID: e.ID, Name: e.Name, Learner: e.Learner, Dir: e.dir, Data: c.holds(e),
			Serving: e.running != nil && !e.running.frozen, Since: e.since,
		})
	}

	return v
}

// holds tells whether the data of a member are still on its disk.
func (c *modelCluster) holds(e *modelEntry) bool {
	data := modelData{}
	found, err := disk.ReadJSON(modelFile(e.dir), &data)

	return err == nil && found && data.Cluster == c.id && data.Member == e.ID
}

func authority(ca *x509.PEMEncodedCertificateAndKey) string {
	if ca == nil {
		return ""
	}

	sum := sha256.Sum256(ca.Crt)

	return hex.EncodeToString(sum[:])
}
