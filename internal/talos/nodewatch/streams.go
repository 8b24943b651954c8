package nodewatch

// Streams is the state of all streams of one mode.
type Streams struct {
	// Open streams are up, Closed ones are being opened, or will be opened again.
	Open, Closed int
	// Lost counts the streams that were open and ended by themselves since the start of the operator. Each is opened
	// again.
	Lost int64
}

// Streams returns the state of the streams per mode.
func (w *Watcher) Streams() map[Mode]Streams {
	w.mu.Lock()
	defer w.mu.Unlock()

	out := map[Mode]Streams{}

	for mode, lost := range w.lost {
		s := Streams{Lost: lost}

		for _, n := range w.nodes {
			switch {
			case n.target.Mode != Mode(mode):
			case n.snapshot.Reachable:
				s.Open++
			default:
				s.Closed++
			}
		}

		out[Mode(mode)] = s
	}

	return out
}
