package client

import (
	"context"
	"errors"
	"strings"

	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// Error is a failed call of AWS. Its text has no message of AWS, which can name accounts and resources.
type Error struct {
	Operation string   // such as "DynamoDB Query"
	Code      string   // of the answer, such as "AccessDeniedException"; "": there was none
	Reasons   []string // of DynamoDB for throttling
	err       error
}

// ErrorOf returns the error of a call, and nil for nil. The error that is not nil is an [*Error].
func ErrorOf(operation string, err error, reasons ...string) error {
	if err == nil {
		return nil
	}
	return &Error{operation, Code(err), reasons, err}
}

// Code returns the code of an answer of AWS; "" for another error.
func Code(err error) string {
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		return api.ErrorCode()
	}
	return ""
}

func (e *Error) Error() string {
	text := e.Operation + ": "
	switch {
	case len(e.Reasons) > 0:
		return text + e.Code + " (" + strings.Join(e.Reasons, ", ") + ")"
	case e.Code != "":
		return text + e.Code
	case errors.Is(e.err, context.DeadlineExceeded):
		return text + "out of time"
	case errors.Is(e.err, context.Canceled):
		return text + "canceled"
	case unsent(e.err):
		return text + "no request was sent: AWS credentials or the region are missing"
	default:
		return text + "no answer"
	}
}

// unsent reports whether the SDK failed before it sent a request. It does so without credentials or a region.
func unsent(err error) bool {
	_, called := errors.AsType[*smithy.OperationError](err)
	_, unanswered := errors.AsType[*smithyhttp.RequestSendError](err)
	_, answered := errors.AsType[*smithyhttp.ResponseError](err)
	return called && !unanswered && !answered
}

// Unwrap returns the error of the SDK, whose text can have a message of AWS.
func (e *Error) Unwrap() error { return e.err }
