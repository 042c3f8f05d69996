package deployment

import (
	"context"
	"io"
	"time"

	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"payhook.example/shared/settings"
)

// silence is how long a call of AWS may get no byte. An invocation of redrive gets none while it runs.
const silence = time.Minute

func silenceOf(operation string) time.Duration {
	if operation == "Invoke" {
		return settings.RedriveTimeout + 10*time.Second
	}
	return silence
}

// silentError ends a call. The SDK does not repeat it: the next try would be silent as well, and the function that was
// invoked may still run.
type silentError struct{ time.Duration }

func (e *silentError) Error() string      { return "nothing was received for " + e.Duration.String() }
func (*silentError) RetryableError() bool { return false }

// endSilence makes an error of a call that gets no byte for too long. A long download goes on.
func endSilence(stack *middleware.Stack) error {
	return stack.Deserialize.Add(middleware.DeserializeMiddlewareFunc("EndSilence", func(ctx context.Context,
		in middleware.DeserializeInput, next middleware.DeserializeHandler) (out middleware.DeserializeOutput,
		metadata middleware.Metadata, err error) {
		silent := &silentError{silenceOf(awsmiddleware.GetOperationName(ctx))}
		ctx, cancel := context.WithCancelCause(ctx)
		end := func() { cancel(silent) }
		timer := time.AfterFunc(silent.Duration, end)
		out, metadata, err = next.HandleDeserialize(ctx, in)
		timer.Stop()
		answer, ok := out.RawResponse.(*smithyhttp.Response)
		if err != nil || !ok {
			if context.Cause(ctx) == error(silent) {
				err = silent
			}
			cancel(nil)
			return out, metadata, err
		}
		answer.Body = &body{answer.Body, ctx, cancel, silent}
		return out, metadata, nil
	}), middleware.After)
}

// body is that of an answer.
type body struct {
	io.ReadCloser
	ctx    context.Context
	cancel context.CancelCauseFunc
	silent *silentError
}

func (b *body) Read(p []byte) (int, error) {
	timer := time.AfterFunc(b.silent.Duration, func() { b.cancel(b.silent) })
	defer timer.Stop()
	n, err := b.ReadCloser.Read(p)
	if err != nil && context.Cause(b.ctx) == error(b.silent) {
		err = b.silent
	}
	return n, err
}

func (b *body) Close() error {
	b.cancel(nil)
	return b.ReadCloser.Close()
}
