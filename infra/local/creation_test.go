package local

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation/types"

	"payhook.example/infra/cmd/payhook/creation"
)

// protectedStack is a cloud assembly with a stack that has termination protection.
const protectedStack = `{"version":"36.0.0","artifacts":{"Protected":{"type":"aws:cloudformation:stack",
"environment":"aws://000000000000/us-east-1",
"properties":{"templateFile":"Protected.template.json","terminationProtection":true}}}}`

// A creation that failed is repeated by the CDK CLI after AllowRetry, and not before.
// A stack that was created stays protected.
func TestACreationThatFailedIsRepeated(t *testing.T) {
	config := emulated(t)
	client := cloudformation.NewFromConfig(config)
	top, err := projectTop()
	if err != nil {
		t.Fatal(err)
	}
	s := &stack{opts: options{top: top, state: t.TempDir()}}
	s.Endpoint = *config.BaseEndpoint
	assembly := filepath.Join(s.opts.state, "cdk.out")
	write := func(name, text string) {
		if err := os.MkdirAll(assembly, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(assembly, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	deploy := func() error {
		_, err := s.deployStacks(t.Context(), "deploy", assembly, nil, "Protected")
		return err
	}
	want := func(status types.StackStatus, protected bool) {
		t.Helper()
		out, err := client.DescribeStacks(t.Context(),
			&cloudformation.DescribeStacksInput{StackName: aws.String("Protected")})
		if err != nil {
			t.Fatal(err)
		}
		if got := out.Stacks[0]; got.StackStatus != status || aws.ToBool(got.EnableTerminationProtection) != protected {
			t.Fatalf("the stack is in %s, protected: %t", got.StackStatus, aws.ToBool(got.EnableTerminationProtection))
		}
	}
	write("manifest.json", protectedStack)
	// There is no signal, so the creation fails after a second.
	write("Protected.template.json", `{"Resources":{"Topic":{"Type":"AWS::SNS::Topic"},
		"Handle":{"Type":"AWS::CloudFormation::WaitConditionHandle"},
		"Fails":{"Type":"AWS::CloudFormation::WaitCondition","DependsOn":"Topic",
			"Properties":{"Handle":{"Ref":"Handle"},"Timeout":"1"}}}}`)
	if err := deploy(); err == nil {
		t.Fatal("the creation did not fail")
	}
	want(types.StackStatusRollbackComplete, true)
	write("Protected.template.json", `{"Resources":{"Topic":{"Type":"AWS::SNS::Topic"}}}`)
	if err := deploy(); err == nil || !strings.Contains(err.Error(), "TerminationProtection is enabled") {
		t.Fatalf("with its protection, the stack is replaced: %v", err)
	}
	done, err := creation.AllowRetry(t.Context(), client, "Protected")
	if err != nil || done.Status != types.StackStatusRollbackComplete {
		t.Fatalf("%+v, %v", done, err)
	}
	if err := deploy(); err != nil {
		t.Fatal(err)
	}
	want(types.StackStatusCreateComplete, true)
	if done, err := creation.AllowRetry(t.Context(), client, "Protected"); err != nil || done.Stack != "" {
		t.Errorf("%+v, %v", done, err)
	}
	want(types.StackStatusCreateComplete, true)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := creation.AllowRetry(ctx, client, "Protected"); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}
