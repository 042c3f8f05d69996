package awstest

import "context"

// Hook handles the calls of a DynamoDB in place of the service. in is the input of the SDK,
// such as *dynamodb.PutItemInput. next processes the call, with this input or with another
// one of its type. So a hook can fail before or after the effect of a call, wait, or change
// the answer:
//
//	db.Hook = func(ctx context.Context, in any, next awstest.Next) (any, error) {
//		if _, ok := in.(*dynamodb.UpdateItemInput); ok {
//			return nil, errors.New("DynamoDB is down")
//		}
//		return next(ctx, in)
//	}
//
// The hook returns next's answer, or another output of the same operation, or an error. It
// runs without a lock, so it may wait and may call the service. Concurrent calls run it
// concurrently.
type Hook func(ctx context.Context, in any, next Next) (any, error)

// Next processes a call and returns its output, such as *dynamodb.PutItemOutput.
type Next func(ctx context.Context, in any) (any, error)

// hooked makes a call through a hook; nil is no hook.
func hooked[In, Out any](ctx context.Context, hook Hook, in *In,
	process func(context.Context, *In) (*Out, error)) (*Out, error) {
	if hook == nil {
		return process(ctx, in)
	}
	out, err := hook(ctx, in, func(ctx context.Context, in any) (any, error) { return process(ctx, in.(*In)) })
	if err != nil {
		return nil, err
	}
	return out.(*Out), nil
}
