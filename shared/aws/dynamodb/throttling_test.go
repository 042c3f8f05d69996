package dynamodb_test

import (
	"context"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"payhook.example/shared/aws/dynamodb"
)

// throttled is a table whose reads fail.
type throttled struct {
	dynamodb.KeysAPI
	err error
}

func (t throttled) GetItem(context.Context, *sdk.GetItemInput, ...func(*sdk.Options)) (*sdk.GetItemOutput, error) {
	return nil, t.err
}

func TestAnErrorHasTheReasonsOfThrottlingWithoutTheirResources(t *testing.T) {
	reasons := func(texts ...string) (all []types.ThrottlingReason) {
		arn := aws.String("arn:aws:dynamodb:eu-central-1:123456789012:table/keys")
		for _, r := range texts {
			all = append(all, types.ThrottlingReason{Reason: &r, Resource: arn})
		}
		return append(all, types.ThrottlingReason{Resource: arn})
	}
	for want, err := range map[string]error{
		"ProvisionedThroughputExceededException (A, B)": &retry.MaxAttemptsError{
			Err: &types.ProvisionedThroughputExceededException{ThrottlingReasons: reasons("A", "B", "A")}},
		"ThrottlingException (A)":  &types.ThrottlingException{ThrottlingReasons: reasons("A")},
		"RequestLimitExceeded (A)": &types.RequestLimitExceeded{ThrottlingReasons: reasons("A")},
		"ThrottlingException":      &types.ThrottlingException{ThrottlingReasons: reasons()},
	} {
		_, got := dynamodb.NewKeys(throttled{err: err}, "keys").Get(t.Context(), "id")
		if got == nil || got.Error() != "DynamoDB GetItem: "+want {
			t.Errorf("got %v, want %s", got, want)
		}
	}
}
