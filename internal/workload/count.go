package workload

import "fmt"

// maxDepth is the maximum nesting of JSON: genuine responses have at most 30 levels, those of managed fields.
const maxDepth = 64

// counter counts the values of JSON text as it arrives, before anything is decoded: `{},` has three bytes, and takes a
// KiB as an object of a list. It does not validate the text, which the decoder does.
type counter struct {
	// maxItems limits the elements of arrays in the top-level object, which are the objects of a list; 0 means no limit.
	maxItems int
	// maxValues limits objects and elements of arrays at all levels.
	maxValues int

	items, values int
	depth         int
	arrays        uint64 // bit i is set if level i is an array
	text, escaped bool
	// empty is true immediately after the beginning of an array.
	empty bool
}

// count processes the next part of the text.
func (c *counter) count(part []byte) error {
	for _, b := range part {
		if c.text {
			c.inText(b)

			continue
		}

		switch b {
		case ' ', '\t', '\r', '\n', ':':
			continue
		case '{', '[':
			c.element()
			c.open(b == '[')

			if err := c.check(); err != nil {
				return err
			}

			continue
		case '}', ']':
			c.depth = max(c.depth-1, 0)
			c.empty = false

			continue
		case '"':
			c.text = true
		case ',':
			c.empty = c.isArray()

			continue
		}

		c.element()

		if err := c.check(); err != nil {
			return err
		}
	}

	return c.check()
}

func (c *counter) inText(b byte) {
	switch {
	case c.escaped:
		c.escaped = false
	case b == '\\':
		c.escaped = true
	case b == '"':
		c.text = false
	}
}

// element counts the first byte of an element of an array.
func (c *counter) element() {
	if !c.empty {
		return
	}

	c.empty = false
	c.values++

	if c.depth == 2 {
		c.items++
	}
}

func (c *counter) open(array bool) {
	c.values++
	c.depth++
	c.empty = array

	bit := uint64(1) << (c.depth % maxDepth)
	if array {
		c.arrays |= bit
	} else {
		c.arrays &^= bit
	}
}

func (c *counter) isArray() bool { return c.arrays&(1<<(c.depth%maxDepth)) != 0 }

func (c *counter) check() error {
	switch {
	case c.maxItems > 0 && c.items > c.maxItems:
		return fmt.Errorf("%w: more than the %d objects that a page was to have", ErrTooMuch, c.maxItems)
	case c.values > c.maxValues:
		return fmt.Errorf("%w: more than %d values", ErrTooMuch, c.maxValues)
	case c.depth >= maxDepth:
		return fmt.Errorf("%w: more than %d levels", ErrTooMuch, maxDepth)
	}

	return nil
}
