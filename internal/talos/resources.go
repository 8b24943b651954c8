package talos

import (
	"context"
	"errors"
	"fmt"
	"slices"

	cosiv1alpha1 "github.com/cosi-project/runtime/api/v1alpha1"
	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/resource/protobuf"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/siderolabs/talos/pkg/machinery/resources/config"
	"google.golang.org/grpc"

	"github.com/talos-operator/talos-operator/internal/text"
)

// The library decodes a resource by the type that the node gives it, whatever was requested, and those of a watch in a
// goroutine of its own. A hostile node would choose the decoder that takes most memory, or that panics, which ends the
// operator. So each response is compared to its request before anything decodes it, and is decoded in decode alone.

// ErrInvalid ends a call whose response is not what was requested, or cannot be decoded.
var ErrInvalid = errors.New("invalid response")

// invalidError is ErrInvalid about a resource.
type invalidError struct {
	// typ is the type that was requested, and problem is for the log.
	typ, problem string
}

// Error implements error.
func (e *invalidError) Error() string { return fmt.Sprintf("%s: %s: %s", ErrInvalid, e.typ, e.problem) }

// Unwrap makes it an ErrInvalid.
func (e *invalidError) Unwrap() error { return ErrInvalid }

// longestSaid is how many bytes of what a node has sent instead are in an error.
const longestSaid = 128

// requested is what a call asks the state of a node for. Without an ID, any of the type is a response.
type requested struct{ namespace, typ, id string }

// requestedBy returns what a request asks the state of a node for; false if it is for another API.
func requestedBy(req any) (requested, bool) {
	switch r := req.(type) {
	case *cosiv1alpha1.GetRequest:
		return requested{r.GetNamespace(), r.GetType(), r.GetId()}, true
	case *cosiv1alpha1.ListRequest:
		return requested{r.GetNamespace(), r.GetType(), ""}, true
	case *cosiv1alpha1.WatchRequest:
		return requested{r.GetNamespace(), r.GetType(), r.GetId()}, true
	}

	return requested{}, false
}

// check compares a response to what was requested.
func (q requested) check(response any) error {
	switch r := response.(type) {
	case *cosiv1alpha1.GetResponse:
		return q.matches(r.GetResource())
	case *cosiv1alpha1.ListResponse:
		return q.matches(r.GetResource())
	case *cosiv1alpha1.WatchResponse:
		for _, e := range r.GetEvent() {
			// An event need not be about a resource.
			for _, of := range []*cosiv1alpha1.Resource{e.GetResource(), e.GetOld()} {
				if of == nil {
					continue
				}

				if err := q.matches(of); err != nil {
					return err
				}
			}
		}
	}

	return nil
}

func (q requested) matches(sent *cosiv1alpha1.Resource) error {
	md := sent.GetMetadata()
	if md.GetNamespace() == q.namespace && md.GetType() == q.typ && (q.id == "" || md.GetId() == q.id) {
		return nil
	}

	said := fmt.Sprintf("%s/%s/%s", md.GetNamespace(), md.GetType(), md.GetId())

	return &invalidError{q.typ, "the node has sent " + text.Cut(text.Name(said), longestSaid) + " instead"}
}

// checkedStream does that with what a stream brings.
type checkedStream struct {
	grpc.ClientStream

	requested requested
}

// RecvMsg implements grpc.ClientStream.
func (s checkedStream) RecvMsg(m any) error {
	if err := s.ClientStream.RecvMsg(m); err != nil {
		return err
	}

	return s.requested.check(m)
}

// checked returns the stream of a request, whose responses are compared to it.
func checked(s grpc.ClientStream, req any) grpc.ClientStream {
	if q, isState := requestedBy(req); isState {
		return checkedStream{s, q}
	}

	return s
}

// decoding is the state of a node. Its watches bring resources as the node has sent them: see observe.
type decoding struct{ state.CoreState }

