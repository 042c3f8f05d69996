// Package operate has the commands that show what Payhook holds back and release
// it: pending, parked, captured, event, key, certificates. They work on a stack in AWS and on
// the local run alike.
//
// It guarantees that it changes nothing except with the commands "parked replay",
// "parked settle", "pending move" and "key --drop", that it never changes more than one thing
// without confirmation, and that it shows a payload only with the flag
// --payload of "parked show" and "captured show". Of both versions of a conflict, it shows
// amount, currency and status.
//
// policy.json is the policy for whoever runs these commands in AWS. A test derives
// from this package what it must allow, so code that needs other permissions belongs
// in another package.
package operate

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/spf13/cobra"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/deployment"
	"payhook.example/shared/keys"
	"payhook.example/shared/ledger"
	"payhook.example/shared/names"
	"payhook.example/shared/parking"
)

// Commands returns the commands, in the order of a help text.
func Commands(p *cli.Program, t *deployment.Target) []*cobra.Command {
	return (&program{p, t, connect}).commands()
}

// program is one run of a command.
type program struct {
	*cli.Program
	target  *deployment.Target
	connect func(context.Context, deployment.Target) (*stack, error)
}

func (p *program) commands() []*cobra.Command {
	return []*cobra.Command{
		p.pendingCommand(),
		cli.Group("parked", "List, show, replay and settle what is parked",
			p.listCommand(), p.showCommand(), p.replayCommand(), p.settleCommand()),
		cli.Group("captured", "List and show the rejected webhooks that were captured",
			p.capturedListCommand(), p.capturedShowCommand()),
		p.eventCommand(), p.keyCommand(), p.certificatesCommand(),
	}
}

// run returns what a command does. An error that is not one of usage comes from
// AWS.
func run(do func(ctx context.Context, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error { return cli.Unreachable(do(cmd.Context(), args)) }
}

// tables is what of DynamoDB is used.
type tables interface {
	ledger.InspectAPI
	keys.InspectAPI
}

// functions is what of Lambda is used.
type functions interface {
	Invoke(context.Context, *lambda.InvokeInput, ...func(*lambda.Options)) (*lambda.InvokeOutput, error)
}

// identity is what of STS is used.
type identity interface {
	GetCallerIdentity(context.Context, *sts.GetCallerIdentityInput,
		...func(*sts.Options)) (*sts.GetCallerIdentityOutput, error)
}

// stack is a deployment with the clients of its services.
type stack struct {
	*deployment.Deployment

	db      tables
	buckets parking.API
	lambda  functions
	sts     identity
}

// connect finds the deployment that is meant.
func connect(ctx context.Context, t deployment.Target) (*stack, error) {
	d, err := deployment.Connect(ctx, t)
	if err != nil {
		return nil, err
	}
	return &stack{
		Deployment: d,

		db:      dynamodb.NewFromConfig(d.AWS),
		lambda:  lambda.NewFromConfig(d.AWS),
		sts:     sts.NewFromConfig(d.AWS),
		buckets: d.S3(),
	}, nil
}

// caller returns the ARN of whoever runs this program, or "" if AWS does not say.
// That needs no permission (AWS, "GetCallerIdentity" in the STS API reference).
func (d *stack) caller(ctx context.Context) string {
	out, err := d.sts.GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
	if err != nil {
		return ""
	}
	return aws.ToString(out.Arn)
}

func (d *stack) ledger() (*ledger.Inspector, error) {
	table, err := d.Output(names.LedgerTableOutput)
	return ledger.NewInspector(d.db, table), err
}

func (d *stack) keys() (*keys.Inspector, error) {
	table, err := d.Output(names.KeysTableOutput)
	return keys.NewInspector(d.db, table), err
}

func (d *stack) store() (*parking.Store, error) {
	bucket, err := d.Output(names.ParkingBucketOutput)
	return parking.NewStore(d.buckets, bucket), err
}
