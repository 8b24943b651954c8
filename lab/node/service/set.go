// Package service keeps the services of an emulated node: states, health and event history, as the API shows them.
package service

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/talos-operator/talos-operator/lab/node/event"
)

// State is the state of a service, numbered as in the API.
type State = machine.ServiceStateEvent_Action

// States of a service.
const (
	Initialized = machine.ServiceStateEvent_INITIALIZED
	Preparing   = machine.ServiceStateEvent_PREPARING
	Waiting     = machine.ServiceStateEvent_WAITING
	Running     = machine.ServiceStateEvent_RUNNING
	Stopping    = machine.ServiceStateEvent_STOPPING
	Finished    = machine.ServiceStateEvent_FINISHED
	Failed      = machine.ServiceStateEvent_FAILED
	Skipped     = machine.ServiceStateEvent_SKIPPED
	Starting    = machine.ServiceStateEvent_STARTING
)

// history is the number of events that a service keeps, as in Talos.
const history = 64

// names are the states as ServiceInfo spells them.
var names = map[State]string{
	Initialized: "Initialized", Preparing: "Preparing", Waiting: "Waiting", Running: "Running",
	Stopping: "Stopping", Finished: "Finished", Failed: "Failed", Skipped: "Skipped", Starting: "Starting",
}

// Status is what other parts of the node need to know of a service.
type Status struct {
	ID      string
	State   State
	Healthy bool
	Unknown bool // no health check has answered yet
}

// Running reports whether the service runs.
func (s Status) Running() bool { return s.State == Running }

// Up reports whether the service runs and no health check says otherwise.
func (s Status) Up() bool { return s.State == Running && s.Healthy && !s.Unknown }

type record struct {
	at      time.Time
	state   State
	message string
}

type service struct {
	state      State
	events     []record
	unknown    bool
	healthy    bool
	message    string
	lastChange time.Time
}

// Set holds the services of one boot.
type Set struct {
	events *event.Log
	notify func(Status)

	mu       sync.Mutex
	services map[string]*service
	changed  chan struct{}
}

// NewSet returns a set without services. Every change is published to the event stream and handed to notify,
// which must not call back.
func NewSet(events *event.Log, notify func(Status)) *Set {
	return &Set{events: events, notify: notify, services: map[string]*service{}, changed: make(chan struct{})}
}

// Update moves a service to a state; an unknown service appears with it.
func (s *Set) Update(ctx context.Context, id string, state State, format string, args ...any) {
	message := fmt.Sprintf(format, args...)

	s.mu.Lock()
	svc := s.get(id)
	svc.state = state
	svc.push(state, message)

	if state == Starting {
		svc.unknown, svc.healthy, svc.message, svc.lastChange = true, false, "", time.Now()
	}

	if !svc.unknown && state != Running && svc.healthy {
		svc.healthy, svc.message, svc.lastChange = false, "service not running", time.Now()
	}

	s.publish(ctx, id, svc, message)
}

// Health reports the outcome of a health check; nil is healthy. Only changes make an event.
func (s *Set) Health(ctx context.Context, id string, err error) {
	message := "Health check successful"
	if err != nil {
		message = "Health check failed: " + err.Error()
	}

	s.mu.Lock()
	svc := s.get(id)

	text := ""
	if err != nil {
		text = err.Error()
	}

	if svc.state != Running || (!svc.unknown && svc.healthy == (err == nil)) {
		svc.message = text
		s.mu.Unlock()

		return
	}

	svc.unknown, svc.healthy, svc.message, svc.lastChange = false, err == nil, text, time.Now()
	svc.push(Running, message)
	s.publish(ctx, id, svc, message)
}

// publish unlocks the set and tells everybody about a change.
func (s *Set) publish(ctx context.Context, id string, svc *service, message string) {
	msg := &machine.ServiceStateEvent{Service: id, Action: svc.state, Message: message, Health: svc.health()}
	status := svc.status(id)

	close(s.changed)
	s.changed = make(chan struct{})

	s.events.Publish(ctx, msg)
	s.mu.Unlock()
	s.notify(status)
}

// Reset forgets the history of a service that is about to be started as a new one.
func (s *Set) Reset(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.services[id] = &service{unknown: true, lastChange: time.Now()}
}

// Get returns the state of one service.
func (s *Set) Get(id string) (Status, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()

	svc, ok := s.services[id]
	if !ok {
		return Status{}, false
	}

	return svc.status(id), true
}

// Statuses returns all services, sorted.
func (s *Set) Statuses() []Status {
	s.mu.Lock()
	defer s.mu.Unlock()

	list := make([]Status, 0, len(s.services))
	for id, svc := range s.services {
		list = append(list, svc.status(id))
	}

	slices.SortFunc(list, func(a, b Status) int { return cmp.Compare(a.ID, b.ID) })

	return list
}

// Wait returns when the service meets the condition or ctx ends.
func (s *Set) Wait(ctx context.Context, id string, condition func(Status) bool) error {
	for {
		s.mu.Lock()

		svc, ok := s.services[id]
		if ok && condition(svc.status(id)) {
			s.mu.Unlock()

			return nil
		}

		changed := s.changed
		s.mu.Unlock()

		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for service %q: %w", id, ctx.Err())
		case <-changed:
		}
	}
}

// Changed returns when any service has changed.
func (s *Set) Changed(ctx context.Context) error {
	s.mu.Lock()
	changed := s.changed
	s.mu.Unlock()

	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-changed:
		return nil
	}
}

// Last returns the newest event of a service.
func (s *Set) Last(id string) (state, message string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()

	svc, ok := s.services[id]
	if !ok || len(svc.events) == 0 {
		return "", "", false
	}

	last := svc.events[len(svc.events)-1]

	return names[last.state], last.message, true
}

// List returns what ServiceList returns.
func (s *Set) List() []*machine.ServiceInfo {
	s.mu.Lock()
	defer s.mu.Unlock()

	list := make([]*machine.ServiceInfo, 0, len(s.services))

	for id, svc := range s.services {
		info := &machine.ServiceInfo{
			Id: id, State: names[svc.state], Events: &machine.ServiceEvents{}, Health: svc.health(),
		}

		for _, r := range svc.events {
			info.Events.Events = append(info.Events.Events,
				&machine.ServiceEvent{Msg: r.message, State: names[r.state], Ts: timestamppb.New(r.at)})
		}

		list = append(list, info)
	}

	slices.SortFunc(list, func(a, b *machine.ServiceInfo) int { return cmp.Compare(a.GetId(), b.GetId()) })

	return list
}

func (s *Set) get(id string) *service {
	svc := s.services[id]
	if svc == nil {
		svc = &service{unknown: true, lastChange: time.Now()}
		s.services[id] = svc
	}

	return svc
}

func (s *service) push(state State, message string) {
	s.events = append(s.events, record{time.Now(), state, message})
	if len(s.events) > history {
		s.events = slices.Delete(s.events, 0, 1)
	}
}

func (s *service) status(id string) Status {
	return Status{ID: id, State: s.state, Healthy: s.healthy, Unknown: s.unknown}
}

func (s *service) health() *machine.ServiceHealth {
	return &machine.ServiceHealth{
		Unknown: s.unknown, Healthy: s.healthy, LastMessage: s.message, LastChange: timestamppb.New(s.lastChange),
	}
}
