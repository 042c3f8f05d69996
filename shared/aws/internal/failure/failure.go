// Package failure describes failed calls of the stores of package token.
package failure

import (
	"context"
	"errors"

	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"payhook.example/shared/token"
)

// Of returns the error of a call. It contains no text of AWS, which can have an ARN. hints are explanations of codes.
func Of(store, operation string, err error, hints map[string]string) *token.StoreError {
	e := &token.StoreError{Store: store, Operation: operation, Err: err}
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		e.Problem = api.ErrorCode() + hints[api.ErrorCode()]
	} else if !sent(err) {
		e.Problem = "no request was sent: AWS credentials or the region are missing"
	}
	return e
}

// sent reports whether the SDK sent a request before err, or was told to stop. It sends none without credentials or a
// region.
func sent(err error) bool {
	_, unanswered := errors.AsType[*smithyhttp.RequestSendError](err)
	_, answered := errors.AsType[*smithyhttp.ResponseError](err)
	return unanswered || answered || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
