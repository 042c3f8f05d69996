package stack

import (
	"context"
	"io"
	"time"

	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"payhook.example/shared/settings"
)

// silentError ends a call of AWS that gets no byte for so long. The SDK does not repeat the call: the next try would be
// silent as well, and a function that was invoked may still run.
type silentError struct{ after time.Duration }

func (e *silentError) Error() string      { return "nothing was received for " + e.after.String() }
func (*silentError) RetryableError() bool { return false }

// endSilence makes an error of a call that gets no byte for a minute. A long download goes on. An invocation of redrive
// gets none while the function runs.
func endSilence(stack *middleware.Stack) error {
	return stack.Deserialize.Add(middleware.DeserializeMiddlewareFunc("EndSilence", func(ctx context.Context,
		in middleware.DeserializeInput, next middleware.DeserializeHandler) (out middleware.DeserializeOutput,
		metadata middleware.Metadata, err error) {
		b := &body{silent: &silentError{time.Minute}}
		if awsmiddleware.GetOperationName(ctx) == "Invoke" {
			b.silent.after = settings.RedriveTimeout + 10*time.Second
		}
		b.ctx, b.cancel = context.WithCancelCause(ctx)
		err = b.wait(func() error { out, metadata, err = next.HandleDeserialize(b.ctx, in); return err })
		if answer, ok := out.RawResponse.(*smithyhttp.Response); ok && err == nil {
			b.ReadCloser, answer.Body = answer.Body, b
		} else {
			b.cancel(nil)
		}
		return out, metadata, err
	}), middleware.After)
}

// body is that of an answer.
type body struct {
	io.ReadCloser
	ctx    context.Context
	cancel context.CancelCauseFunc
	silent *silentError
}

// wait does what ends when bytes come.
func (b *body) wait(do func() error) error {
	defer time.AfterFunc(b.silent.after, func() { b.cancel(b.silent) }).Stop()
	err := do()
	if err != nil && context.Cause(b.ctx) == error(b.silent) {
		return b.silent
	}
	return err
}

func (b *body) Read(p []byte) (n int, err error) {
	err = b.wait(func() error { n, err = b.ReadCloser.Read(p); return err })
	return n, err
}

func (b *body) Close() error {
	b.cancel(nil)
	return b.ReadCloser.Close()
}
