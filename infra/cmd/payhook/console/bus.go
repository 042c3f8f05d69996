package console

import (
	"context"
	"errors"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/smithy-go"
)

// bus stops and starts the event bus for the functions: a policy of their roles denies
// them to publish. The emulator enforces it at once.
type bus struct {
	functions  *lambda.Client
	identities *iam.Client
	names      []string // of the functions that publish
}

// deny is the name of the policy.
const deny = "payhook-console-stops-the-bus"

const denied = `{"Version":"2012-10-17","Statement":[{"Effect":"Deny","Action":"events:PutEvents","Resource":"*"}]}`

func newBus(config aws.Config, names ...string) *bus {
	return &bus{lambda.NewFromConfig(config), iam.NewFromConfig(config), names}
}

// set stops or starts the bus. To do so twice is no error.
func (b *bus) set(ctx context.Context, stopped bool) error {
	for _, name := range b.names {
		out, err := b.functions.GetFunctionConfiguration(ctx,
			&lambda.GetFunctionConfigurationInput{FunctionName: &name})
		if err != nil {
			return err
		}
		role := aws.ToString(out.Role)
		role = role[strings.LastIndex(role, "/")+1:]
		if stopped {
			_, err = b.identities.PutRolePolicy(ctx, &iam.PutRolePolicyInput{RoleName: &role,
				PolicyName: aws.String(deny), PolicyDocument: aws.String(denied)})
		} else {
			_, err = b.identities.DeleteRolePolicy(ctx,
				&iam.DeleteRolePolicyInput{RoleName: &role, PolicyName: aws.String(deny)})
			api, answered := errors.AsType[smithy.APIError](err)
			if answered && strings.HasPrefix(api.ErrorCode(), "NoSuchEntity") {
				err = nil // it was not stopped
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}
