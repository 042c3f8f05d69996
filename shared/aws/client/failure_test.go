package client_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"payhook.example/shared/aws/client"
)

func TestAnErrorHasNoMessageOfAWS(t *testing.T) {
	const arn = "User: arn:aws:sts::123456789012:role is not authorized"
	of := func(err error) error {
		return &smithy.OperationError{ServiceID: "DynamoDB", OperationName: "PutItem", Err: err}
	}
	denied := of(&smithy.GenericAPIError{Code: "AccessDeniedException", Message: arn})
	for name, test := range map[string]struct {
		err     error
		reasons []string
		want    string
	}{
		"answered":    {denied, nil, "AccessDeniedException"},
		"reasons":     {denied, []string{"A", "B"}, "AccessDeniedException (A, B)"},
		"out of time": {of(fmt.Errorf("%s: %w", arn, context.DeadlineExceeded)), nil, "out of time"},
		"canceled":    {of(fmt.Errorf("%s: %w", arn, context.Canceled)), nil, "canceled"},
		"not sent": {of(errors.New(arn)), nil,
			"no request was sent: AWS credentials or the region are missing"},
		"no server":          {of(&smithyhttp.RequestSendError{Err: errors.New(arn)}), nil, "no answer"},
		"half an answer":     {of(&smithyhttp.ResponseError{Err: errors.New(arn)}), nil, "no answer"},
		"outside of the SDK": {errors.New(arn), nil, "no answer"},
	} {
		got := client.ErrorOf("DynamoDB PutItem", test.err, test.reasons...)
		if got.Error() != "DynamoDB PutItem: "+test.want || !errors.Is(got, test.err) {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
	if err := client.ErrorOf("DynamoDB PutItem", nil); err != nil {
		t.Errorf("no error: %v", err)
	}
}
