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
	"cmp"
	"context"
	"errors"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/spf13/cobra"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/deployment"
	"payhook.example/shared/keys"
	"payhook.example/shared/ledger"
	"payhook.example/shared/parking"
	"payhook.example/shared/payment"
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

// on connects to the deployment that is meant, and returns what a command does with it. An
// error that is not one of usage comes from AWS.
func (p *program) on(do func(ctx context.Context, s *stack, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		s, err := p.connect(cmd.Context(), *p.target)
		if err == nil {
			err = do(cmd.Context(), s, args)
		}
		return cli.Unreachable(err)
	}
}

// print writes a document with --json, and otherwise what lines writes.
func (p *program) print(document any, lines func(t cli.Fields)) error {
	if p.JSON {
		return p.PrintJSON(document)
	}
	t := p.Fields()
	lines(t)
	return t.Flush()
}

// attention returns err or, if it is nil and something is wrong, [cli.ErrAttention].
func attention(err error, wrong bool) error {
	if wrong {
		return cmp.Or(err, cli.ErrAttention)
	}
	return err
}

// stack is a deployment with the clients of its services.
type stack struct {
	*deployment.Deployment

	ledger *ledger.Inspector
	keys   *keys.Inspector
	store  *parking.Store
	lambda *lambda.Client
	sts    *sts.Client
}

// connect finds the deployment that is meant.
func connect(ctx context.Context, t deployment.Target) (*stack, error) {
	d, err := deployment.Connect(ctx, t)
	if err != nil {
		return nil, err
	}
	return newStack(d, d.S3()), nil
}

func newStack(d *deployment.Deployment, objects parking.API) *stack {
	db := dynamodb.NewFromConfig(d.AWS)
	return &stack{
		Deployment: d,

		ledger: ledger.NewInspector(db, d.LedgerTable),
		keys:   keys.NewInspector(db, d.KeysTable),
		store:  parking.NewStore(objects, d.ParkingBucket),
		lambda: lambda.NewFromConfig(d.AWS),
		sts:    sts.NewFromConfig(d.AWS),
	}
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

// oneUUID checks that a command has one argument, which is a UUID.
func oneUUID(cmd *cobra.Command, args []string) error {
	if err := cli.Args("ID")(cmd, args); err != nil {
		return err
	}
	return isID(args[0])
}

func isID(text string) error {
	if !payment.IsUUID(text) {
		return errors.New("the id must be a UUID")
	}
	return nil
}
