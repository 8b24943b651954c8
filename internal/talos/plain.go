package talos

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/talos-operator/talos-operator/internal/text"
)

// Whatever a node says passes here, before anything else sees it: text has no control characters afterwards. Contents,
// such as a machine configuration or a database, are bytes, which stay as they are; texts inside of resources are bytes
// here, too, and pass plainText where they are read.

// plainMessage replaces what is not text in every string of a response.
func plainMessage(m any) {
	if p, ok := m.(proto.Message); ok {
		plainStrings(p.ProtoReflect())
	}
}

func plainStrings(m protoreflect.Message) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap():
			plainMap(f.MapValue(), v.Map())
		case f.IsList():
			plainList(f, v.List())
		default:
			if out, changed := plainField(f, v); changed {
				m.Set(f, out)
			}
		}

		return true
	})
}

func plainMap(f protoreflect.FieldDescriptor, m protoreflect.Map) {
	m.Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
		if out, changed := plainField(f, v); changed {
			m.Set(k, out)
		}

		return true
	})
}

func plainList(f protoreflect.FieldDescriptor, l protoreflect.List) {
	for i := range l.Len() {
		if out, changed := plainField(f, l.Get(i)); changed {
			l.Set(i, out)
		}
	}
}

// plainField returns the value that a single one has to be replaced with. A message is changed in place.
func plainField(f protoreflect.FieldDescriptor, v protoreflect.Value) (protoreflect.Value, bool) {
	switch f.Kind() { //nolint:exhaustive // all others hold no text
	case protoreflect.StringKind:
		out := text.Plain(v.String())

		return protoreflect.ValueOfString(out), out != v.String()
	case protoreflect.MessageKind, protoreflect.GroupKind:
		plainStrings(v.Message())
	}

	return v, false
}

// plainError does the same with the text of a status, and cuts it. Another error is not the words of a node.
func plainError(err error) error {
	if err == nil {
		return nil
	}

	s, ok := status.FromError(err)
	if !ok {
		return err
	}

	said := s.Proto()

	out := text.Cut(text.Plain(said.GetMessage()), maxErrorText)
	if out == said.GetMessage() {
		return err
	}

	said.Message = out

	return status.FromProto(said).Err()
}

// plainStream does both with what a stream brings.
type plainStream struct{ grpc.ClientStream }

// RecvMsg implements grpc.ClientStream.
func (s plainStream) RecvMsg(m any) error {
	if err := s.ClientStream.RecvMsg(m); err != nil {
		return plainError(err)
	}

	plainMessage(m)

	return nil
}
