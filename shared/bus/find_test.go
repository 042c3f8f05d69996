package bus_test

import (
	"context"
	"errors"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge/types"
	"github.com/aws/smithy-go"

	adapter "payhook.example/shared/aws/eventbridge"
	"payhook.example/shared/bus"
)

// answers are the errors of calls, one after another.
type answers struct {
	adapter.PutAPI
	t    *testing.T
	errs []error
}

func (a *answers) DescribeEventBus(_ context.Context, in *eventbridge.DescribeEventBusInput,
	_ ...func(*eventbridge.Options)) (*eventbridge.DescribeEventBusOutput, error) {
	if *in.Name != "payments" {
		a.t.Errorf("it asks for %s", *in.Name)
	}
	err := a.errs[0]
	a.errs = a.errs[1:]
	return nil, err
}

func TestOnlyABusThatIsNotFoundIsMissing(t *testing.T) {
	missing, denied := &types.ResourceNotFoundException{}, &smithy.GenericAPIError{Code: "AccessDeniedException"}
	internal := &types.InternalException{}
	for name, c := range map[string]struct {
		errs []error
		want error
	}{
		"found":           {[]error{nil}, nil},
		"missing":         {[]error{missing}, bus.ErrMissing},
		"denied":          {[]error{denied}, denied},
		"a failure first": {[]error{internal, internal, internal, missing}, bus.ErrMissing},
		"failures":        {[]error{internal, internal, internal, internal}, internal},
	} {
		a := &answers{t: t, errs: c.errs}
		if err := bus.Find(t.Context(), adapter.NewFindableBus(a, "payments")); !errors.Is(err, c.want) || len(a.errs) > 0 {
			t.Errorf("%s: %v, and %d calls less", name, err, len(a.errs))
		}
	}
}
