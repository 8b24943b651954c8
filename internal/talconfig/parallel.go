package talconfig

import (
	"fmt"
	"reflect"
	"runtime"

	"go.yaml.in/yaml/v4"
	"golang.org/x/sync/errgroup"
)

// nodesKey is the list that is long in a large fleet.
const nodesKey = "nodes"

// inParts works on a list on all processors, in parts that are as long as possible.
func inParts(length int, do func(part, from, to int) error) error {
	parts := parts(length)

	var group errgroup.Group

	for part := range parts {
		group.Go(func() error { return do(part, part*length/parts, (part+1)*length/parts) })
	}

	return group.Wait()
}

func parts(length int) int { return max(1, min(length, runtime.GOMAXPROCS(0))) }

// decodeConfig decodes a tree that was checked before.
func decodeConfig(root *yaml.Node, into *Config) error {
	rest := *root
	rest.Content = nil

	var list *yaml.Node

	for i := 0; i+1 < len(root.Content); i += 2 {
		if root.Content[i].Value == nodesKey && root.Content[i+1].Kind == yaml.SequenceNode {
			list = root.Content[i+1]
		} else {
			rest.Content = append(rest.Content, root.Content[i], root.Content[i+1])
		}
	}

	if err := decode(&rest, into); err != nil || list == nil {
		return err
	}

	into.Nodes = make([]Node, len(list.Content))

	return inParts(len(list.Content), func(_, from, to int) error {
		for i := from; i < to; i++ {
			if err := decode(list.Content[i], &into.Nodes[i]); err != nil {
				return err
			}
		}

		return nil
	})
}

// part is a report of its own, with the lines that are known so far.
func (r *report) part() report {
	out := report{file: r.file, lines: make(map[string]int, len(r.lines))}
	for path, line := range r.lines {
		out.lines[path] = line
	}

	return out
}

// checkNodes is checkList for the nodes.
func (s strict) checkNodes(n *yaml.Node, t reflect.Type) {
	reports := make([]report, parts(len(n.Content)))

	_ = inParts(len(n.Content), func(part, from, to int) error {
		reports[part] = s.part()
		own := strict{&reports[part]}

		for i := from; i < to; i++ {
			own.checkItem(n.Content[i], t, fmt.Sprintf("%s[%d]", nodesKey, i))
		}

		return nil
	})

	for _, own := range reports {
		for path, line := range own.lines {
			s.lines[path] = line
		}

		s.problems = append(s.problems, own.problems...)
	}
}