// Get implements state.CoreState.
func (d decoding) Get(ctx context.Context, of resource.Pointer, o ...state.GetOption) (resource.Resource, error) {
	var opts state.GetOptions
	for _, set := range o {
		set(&opts)
	}

	sent, err := d.CoreState.Get(ctx, of,
		slices.Concat(o, []state.GetOption{state.WithGetUnmarshalOptions(state.WithSkipProtobufUnmarshal())})...)
	if err != nil || opts.UnmarshalOptions.SkipProtobufUnmarshal {
		return sent, err
	}

	return decode(sent)
}

// List implements state.CoreState.
func (d decoding) List(ctx context.Context, of resource.Kind, o ...state.ListOption) (resource.List, error) {
	var opts state.ListOptions
	for _, set := range o {
		set(&opts)
	}

	list, err := d.CoreState.List(ctx, of,
		slices.Concat(o, []state.ListOption{state.WithListUnmarshalOptions(state.WithSkipProtobufUnmarshal())})...)
	if err != nil || opts.UnmarshalOptions.SkipProtobufUnmarshal {
		return list, err
	}

	for i, sent := range list.Items {
		if list.Items[i], err = decode(sent); err != nil {
			return resource.List{}, err
		}
	}

	return list, nil
}

// Watch implements state.CoreState.
func (d decoding) Watch(
	ctx context.Context, of resource.Pointer, into chan<- state.Event, o ...state.WatchOption,
) error {
	return d.CoreState.Watch(ctx, of, into,
		slices.Concat(o, []state.WatchOption{state.WithWatchUnmarshalOptions(state.WithSkipProtobufUnmarshal())})...)
}

// WatchKind implements state.CoreState.
func (d decoding) WatchKind(
	ctx context.Context, of resource.Kind, into chan<- state.Event, o ...state.WatchKindOption,
) error {
	return d.CoreState.WatchKind(ctx, of, into, slices.Concat(o,
		[]state.WatchKindOption{state.WithWatchKindUnmarshalOptions(state.WithSkipProtobufUnmarshal())})...)
}

// WatchKindAggregated implements state.CoreState.
func (d decoding) WatchKindAggregated(
	ctx context.Context, of resource.Kind, into chan<- []state.Event, o ...state.WatchKindOption,
) error {
	return d.CoreState.WatchKindAggregated(ctx, of, into, slices.Concat(o,
		[]state.WatchKindOption{state.WithWatchKindUnmarshalOptions(state.WithSkipProtobufUnmarshal())})...)
}

// decode turns what a node has sent into the resource that it is.
func decode(sent resource.Resource) (out resource.Resource, err error) {
	raw, isSent := sent.(*protobuf.Resource)
	if !isSent {
		return sent, nil
	}

	err = decodeWith(raw.Metadata().Type(), func() (err error) {
		out, err = protobuf.UnmarshalResource(raw)

		return err
	})

	return out, err
}

// decodeWith runs the decoder of a type. The error is ErrInvalid, also if the decoder panics, which those of the
// library for YAML do with some malformed input: what a node sends must not end the operator.
func decodeWith(typ resource.Type, decoder func() error) (err error) {
	defer func() {
		// The value of the panic may quote what was decoded.
		if recover() != nil {
			err = &invalidError{typ, "its decoder panicked"}
		}
	}()

	if err := decoder(); err != nil {
		return &invalidError{typ, "it cannot be decoded: " + text.Cut(text.Line(redactText(err.Error())), longestSaid)}
	}

	return nil
}

// observe applies what a watch has brought to the observed state. Of a configuration, the version is all that is
// needed, so that it is not decoded.
func observe(seen Watched, e state.Event) (Watched, error) {
	switch {
	case e.Type == state.Errored && e.Error == nil:
		return seen, ErrStreamEnded
	case e.Type == state.Errored:
		return seen, e.Error
	case e.Resource != nil && e.Resource.Metadata().Type() != config.MachineConfigType:
		var err error
		if e.Resource, err = decode(e.Resource); err != nil {
			return seen, err
		}
	}

	return merge(seen, e), nil
}
