package console

import (
	"context"
	"errors"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/smithy-go"

	"payhook.example/infra/deployment"
)

// denied is the policy that denies to publish, and deny is its name.
const (
	deny   = "payhook-console-stops-the-bus"
	denied = `{"Version":"2012-10-17","Statement":[{"Effect":"Deny","Action":"events:PutEvents","Resource":"*"}]}`
)

// setBus stops or starts the event bus for the functions that publish: a policy of their
// roles denies it. The emulator enforces it at once. To do so twice is no error.
func setBus(ctx context.Context, d *deployment.Deployment, stopped bool) error {
	functions, identities := lambda.NewFromConfig(d.AWS), iam.NewFromConfig(d.AWS)
	for _, function := range []string{"webhook", "redrive"} {
		out, err := functions.GetFunctionConfiguration(ctx,
			&lambda.GetFunctionConfigurationInput{FunctionName: aws.String(d.Functions[function])})
		if err != nil {
			return err
		}
		role := aws.ToString(out.Role)
		role = role[strings.LastIndex(role, "/")+1:]
		if stopped {
			_, err = identities.PutRolePolicy(ctx, &iam.PutRolePolicyInput{RoleName: &role,
				PolicyName: aws.String(deny), PolicyDocument: aws.String(denied)})
		} else {
			_, err = identities.DeleteRolePolicy(ctx,
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
