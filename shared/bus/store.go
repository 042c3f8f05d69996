package bus

import (
	"context"
	"errors"
)

// Store puts entries on one bus. It is safe for concurrent use.
type Store interface {
	// Put makes one request with 1 to 10 entries, without retries. It returns for each entry nil or an [*EntryError],
	// or one error if the request failed: a [*RequestError], or one that may not occur another time. Put keeps nothing
	// of the slice.
	Put(ctx context.Context, entries []Entry) ([]error, error)
}

// Finder looks a bus up. It is safe for concurrent use.
type Finder interface {
	// Find returns nil if there is the bus, ErrMissing if there is none, and another error if that is not known.
	// [Bus.Publish] does not notice that there is none: PutEvents answers with an event id and no error, and the events
	// are lost (https://github.com/aws/aws-cli/issues/9186).
	Find(ctx context.Context) error
}

// ErrMissing is returned if the bus does not exist.
var ErrMissing = errors.New("bus: the event bus does not exist")

// Entry is an event as it is put on a bus.
type Entry struct {
	Source string
	Event
}

func (e Entry) size() int {
	const timeSize = 14
	return timeSize + len(e.Source) + len(e.DetailType) + len(e.Detail) + len(e.DeliveryID)
}

// Fault says where the cause of a failure is.
type Fault int

const (
	OfService Fault = iota // it may succeed another time
	OfCaller               // who calls, and which bus: the same for every entry
	OfEntry                // what was sent: at least one entry of the request
)

// RequestError is why a request failed.
type RequestError struct {
	Fault Fault
	Err   error
}

func (e *RequestError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *RequestError) Unwrap() error { return e.Err }

// EntryError is why one entry was not taken.
type EntryError struct {
	Fault Fault
	Code  string // as in ThrottlingException; "" if there is no reason
}

func (e *EntryError) Error() string { return "bus: entry not taken: " + e.Code }

// faultOf returns where the cause of a failure is. Without an error it is not in the entries.
func faultOf(err error) Fault {
	if e, ok := errors.AsType[*EntryError](err); ok {
		return e.Fault
	}
	if e, ok := errors.AsType[*RequestError](err); ok {
		return e.Fault
	}
	return OfService
}
