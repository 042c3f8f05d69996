package bus

import (
	"context"
	"errors"

	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge/types"

	"payhook.example/shared/parallel"
)

// ErrMissing is returned by [Find] if the bus does not exist.
var ErrMissing = errors.New("bus: it does not exist")

// FindAPI is what of EventBridge the bus and [Find] need.
type FindAPI interface {
	API
	DescribeEventBus(context.Context, *eventbridge.DescribeEventBusInput,
		...func(*eventbridge.Options)) (*eventbridge.DescribeEventBusOutput, error)
}

// Find returns nil if there is a bus of that name, ErrMissing if there is none, and another error if that is not known.
// [Bus.Publish] does not notice that there is none: PutEvents answers with an event id and no error, and the events are
// lost (https://github.com/aws/aws-cli/issues/9186).
func Find(ctx context.Context, client FindAPI, name string) error {
	for attempt := 1; ; attempt++ {
		_, err := client.DescribeEventBus(ctx, &eventbridge.DescribeEventBusInput{Name: &name})
		if _, missing := errors.AsType[*types.ResourceNotFoundException](err); missing {
			return ErrMissing
		}
		if err == nil || faultOf(err) != ofService || attempt == attempts ||
			parallel.Pause(ctx, backoff<<(attempt-1)) != nil {
			return err
		}
	}
}
