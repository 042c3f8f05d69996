// Package eventbridge has the store of package bus in Amazon EventBridge.
package eventbridge

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge/types"

	awsclient "payhook.example/shared/aws/client"
	"payhook.example/shared/bus"
)

// Client calls EventBridge. It has all of the interfaces of this package.
type Client = eventbridge.Client

// NewClient returns a client with that configuration.
func NewClient(cfg aws.Config) *Client { return eventbridge.NewFromConfig(cfg) }

// Endpoint returns the URL that a client with that configuration calls.
func Endpoint(ctx context.Context, cfg aws.Config) (url.URL, error) {
	p := eventbridge.EndpointParameters{Region: &cfg.Region, Endpoint: cfg.BaseEndpoint}.WithDefaults()
	e, err := eventbridge.NewDefaultEndpointResolverV2().ResolveEndpoint(ctx, p)
	return e.URI, err
}

// PutAPI puts events on a bus.
type PutAPI interface {
	PutEvents(context.Context, *eventbridge.PutEventsInput,
		...func(*eventbridge.Options)) (*eventbridge.PutEventsOutput, error)
}

// FindAPI puts events on a bus, and looks it up.
type FindAPI interface {
	PutAPI
	DescribeEventBus(context.Context, *eventbridge.DescribeEventBusInput,
		...func(*eventbridge.Options)) (*eventbridge.DescribeEventBusOutput, error)
}

// Bus is a [bus.Store] and a [bus.Finder]. It is safe for concurrent use.
type Bus struct {
	client FindAPI
	name   string
}

// NewBus returns the bus with that name.
func NewBus(client FindAPI, name string) *Bus { return &Bus{client, name} }

// Put implements [bus.Store]. An entry is taken only if EventBridge gave it an id and no error: PutEvents answers 200
// with failed entries inside (AWS, "PutEvents" in the EventBridge API reference).
func (b *Bus) Put(ctx context.Context, entries []bus.Entry) ([]error, error) {
	in := &eventbridge.PutEventsInput{Entries: make([]types.PutEventsRequestEntry, len(entries))}
	for i, e := range entries {
		in.Entries[i] = b.entry(e)
	}
	// One attempt: package bus retries, and repeats only what failed.
	once := func(o *eventbridge.Options) { o.Retryer = aws.NopRetryer{} }
	out, err := b.client.PutEvents(ctx, in, once)
	if err != nil {
		return nil, failed("EventBridge PutEvents", err)
	}
	failures := make([]error, len(entries))
	for i := range failures {
		if i >= len(out.Entries) {
			failures[i] = &bus.EntryError{}
		} else if e := out.Entries[i]; e.ErrorCode != nil || aws.ToString(e.EventId) == "" {
			failures[i] = notTaken(aws.ToString(e.ErrorCode))
		}
	}
	return failures, nil
}

func (b *Bus) entry(e bus.Entry) types.PutEventsRequestEntry {
	entry := types.PutEventsRequestEntry{
		EventBusName: &b.name,
		Source:       &e.Source,
		DetailType:   &e.DetailType,
		Detail:       aws.String(string(e.Detail)),
	}
	// The SDK computes Time from UnixNano, which wraps around for years before 1678 and after 2262: EventBridge would
	// get another time. Without a Time it takes that of the request; the detail still holds the event's own.
	if t := e.Time; t.Equal(time.Unix(0, t.UnixNano())) {
		entry.Time = &t
	}
	if e.DeliveryID != "" {
		entry.Resources = []string{e.DeliveryID}
	}
	return entry
}

// notTaken returns the error of an entry with that code.
func notTaken(code string) error {
	switch code {
	case "", "ThrottlingException", "InternalFailure", "InternalException", "ServiceUnavailable":
		return &bus.EntryError{Fault: bus.OfService, Code: code}
	}
	return &bus.EntryError{Fault: bus.OfEntry, Code: code}
}

// Find implements [bus.Finder].
func (b *Bus) Find(ctx context.Context) error {
	_, err := b.client.DescribeEventBus(ctx, &eventbridge.DescribeEventBusInput{Name: &b.name})
	if _, missing := errors.AsType[*types.ResourceNotFoundException](err); missing {
		return bus.ErrMissing
	}
	if err != nil {
		return failed("EventBridge DescribeEventBus", err)
	}
	return nil
}

// failed returns the error of a call that failed.
func failed(operation string, err error) error {
	return &bus.RequestError{Fault: faultOf(err), Err: awsclient.ErrorOf(operation, err)}
}

// callerErrors are the client errors that do not depend on the entries (AWS,
// "Common Error Types" in the EventBridge API reference).
var callerErrors = []string{
	"AccessDeniedException", "AccessDenied", "NotAuthorized", "OptInRequired",
	"ExpiredTokenException", "ExpiredToken", "RequestExpired",
	"IncompleteSignature", "InvalidSignatureException", "SignatureDoesNotMatch",
	"MissingAuthenticationToken", "MissingAuthenticationTokenException",
	"InvalidClientTokenId", "UnrecognizedClientException",
	"ResourceNotFoundException", "UnknownOperationException",
}

// retryable are the codes after which the SDK would try again, throttling among them.
var retryable = retry.IsErrorRetryables(retry.DefaultRetryables)

// faultOf returns where the cause of a failed call is.
func faultOf(err error) bus.Fault {
	if retryable.IsErrorRetryable(err) == aws.TrueTernary {
		return bus.OfService
	}
	if slices.Contains(callerErrors, awsclient.Code(err)) {
		return bus.OfCaller
	}
	// The SDK does not know the fault of an error that the model of PutEvents does not list, so the status decides.
	type response interface {
		error
		HTTPStatusCode() int
	}
	r, answered := errors.AsType[response](err)
	if answered && r.HTTPStatusCode()/100 == 4 && r.HTTPStatusCode() != http.StatusRequestTimeout {
		return bus.OfEntry
	}
	return bus.OfService
}
