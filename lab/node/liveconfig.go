package node

// LiveConfig returns the machine config that a machine runs: empty where it has none, and ok is false while the machine
// is off.
func (n *Node) LiveConfig() (raw []byte, ok bool) {
	s := n.current()
	if s == nil {
		return nil, false
	}

	cfg, complete := s.complete()
	if !complete {
		return nil, true
	}

	raw, err := cfg.Bytes()

	return raw, err == nil
}
