// Package event is the event stream of an emulated node: a ring of the last events of a boot, and watches on it.
package event

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// Capacity is the number of events that a node keeps, as many as Talos does.
const Capacity = 990

// typePrefix stands before the message name in the type URL of an event.
const typePrefix = "talos/runtime/"

// entry keeps an event serialized: most are never read, and the encoded form is the smallest.
type entry struct {
	id      ID
	actor   string
	typeURL string
	value   []byte
}

// Log is the event stream of one boot.
type Log struct {
	ids *Generator

	mu      sync.Mutex
	entries []entry
	dropped int64         // events that fell out of the ring
	changed chan struct{} // closed and replaced at every event
}

// NewLog returns an empty stream.
func NewLog() *Log {
	return &Log{ids: NewGenerator(), changed: make(chan struct{})}
}

type actorKey struct{}

// WithActor returns a context whose events carry the actor ID of the request that caused them.
func WithActor(ctx context.Context, actor string) context.Context {
	return context.WithValue(ctx, actorKey{}, actor)
}

// Actor returns the actor ID in ctx, if any.
func Actor(ctx context.Context) string {
	actor, _ := ctx.Value(actorKey{}).(string)

	return actor
}

// Publish appends an event.
func (l *Log) Publish(ctx context.Context, msg proto.Message) {
	value, err := proto.Marshal(msg)
	if err != nil {
		return // a message of the machinery library always serializes
	}

	e := entry{
		actor:   Actor(ctx),
		typeURL: typePrefix + string(msg.ProtoReflect().Descriptor().FullName()),
		value:   value,
	}

	l.mu.Lock()
	defer l.mu.Unlock()

	e.id = l.ids.New(time.Now())
	l.entries = append(l.entries, e)

	if len(l.entries) > Capacity {
		l.entries = slices.Delete(l.entries, 0, 1)
		l.dropped++
	}

	close(l.changed)
	l.changed = make(chan struct{})
}

// Watch sends the requested tail and then every new event until ctx ends. The first message is empty: it tells the
// caller that the stream stands.
func (l *Log) Watch(ctx context.Context, req *machine.EventsRequest, send func(*machine.Event) error) error {
	if err := send(&machine.Event{Data: &anypb.Any{TypeUrl: typePrefix}, ActorId: req.GetWithActorId()}); err != nil {
		return err
	}

	pos, err := l.start(req)
	if err != nil {
		return err
	}

	for {
		batch, next, changed := l.since(pos)
		for _, e := range batch {
			if req.GetWithActorId() != "" && e.actor != req.GetWithActorId() {
				continue
			}

			if err := send(e.event()); err != nil {
				return err
			}
		}

		pos = next

		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}

// start returns the position of the first event that a request asks for; positions count from the boot on.
func (l *Log) start(req *machine.EventsRequest) (int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()

	end := l.dropped + int64(len(l.entries))

	switch {
	case req.GetTailEvents() < 0:
		return l.dropped, nil
	case req.GetTailEvents() > 0:
		return max(l.dropped, end-int64(req.GetTailEvents())), nil
	case req.GetTailId() != "":
		id, err := ParseID(req.GetTailId())
		if err != nil {
			return 0, &TailIDError{Err: err}
		}

		return l.after(func(e entry) bool { return e.id.Compare(id) > 0 }), nil
	case req.GetTailSeconds() != 0:
		since := time.Now().Add(-time.Duration(req.GetTailSeconds()) * time.Second)

		return l.after(func(e entry) bool { return e.id.Time().After(since) }), nil
	}

	return end, nil
}

// after returns the position of the first event that matches.
func (l *Log) after(match func(entry) bool) int64 {
	i := slices.IndexFunc(l.entries, match)
	if i < 0 {
		i = len(l.entries)
	}

	return l.dropped + int64(i)
}

func (l *Log) since(pos int64) (batch []entry, next int64, changed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()

	from := max(0, pos-l.dropped)

	return slices.Clone(l.entries[from:]), l.dropped + int64(len(l.entries)), l.changed
}

func (e entry) event() *machine.Event {
	return &machine.Event{
		Data:    &anypb.Any{TypeUrl: e.typeURL, Value: e.value},
		Id:      e.id.String(),
		ActorId: e.actor,
	}
}

// TailIDError says that a request named an event ID that is none.
type TailIDError struct{ Err error }

// Error implements error.
func (e *TailIDError) Error() string { return "error parsing tail_id: " + e.Err.Error() }

// Unwrap returns the cause.
func (e *TailIDError) Unwrap() error { return e.Err }
