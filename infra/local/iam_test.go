package main

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/lambda"

	"payhook/shared/uuid"
)

// statement is one statement of a policy.
type statement struct {
	Sid       string `json:",omitempty"`
	Effect    string
	Action    any
	Resource  any
	Condition any `json:",omitempty"`
}

// policyOf returns a policy with these statements.
func policyOf(statements ...statement) *string {
	text, err := json.Marshal(map[string]any{"Version": "2012-10-17", "Statement": statements})
	if err != nil {
		panic(err) // they are texts
	}
	return aws.String(string(text))
}

// roleOf returns the name of a function's role.
func (f *fixture) roleOf(ctx context.Context, function string) (string, error) {
	name := f.Functions[function]
	out, err := lambda.NewFromConfig(f.aws).GetFunctionConfiguration(ctx, &lambda.GetFunctionConfigurationInput{FunctionName: &name})
	if err != nil {
		return "", err
	}
	role := aws.ToString(out.Role)
	return role[strings.LastIndex(role, "/")+1:], nil
}

// allow lets a function do more than the stack lets it do, until the test ends.
func (f *fixture) allow(t *testing.T, function string, actions []string, resources ...string) {
	t.Helper()
	client := iam.NewFromConfig(f.aws)
	role, err := f.roleOf(t.Context(), function)
	if err != nil {
		t.Fatal(err)
	}
	policy := "test-" + uuid.New()
	if _, err := client.PutRolePolicy(t.Context(), &iam.PutRolePolicyInput{
		RoleName: &role, PolicyName: &policy,
		PolicyDocument: policyOf(statement{Effect: "Allow", Action: actions, Resource: resources}),
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := client.DeleteRolePolicy(context.WithoutCancel(t.Context()), &iam.DeleteRolePolicyInput{RoleName: &role, PolicyName: &policy}); err != nil {
			t.Error(err)
		}
	})
}
