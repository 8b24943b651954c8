package node

import "io"

// CutSnapshots ends each snapshot after so many bytes as if it were complete, as a real node does when it fails to read
// its database half way. Zero ends that.
func (n *Node) CutSnapshots(after int64) { n.snapshotCut.Store(after) }

func (n *Node) cut(r io.Reader) io.Reader {
	if after := n.snapshotCut.Load(); after > 0 {
		return io.LimitReader(r, after)
	}

	return r
}
